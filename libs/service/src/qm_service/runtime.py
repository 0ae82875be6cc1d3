"""A service, running: what its routes and workers call."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from qm_events import Event
from qm_service.clock import Clock
from qm_service.commands import (
    NOBODY,
    NOT_THE_WRITER,
    Cause,
    IdempotencyMismatch,
    Outcome,
    Refused,
    Unavailable,
    VersionConflict,
)
from qm_service.database import Database, DatabaseUnavailable
from qm_service.engine import Engine
from qm_service.items import Command, Input
from qm_service.lease import LeaseLost
from qm_service.log import EventLog, Position
from qm_service.loops import TROUBLE, Loops, end
from qm_service.model import Act, Context, Definition
from qm_service.park import HALT_PARTITION, PARK_STREAM, ParkPolicy
from qm_service.reader import Reader
from qm_service.status import Status
from qm_service.store import SqlEventStore

__all__ = [
    "HALT_PARTITION",
    "PARK_STREAM",
    "Cause",
    "IdempotencyMismatch",
    "Outcome",
    "Refused",
    "Runtime",
    "Unavailable",
    "VersionConflict",
]

_QUEUE = 5_000
"""Commands that may wait; beyond that callers are told to come again."""
_START_SECONDS = 3.0
_STOP_SECONDS = 4.0


class Runtime:
    """One service in one process.

    `lease_seconds`: how long a writer must be silent before another process takes over. `batch`: items in one
    transaction at most. `stepped`: nothing runs by itself; `step` and `execute` do all (for tests).
    """

    def __init__(
        self,
        definition: Definition,
        database: Database,
        log: EventLog,
        clock: Clock,
        *,
        lease_seconds: float = 10.0,
        batch: int = 500,
        park: ParkPolicy = PARK_STREAM,
        stepped: bool = False,
    ) -> None:
        engine = Engine(definition, database, log, clock, lease_seconds=lease_seconds, batch=batch, park=park)
        self.definition = definition
        self.plan = engine.plan
        self.schema = engine.schema
        self.database = database
        self.log = log
        self.clock = clock
        self.stepped = stepped
        self.docs = Reader(self.plan, self.schema, database)
        self.committed: list[Callable[[Sequence[Event[Any]]], None]] = engine.writer.committed
        """Called after each commit with the own facts in it; must not block."""
        self._engine = engine
        self._loops = Loops(engine)
        self._store = SqlEventStore(self.schema, database)
        self._main: asyncio.Task[None] | None = None
        self._stopped = False

    async def execute(self, act: Act, cause: Cause = NOBODY, *, expected_version: int | None = None) -> Outcome:
        """Carry out a command; what it led to is durable on return.

        Raises Refused, IdempotencyMismatch, VersionConflict, Unavailable, or what the rule raised.
        """
        return await self._submit(act, cause, expected_version)

    async def audit(self, cause: Cause, resource: str, code: str) -> None:
        """Record that a call about the stream `resource` was refused before any rule saw it. Raises Unavailable."""
        await self._submit(Act(resource, None), cause, None, code)

    async def _submit(self, act: Act, cause: Cause, expected: int | None, refusal: str | None = None) -> Outcome:
        engine = self._engine
        if self.stepped and not engine.leads and not self._stopped:
            await engine.begin()
        if not engine.leads or self._stopped:
            raise Unavailable(NOT_THE_WRITER)
        if len(engine.queue) >= _QUEUE:
            raise Unavailable("too many commands are waiting")
        command = Command(act, cause, asyncio.get_running_loop().create_future(), expected, refusal)
        engine.queue.append(command)
        engine.wake.set()
        while self.stepped and not command.answer.done():
            with suppress(DatabaseUnavailable, LeaseLost):
                await engine.turn()
        return await command.answer

    async def retry(self, items: Sequence[Input]) -> None:
        """Carry out parked inputs. Raises Unavailable, DatabaseUnavailable."""
        await self._engine.retry(items)

    def context(self) -> Context:
        """Return what a decision would see now: for queries that look at resident documents and the index.

        Raises Unavailable where this process is not the writer.
        """
        return self._engine.writer.context()

    async def version(self, stream: str) -> int:
        """Return the version of an own stream, 0 for none. Raises DatabaseUnavailable."""
        async with self.database.read() as tx:
            return (await self._store.versions(tx, [stream])).get(stream, 0)

    async def history(self, stream: str, after: int = 0) -> list[Event[Any]]:
        """Return the facts of an own stream beyond a version, in order. Raises DatabaseUnavailable."""
        async with self.database.read() as tx:
            return await self._store.load(tx, stream, after)

    def idle(self) -> bool:
        """Tell whether nothing is queued, unread, unpublished or due, as far as it looked."""
        return self._rests() and self._engine.inputs.at_end

    def at_rest(self, ends: Position) -> bool:
        """Tell whether all before `ends` was read, and nothing is at work, queued, unpublished or due."""
        position = self._engine.inputs.position
        return self._rests() and all(position.get(place, end) >= end for place, end in ends.items())

    def _rests(self) -> bool:
        engine = self._engine
        busy = engine.turning or engine.queue or self._loops.records or engine.writer.unsettled
        return not busy and engine.relay.drained and not engine.is_due()

    def status(self) -> Status:
        """Return how it stands with the service."""
        engine, dead = self._engine, self._loops.dead()
        memory = engine.writer.memory
        return engine.watch.status(
            leader=memory is not None,
            epoch=engine.lease.epoch,
            parked=len(memory.parked) if memory else 0,
            halted=engine.inputs.halted,
            failure=engine.writer.failure or (f"the loop {dead!r} has ended" if dead else None),
        )

    async def step(self) -> bool:
        """Do one round of everything by hand; False if there was nothing to do. Raises what is in the way."""
        engine = self._engine
        if not engine.leads:
            await engine.begin()
        records = await engine.inputs.read(engine.batch, 0.0)
        done = await engine.turn(records)
        while not engine.relay.drained and await engine.relay.run_once():
            done = True
        return done or bool(records)

    async def start(self) -> None:
        """Begin. Returns within seconds also while database or log are down: it keeps trying, and `status` says so."""
        self._stopped = self._loops.stopping = False
        if self.stepped:
            await self._engine.begin()
            return
        self._main = asyncio.create_task(self._loops.run(), name=self.definition.name)
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await self._loops.ready.wait()

    async def stop(self) -> None:
        """End within seconds: the batch at hand is finished, the lease is given back."""
        engine = self._engine
        self._stopped = self._loops.stopping = True
        engine.wake.set()
        if self._main is not None:
            await asyncio.wait({self._main}, timeout=_STOP_SECONDS)
            await end(self._main)
            self._main = None
        if engine.leads:
            with suppress(*TROUBLE):
                await engine.beat()
                await engine.lease.release()
        engine.dismiss("the service stops")
