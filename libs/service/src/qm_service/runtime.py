"""A service, running: one writer, a reader ahead of it, a relay behind it, and a ticker."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import Any

from qm_events import Event
from qm_service.clock import Clock
from qm_service.commands import NOBODY, Cause, IdempotencyMismatch, Outcome, Refused, Unavailable, VersionConflict
from qm_service.database import Database, DatabaseUnavailable
from qm_service.inputs import Inputs, ReplayNeeded, seed
from qm_service.items import Command, Input, Item
from qm_service.lease import Lease, LeaseLost
from qm_service.log import EventLog, LogUnavailable, PositionLost, Record, TopicMisconfigured
from qm_service.model import Act, Context, Definition
from qm_service.park import HALT_PARTITION, PARK_STREAM, ParkPolicy
from qm_service.plan import plan_of
from qm_service.reader import Reader
from qm_service.rebuild import Busy, Outdated, upgrade
from qm_service.refold import BrokenHistory
from qm_service.relay import Relay
from qm_service.schema import create, schema_of
from qm_service.status import Status, Watch
from qm_service.store import SqlEventStore
from qm_service.writer import Writer

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

_logger = logging.getLogger(__name__)

_QUEUE = 5_000
"""Commands that may wait; beyond that callers are told to come again."""
_RETRY_SECONDS = 0.5
_READ_SECONDS = 0.5
_AGAIN_SECONDS = 1.0
_START_SECONDS = 3.0
_STOP_SECONDS = 4.0
_DOWN = (DatabaseUnavailable, LeaseLost, LogUnavailable)
_TROUBLE = (*_DOWN, PositionLost, ReplayNeeded, TopicMisconfigured, Outdated, Busy, BrokenHistory)


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
        self.definition = definition
        self.plan = plan_of(definition)
        self.schema = schema_of(definition)
        self.database = database
        self.log = log
        self.clock = clock
        self.stepped = stepped
        self.docs = Reader(self.plan, self.schema, database)
        self._batch = batch
        self._inputs = Inputs(self.plan, log)
        self._lease = Lease(self.schema, database, definition.name, lease_seconds)
        self._store = SqlEventStore(self.schema, database)
        self._relay = Relay(self.schema, database, self._store, log)
        self._writer = Writer(
            self.plan,
            self.schema,
            database,
            clock,
            lease=self._lease,
            relay=self._relay,
            inputs=self._inputs,
            policy=park,
        )
        self._watch = Watch(self.plan, log)
        self._queue: deque[Item] = deque()
        self._records: Sequence[Record] = ()
        self._wake = asyncio.Event()
        self._wanted = asyncio.Event()
        self._rearm = asyncio.Event()
        self._ready = asyncio.Event()
        self._due: datetime | None = None
        self._beaten = 0.0
        self._created = False
        self._ensured = False
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._main: asyncio.Task[None] | None = None
        self._entered = asyncio.Lock()

    @property
    def committed(self) -> list[Callable[[Sequence[Event[Any]]], None]]:
        """Called after each commit with the own facts in it; must not block."""
        return self._writer.committed

    # ---- what callers use

    async def execute(self, act: Act, cause: Cause = NOBODY, *, expected_version: int | None = None) -> Outcome:
        """Carry out a command; what it led to is durable on return.

        Raises Refused, IdempotencyMismatch, VersionConflict, Unavailable, or what the rule raised.
        """
        return await self._submit(act, cause, expected_version)

    async def audit(self, cause: Cause, resource: str, code: str) -> None:
        """Record that a call about the stream `resource` was refused before any rule saw it. Raises Unavailable."""
        await self._submit(Act(resource, None), cause, None, code)

    async def _submit(self, act: Act, cause: Cause, expected: int | None, refusal: str | None = None) -> Outcome:
        if self.stepped and self._writer.memory is None and not self._stopping:
            await self._begin()
        if self._writer.memory is None or self._stopping:
            raise Unavailable("this process is not the writer, or its database is down")
        if len(self._queue) >= _QUEUE:
            raise Unavailable("too many commands are waiting")
        command = Command(act, cause, asyncio.get_running_loop().create_future(), expected, refusal)
        self._queue.append(command)
        self._wake.set()
        if self.stepped:
            while not command.answer.done():
                with suppress(DatabaseUnavailable, LeaseLost):
                    await self._turn(())
        return await command.answer

    async def retry(self, items: Sequence[Input]) -> None:
        """Carry out parked inputs, between two batches. Raises Unavailable, DatabaseUnavailable."""
        async with self._entered:
            if self._writer.memory is None:
                raise Unavailable("this process is not the writer, or its database is down")
            await self._writer.process(items)

    def context(self) -> Context:
        """Return what a decision would see now: for queries that look at resident documents and the index.

        Raises Unavailable where this process is not the writer.
        """
        return self._writer.context()

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
        busy = self._queue or self._records or self._writer.unsettled or not self._inputs.at_end
        return not busy and self._relay.drained and not self._is_due()

    def status(self) -> Status:
        """Return how it stands with the service."""
        dead = next((task.get_name() for task in self._tasks if task.done()), None) if not self._stopping else None
        memory = self._writer.memory
        return self._watch.status(
            leader=memory is not None,
            epoch=self._lease.epoch,
            parked=len(memory.parked) if memory else 0,
            halted=self._inputs.halted,
            failure=self._writer.failure or (f"the {dead} task has ended" if dead else None),
        )

    # ---- the turn: what both ways of running are made of

    async def _turn(self, records: Sequence[Record]) -> bool:
        async with self._entered:
            halted = self._inputs.halted
            items = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch))]
            items += [Input(record) for record in records if (record.topic, record.partition) not in halted]
            done = await self._writer.process(items)
            self._due = self._writer.due()
            self._rearm.set()
            self._watch.progress(self._inputs.position)
            if done:
                self._beaten = monotonic()
            return done

    def _is_due(self) -> bool:
        return self._due is not None and self._due <= self.clock.now()

    async def step(self) -> bool:
        """Do one round of everything by hand; False if there was nothing to do. For `stepped` runtimes."""
        if self._writer.memory is None:
            await self._begin()
        records = await self._inputs.read(self._batch, 0.0)
        done = await self._turn(records)
        while await self._relay.run_once():
            done = True
        return done or bool(records)

    # ---- running by itself

    async def start(self) -> None:
        """Begin. Returns within seconds also while database or log are down: it keeps trying, and `status` says so."""
        self._stopping = False
        if self.stepped:
            await self._begin()
            return
        self._main = asyncio.create_task(self._run(), name=f"{self.definition.name} main")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), _START_SECONDS)

    async def stop(self) -> None:
        """End within seconds: the batch at hand is finished, the lease is given back."""
        self._stopping = True
        if self._main is not None:
            self._wake.set()
            done, _ = await asyncio.wait({self._main}, timeout=_STOP_SECONDS)
            if not done:
                self._main.cancel()
            await asyncio.gather(self._main, return_exceptions=True)
            self._main = None
        if self._writer.memory is not None:
            with suppress(*_TROUBLE):
                await self._writer.beat()
                await self._lease.release()
        self._writer.memory = None
        self._refuse_waiting("the service stops")

    async def _begin(self) -> bool:
        """Become the writer, if nobody else is. Raises what is in the way."""
        if not self._created:
            await create(self.database, self.schema)
            self._created = True
        with suppress(LogUnavailable):
            await self._ensure_topics()
        await upgrade(self.definition, self.database, self.log)
        if not await self._lease.acquire():
            return False
        await seed(self.plan, self.schema, self.database, self.log, self._writer.writes)
        await self._relay.load()
        self._inputs.reset((await self._writer.load()).positions)
        self._beaten = monotonic()
        self._due = self._writer.due()
        return True

    async def _ensure_topics(self) -> None:
        if not self._ensured:
            await self.log.ensure_topics([*self.plan.own, *self.plan.inputs])
            self._ensured = True

    async def _run(self) -> None:
        while not self._stopping:
            try:
                if await self._begin():
                    self._watch.well("start")
                    self._ready.set()
                    await self._serve()
            except _TROUBLE as error:
                self._watch.trouble("start", error)
            except Exception as error:
                self._watch.trouble("start", error)
                _logger.exception("%s failed and starts again", self.definition.name)
            if not self._stopping:
                self._writer.memory = None
                self._refuse_waiting("this process is not the writer, or its database is down")
                await asyncio.sleep(min(_RETRY_SECONDS, self._lease.seconds / 4))

    async def _serve(self) -> None:
        """Run all four until one of them fails or the runtime stops."""
        loops = [self._write, self._read, self._publish, self._ticker, self._watch.run]
        self._records = ()
        self._wanted.set()
        self._wake.set()
        self._tasks = [asyncio.create_task(loop(), name=loop.__name__) for loop in loops]
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        while not self._stopping:
            await self._wake.wait()
            self._wake.clear()
            records, self._records = self._records, ()
            if records:
                self._wanted.set()
            await self._turn(records)
            if self._queue or self._writer.unsettled:
                self._wake.set()

    async def _read(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                await self._ensure_topics()
                records = await self._inputs.read(self._batch, _READ_SECONDS)
                self._watch.well("log")
            except (LogUnavailable, PositionLost) as error:
                self._watch.trouble("log", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if records:
                self._wanted.clear()
                self._records = records
                self._wake.set()
            elif not self._inputs.position:
                await asyncio.sleep(_READ_SECONDS)

    async def _publish(self) -> None:
        while True:
            self._relay.wake.clear()
            try:
                await self._ensure_topics()
                while await self._relay.run_once():
                    pass
                self._watch.well("relay")
            except (LogUnavailable, DatabaseUnavailable, TopicMisconfigured) as error:
                self._watch.trouble("relay", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            # Facts of a transaction that was still open elsewhere come without a wake.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._relay.wake.wait(), 5.0)

    async def _ticker(self) -> None:
        """Wake the writer when something is due, and keep the lease alive when nothing happens."""
        interval = self._lease.seconds / 3
        served: datetime | None = None
        again = 0.0
        while True:
            self._rearm.clear()
            # What is still due after the writer looked gets another look in a while, not at once.
            until = None if self._due == served else self._due
            await _first(self.clock.wait(until, min(interval, _AGAIN_SECONDS)), self._rearm.wait())
            if self._is_due() and (self._due != served or monotonic() >= again):
                served, again = self._due, monotonic() + _AGAIN_SECONDS
                self._wake.set()
            if monotonic() - self._beaten >= interval:
                await self._beat()

    async def _beat(self) -> None:
        async with self._entered:
            self._beaten = monotonic()
            await self._writer.beat()

    def _refuse_waiting(self, why: str) -> None:
        while self._queue:
            item = self._queue.popleft()
            if isinstance(item, Command) and not item.answer.done():
                item.answer.set_exception(Unavailable(why))


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of the coroutines has ended; cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
