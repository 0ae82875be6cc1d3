"""What the tests of the chassis share."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from qm_events import Event
from qm_service.commands import Cause, Outcome, Unavailable
from qm_service.database import DatabaseUnavailable
from qm_service.model import Act
from qm_service.testing.flaky import FlakyDatabase
from qm_service.testing.world import World


def flaky(world: World, *, folder: Path | None = None) -> FlakyDatabase:
    """Return a database of the world that fails; in a file where its connections may be lost."""
    place = ":memory:" if folder is None else folder / "flaky.db"
    return world.own(FlakyDatabase(f"sqlite+aiosqlite:///{place}"))


async def insist(world: World, service: str, act: Act, cause: Cause) -> Outcome:
    """Call again, with the same key, until there is an answer: what a good client does."""
    for _ in range(50):
        with suppress(Unavailable, DatabaseUnavailable):
            return await world.execute(service, act, cause)
    raise AssertionError("never answered")


async def settle_through_trouble(world: World) -> None:
    """Settle though steps fail."""
    world.expects_trouble = True
    for _ in range(100):
        with suppress(DatabaseUnavailable):
            await world.settle()
            return
    raise AssertionError("never settled")


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait for a condition, at most `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.01)


def versions(events: list[Event[Any]]) -> list[int]:
    """Return the versions of facts."""
    return [event.version for event in events]
