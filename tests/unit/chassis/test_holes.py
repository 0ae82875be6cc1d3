"""Offsets grow but have holes, as aborted transactions leave them: nothing waits for what is not there."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from qm_events.registry import Topic
from qm_service.log import Message, Position, Record
from qm_service.log_memory import MemoryLog
from qm_service.replay import verify
from qm_service.testing.world import World
from tests.support.toys import ADMISSION, CATALOG
from tests.unit.chassis.test_replay import rebuilt, usual

GAP = 3


class HoledLog:
    """A log in which only every third offset has a record."""

    def __init__(self) -> None:
        self._log = MemoryLog()

    async def start(self) -> None:
        """As the log inside."""

    async def close(self) -> None:
        """As the log inside."""

    async def ensure_topics(self, topics: Iterable[Topic]) -> None:
        """As the log inside."""
        await self._log.ensure_topics(topics)

    async def publish(self, messages: Sequence[Message]) -> None:
        """As the log inside."""
        await self._log.publish(messages)

    async def read(self, position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        """Return what lies behind the holes."""
        inside = {at: -(-(offset - 1) // GAP) if offset else 0 for at, offset in position.items()}
        return [
            replace(record, offset=GAP * record.offset + 1)
            for record in await self._log.read(inside, limit, wait_seconds)
        ]

    async def ends(self, topics: Iterable[str]) -> Position:
        """Return the offset after the last record."""
        return {at: GAP * (end - 1) + 2 if end else 0 for at, end in (await self._log.ends(topics)).items()}

    async def starts(self, topics: Iterable[str]) -> Position:
        """Return 0 for every partition."""
        return await self._log.starts(topics)

    async def blocked(self) -> Position:
        """Return nothing."""
        return {}


async def test_services_catch_up_and_are_rebuilt_over_holes() -> None:
    async with World(CATALOG, ADMISSION, log=HoledLog()) as world:
        await usual(world)
        for name, runtime in world.runtimes.items():
            ends = await world.log.ends([topic.name for topic in runtime.plan.inputs])
            assert runtime.at_rest(ends)
            assert {topic: lag.events for topic, lag in runtime.status().lag.items()} == {
                topic.name: 0 for topic in runtime.plan.inputs
            }
            comparison = await verify(runtime.definition, runtime.database, world.database("again"), world.log)
            assert comparison.equal, comparison.differing
            before = await world.facts("admissions")
            async with await rebuilt(world, name) as other:
                await other.settle()
                assert other.runtimes[name].at_rest(ends)
            assert await world.facts("admissions") == before
