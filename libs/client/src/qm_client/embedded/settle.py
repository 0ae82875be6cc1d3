"""Telling when the embedded product has come to rest: everything that follows from what happened has happened."""

import asyncio
from collections.abc import Sequence
from time import monotonic

from qm_events import TOPICS
from qm_service.log import EventLog, Position
from qm_service.service import Service

_LOOK_SECONDS = 0.002


class NotSettled(Exception):
    """The product did not come to rest in time; names who is still at work."""


async def settled(services: Sequence[Service], log: EventLog, limit_seconds: float = 60.0) -> None:
    """Return when all inputs are read, decided and published, and no worker has anything to do. Raises NotSettled."""
    end = monotonic() + limit_seconds
    # Before the first look too: whom a move of the clock has woken does not run before this task lets go.
    await asyncio.sleep(_LOOK_SECONDS)
    while busy := await _busy(services, log):
        if monotonic() > end:
            raise NotSettled(f"after {limit_seconds} s still at work: {', '.join(busy)}")
        await asyncio.sleep(_LOOK_SECONDS)


async def _busy(services: Sequence[Service], log: EventLog) -> list[str]:
    if at_work := _at_work(services, {}):
        return at_work
    ends = await log.ends(TOPICS)
    at_work = _at_work(services, ends)
    # A fact that was published since the ends were asked for may lie unread while everyone rests.
    return at_work if at_work or await log.ends(TOPICS) == ends else ["log"]


def _at_work(services: Sequence[Service], ends: Position) -> list[str]:
    at_work = [f"{service.name} worker" for service in services for worker in service.workers if not worker.idle()]
    return at_work + [service.name for service in services if not service.runtime.at_rest(ends)]
