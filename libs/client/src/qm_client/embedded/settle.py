"""Telling when the embedded product has come to rest: everything that follows from what happened has happened."""

import asyncio
from collections.abc import Sequence
from time import monotonic

from qm_events import TOPICS
from qm_service.log import EventLog
from qm_service.service import Service

_LOOK_SECONDS = 0.002


class NotSettled(Exception):
    """The product did not come to rest in time; names who is still at work."""


async def settled(services: Sequence[Service], log: EventLog, limit_seconds: float = 60.0) -> None:
    """Return when all inputs are read, decided and published, and no worker has anything to do. Raises NotSettled."""
    end = monotonic() + limit_seconds
    while busy := await _busy(services, log):
        if monotonic() > end:
            raise NotSettled(f"after {limit_seconds} s still at work: {', '.join(busy)}")
        await asyncio.sleep(_LOOK_SECONDS)


async def _busy(services: Sequence[Service], log: EventLog) -> list[str]:
    # The ends are taken first and looked at last: a fact that is published in between shows as work.
    at_work = [service.name for service in services if not service.runtime.idle()]
    at_work += [f"{service.name} worker" for service in services for worker in service.workers if not worker.idle()]
    if at_work:
        return at_work
    ends = await log.ends(TOPICS)
    behind = [service.name for service in services if not service.runtime.has_read(ends)]
    return behind or [service.name for service in services if not service.runtime.idle()]
