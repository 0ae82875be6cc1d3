"""A world for tests: several services on one log in memory, each with its own SQLite, under a clock moved by hand.

Nothing runs by itself: `execute` carries out a command, `settle` lets all services read, decide and publish until
nothing is left to do. The same calls give the same facts.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from qm_events import Event, decode
from qm_events.registry import TOPICS
from qm_service.clock import ManualClock
from qm_service.commands import NOBODY, Cause, Outcome
from qm_service.database import Database
from qm_service.log import EventLog, first_positions
from qm_service.log_memory import MemoryLog
from qm_service.model import Act, Definition
from qm_service.park import PARK_STREAM, ParkPolicy
from qm_service.runtime import Runtime
from qm_service.store import message_of

START = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)
_ROUNDS = 1_000

D = TypeVar("D", bound=Database)


class Worker(Protocol):
    """What runs beside a runtime, as far as a world has to wait for it."""

    def idle(self) -> bool:
        """Tell whether it has nothing left to do."""


class World:
    """`async with World(A, B) as world: await world.execute("a", act); await world.settle()`."""

    def __init__(
        self,
        *definitions: Definition,
        folder: Path | None = None,
        log: EventLog | None = None,
        park: ParkPolicy = PARK_STREAM,
    ) -> None:
        self.clock = ManualClock(START)
        self.log: EventLog = log or MemoryLog()
        self.runtimes: dict[str, Runtime] = {}
        self.workers: list[Worker] = []
        self.expects_trouble = False
        """A test of failures sets this, so that `settle` does not raise for parked facts and halted partitions."""
        self._folder = folder
        self._databases: list[Database] = []
        for definition in definitions:
            self.add(Runtime(definition, self.database(definition.name), self.log, self.clock, park=park, stepped=True))

    def database(self, name: str) -> Database:
        """Return a new database: in memory, or a file in the world's folder."""
        place = ":memory:" if self._folder is None else self._folder / f"{name}.db"
        return self.own(Database(f"sqlite+aiosqlite:///{place}", durable=False))

    def own(self, database: D) -> D:
        """Close a database with the world."""
        self._databases.append(database)
        return database

    def add(self, runtime: Runtime) -> Runtime:
        """Take in a runtime that a service built on this world's log and clock."""
        runtime.stepped = True
        self.runtimes[runtime.definition.name] = runtime
        return runtime

    async def __aenter__(self) -> Self:
        await self.log.start()
        await self.log.ensure_topics(TOPICS.values())
        for runtime in self.runtimes.values():
            await runtime.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for runtime in self.runtimes.values():
            await runtime.stop()
        for database in self._databases:
            await database.close()
        await self.log.close()

    async def execute(
        self, service: str, act: Act, cause: Cause = NOBODY, *, expected_version: int | None = None
    ) -> Outcome:
        """Carry out a command at a service."""
        return await self.runtimes[service].execute(act, cause, expected_version=expected_version)

    async def settle(self) -> None:
        """Let everything happen that follows. Raises AssertionError when it does not end or when a rule failed."""
        for _ in range(_ROUNDS):
            done = [await runtime.step() for runtime in self.runtimes.values()]
            if not any(done) and await self._workers_idle():
                break
        else:
            raise AssertionError(f"still busy after {_ROUNDS} rounds")
        if not self.expects_trouble:
            for name, runtime in self.runtimes.items():
                status = runtime.status()
                assert status.ready, f"{name}: {status}"
                assert not status.parked, f"{name}: {await self.parked(name)}"

    async def _workers_idle(self) -> bool:
        if all(worker.idle() for worker in self.workers):
            return True
        await asyncio.sleep(0.001)
        return False

    async def advance(self, **span: float) -> None:
        """Move the clock by a span (`minutes=5`) and settle."""
        self.clock.advance(timedelta(**span))
        await self.settle()

    async def publish(self, *events: Event[Any]) -> None:
        """Put facts of a service that is not in this world on the log."""
        await self.log.publish([message_of(event) for event in events])

    async def doc(self, service: str, projection: str, key: str) -> Any | None:
        """Return a document."""
        return await self.runtimes[service].docs.get(projection, key)

    async def facts(self, topic: str, stream: str | None = None) -> list[Any]:
        """Return the data of all facts on a topic (or of one stream there), by partition, without duplicates."""
        seen: dict[str, Any] = {}
        position = first_positions([TOPICS[topic]])
        while records := await self.log.read(position, 1_000):
            for record in records:
                position[record.topic, record.partition] = record.offset + 1
                if stream in (None, record.subject):
                    seen.setdefault(f"{record.subject}@{record.version}", decode(record.value, record.type).data)
        return list(seen.values())

    async def types(self, topic: str, stream: str | None = None) -> Sequence[str]:
        """Return the wire types of `facts`, without their versions: what happened, in short."""
        return [data.wire_type.rpartition(".")[0] for data in await self.facts(topic, stream)]

    async def parked(self, service: str) -> list[str]:
        """Return why facts are parked at a service."""
        runtime = self.runtimes[service]
        async with runtime.database.read() as tx:
            rows = await tx.execute(runtime.schema.parked.select())
            return [f"{row.topic}/{row.partition}/{row.offset} {row.type}: {row.error}" for row in rows]
