"""What is down or broken shows in the status, passes when it is mended, and stops nobody else."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qm_events import Event
from qm_events.registry import Topic
from qm_service.clock import ManualClock
from qm_service.database import Database
from qm_service.log import LogUnavailable, Message, Position, Record
from qm_service.log_memory import MemoryLog
from qm_service.model import Act, Context, Decision, Definition
from qm_service.runtime import Runtime
from qm_service.testing.world import World
from tests.support.toys import ADMISSION, CATALOG, cancel, submit
from tests.unit.chassis.support import until


class DownLog(MemoryLog):
    """A log that is down when a test says so."""

    down = False

    async def ensure_topics(self, topics: Iterable[Topic]) -> None:
        """Fail, or do it."""
        self._refuse()
        await super().ensure_topics(topics)

    async def publish(self, messages: Sequence[Message]) -> None:
        """Fail, or do it."""
        self._refuse()
        await super().publish(messages)

    async def read(self, position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        """Fail, or do it."""
        self._refuse()
        return await super().read(position, limit, wait_seconds)

    async def ends(self, topics: Iterable[str]) -> Position:
        """Fail, or do it."""
        self._refuse()
        return await super().ends(topics)

    def _refuse(self) -> None:
        if self.down:
            raise LogUnavailable("the log is down")


def running(folder: Path, log: MemoryLog, definition: Definition = CATALOG) -> Runtime:
    """Return a service that runs by itself."""
    database = Database(f"sqlite+aiosqlite:///{folder / definition.name}.db", durable=False)
    return Runtime(definition, database, log, ManualClock(), lease_seconds=1.0)


async def test_commands_are_taken_while_the_log_is_down_and_published_when_it_is_back(tmp_path: Path) -> None:
    log = DownLog()
    runtime = running(tmp_path, log)
    await runtime.start()
    log.down = True
    await runtime.execute(submit("o1"))
    await until(lambda: not runtime.status().log_up)
    await runtime.execute(cancel("o1"))
    assert not runtime.status().ready
    log.down = False
    await until(lambda: runtime.status().ready and runtime.idle())
    assert sum((await log.ends(["orders"])).values()) == 2
    await runtime.stop()


async def test_a_service_that_was_started_before_its_log_gets_ready_by_itself(tmp_path: Path) -> None:
    log = DownLog()
    log.down = True
    runtime = running(tmp_path, log)
    async with asyncio.timeout(5):
        await runtime.start()
    assert not runtime.status().ready
    log.down = False
    await until(lambda: runtime.status().ready and runtime.status().leader)
    await runtime.stop()


async def test_a_service_stops_in_time_while_its_log_is_down(tmp_path: Path) -> None:
    log = DownLog()
    runtime = running(tmp_path, log)
    await runtime.start()
    log.down = True
    await runtime.execute(submit("o1"))
    async with asyncio.timeout(5):
        await runtime.stop()


async def test_a_loop_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DownLog()
    runtime = running(tmp_path, log, ADMISSION)
    await runtime.start()
    deaths: list[int] = []
    read = log.read

    async def die(position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        if len(deaths) < 3:
            deaths.append(1)
            raise RuntimeError("killed")
        return await read(position, limit, wait_seconds)

    monkeypatch.setattr(log, "read", die)
    await until(lambda: len(deaths) == 3 and runtime.status().ready and runtime.status().leader)
    await runtime.stop()


async def test_a_stream_that_cannot_be_read_fails_alone() -> None:
    async with World(CATALOG) as world:
        runtime = world.runtimes["catalog"]
        await world.execute("catalog", submit("o1"))
        await world.execute("catalog", submit("o2"))
        async with runtime.database.write() as tx:
            events = runtime.schema.events
            await tx.execute(events.update().where(events.c.stream == "order/o1").values(value=b"{}"))
        await runtime.stop()
        await runtime.start()
        results = await asyncio.gather(
            *(world.execute("catalog", cancel(order)) for order in ("o1", "o2", "o3")), return_exceptions=True
        )
        assert [type(result).__name__ for result in results] == ["UndecodableEvent", "Outcome", "Refused"]


async def test_a_listener_that_fails_is_only_logged() -> None:
    async with World(CATALOG) as world:
        heard: list[Event[Any]] = []
        world.runtimes["catalog"].committed += [lambda _: 1 / 0, heard.extend]
        await world.execute("catalog", submit("o1"))
        assert [event.subject for event in heard] == ["order/o1"]


async def test_a_document_that_was_not_asked_for_is_an_error_and_one_that_was_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decider = CATALOG.deciders[0]

    def decide(state: Any, command: Any, ctx: Context) -> Decision:
        if command == "look":
            assert ctx.docs.get("orders", "o1").phase == "cancelled"
            return []
        return decider.decide(state, command, ctx)

    looking = replace(CATALOG, deciders=(replace(decider, decide=decide),))
    async with World(looking) as world:
        await world.execute("catalog", submit("o1"))
        await world.execute("catalog", cancel("o1"))
        await world.runtimes["catalog"].stop()
        await world.runtimes["catalog"].start()
        with pytest.raises(KeyError):
            await world.execute("catalog", Act("order/o2", "look"))
        await world.execute("catalog", Act("order/o2", "look", needs=(("orders", "o1"),)))


async def test_a_due_time_that_cannot_be_told_shows_and_stops_nothing() -> None:
    async with World(replace(CATALOG, due=lambda _: 1 / 0)) as world:
        await world.execute("catalog", submit("o1"))
        assert "ZeroDivisionError" in str(world.runtimes["catalog"].status().errors)
