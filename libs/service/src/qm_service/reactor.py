"""Side effects: what a service does to the world because of facts. At least once, under a key that stays the same, and
never again for what is done. A reactor is not part of a `Definition`, so no replay can reach one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from sqlalchemy import select

from qm_events import TOPICS, Event, EventData, decode
from qm_events.codec import current
from qm_service.clock import Clock
from qm_service.database import Database, DatabaseUnavailable
from qm_service.lease import Lease, LeaseLost
from qm_service.log import EventLog, LogUnavailable, Position, PositionLost, Record
from qm_service.loops import end
from qm_service.model import Definition
from qm_service.plan import plan_of
from qm_service.schema import create, schema_of
from qm_service.store import SqlEventStore
from qm_service.writes import Writes, load_positions

_logger = logging.getLogger(__name__)

_BATCH = 200
_READ_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_TROUBLE = (DatabaseUnavailable, LeaseLost, LogUnavailable, PositionLost)

Handler = Callable[[Event[Any]], Awaitable[str]]
"""Does it, and returns what to remember. Runs again with the same fact if the process dies before that is written."""


class Reactor:
    """Follows topics, own or foreign, with positions of its own that begin at the end of the log (`from_start`: at its
    beginning). A handler that raises is tried again; its partition waits."""

    def __init__(
        self,
        name: str,
        definition: Definition,
        database: Database,
        log: EventLog,
        clock: Clock,
        handlers: Mapping[type[EventData], Handler],
        *,
        from_start: bool = False,
        lease_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.failing: dict[tuple[str, int], str] = {}
        """Partitions whose next fact cannot be handled now, and why."""
        self._topics = tuple(TOPICS[topic] for topic in sorted({cls.topic for cls in handlers}))
        self._handlers = {cls.wire_type: handler for cls, handler in handlers.items()}
        self._schema = schema_of(definition)
        self._database = database
        self._log = log
        self._clock = clock
        self._from_start = from_start
        store = SqlEventStore(self._schema, database)
        self._writes = Writes(plan_of(definition), self._schema, database, store)
        self._lease = Lease(self._schema, database, f"{definition.name} reactor {name}", lease_seconds)
        self._position: Position | None = None
        self._at_end = False
        self._beaten = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.create_task(self._run(), name=f"reactor {self.name}")

    async def stop(self) -> None:
        """End; a handler that runs is cancelled, and runs again later."""
        if self._task is not None:
            await end(self._task)
            self._task = None
        if self._position is not None:
            with suppress(*_TROUBLE):
                await self._lease.release()
            self._position = None

    @property
    def leads(self) -> bool:
        """Tell whether this process is the one that follows."""
        return self._position is not None

    def idle(self) -> bool:
        """Tell whether there was nothing to do when it looked last."""
        return self._at_end and not self.failing

    async def step(self, wait_seconds: float = 0.0) -> bool:
        """Handle what is there; False if there was nothing. Raises what is in the way of reading or writing."""
        if self._position is None and not await self._begin():
            return False
        position = self._position or {}
        records = await self._log.read(position, _BATCH, wait_seconds)
        self._at_end = not records
        moved = await self._handle(records)
        if moved or monotonic() - self._beaten > self._lease.seconds / 3:
            self._beaten = monotonic()
            async with self._database.write() as tx:
                await self._lease.fence(tx)
                await self._writes.positions(tx, moved, self._consumer)
        position |= moved
        return bool(moved)

    @property
    def _consumer(self) -> str:
        return f"reactor {self.name}"

    async def _begin(self) -> bool:
        await create(self._database, self._schema)
        if not await self._lease.acquire():
            return False
        async with self._database.read() as tx:
            position = await load_positions(tx, self._schema, self._consumer)
        names = [topic.name for topic in self._topics]
        first = await (self._log.starts(names) if self._from_start else self._log.ends(names))
        async with self._database.write() as tx:
            await self._lease.fence(tx)
            await self._writes.positions(tx, first | position, self._consumer)
        self._position = first | position
        return True

    async def _handle(self, records: Sequence[Record]) -> Position:
        done = await self._done([record for record in records if current(record.type) in self._handlers])
        moved: Position = {}
        self.failing = {}
        for record in records:
            place = (record.topic, record.partition)
            if place in self.failing:
                continue
            try:
                await self._once(record, done)
                moved[place] = record.offset + 1
            except _TROUBLE:
                raise
            except Exception as error:
                self.failing[place] = f"{record.position}: {type(error).__name__}: {error}"
                _logger.warning("reactor %s tries again: %s", self.name, self.failing[place])
        return moved

    async def _once(self, record: Record, done: set[str]) -> None:
        handler = self._handlers.get(current(record.type))
        key = f"{record.subject}@{record.version}"
        if handler is None or key in done:
            return
        result = await handler(decode(record.value, record.type))
        async with self._database.write() as tx:
            await self._lease.fence(tx)
            values = {"reactor": self.name, "key": key, "done_at": self._clock.now(), "result": result}
            await tx.execute(self._schema.effects.insert().values(**values))
        done.add(key)

    async def _done(self, records: Sequence[Record]) -> set[str]:
        keys = [f"{record.subject}@{record.version}" for record in records]
        effects = self._schema.effects.c
        if not keys:
            return set()
        async with self._database.read() as tx:
            query = select(effects.key).where(effects.reactor == self.name, effects.key.in_(keys))
            return {key for (key,) in await tx.execute(query)}

    async def _run(self) -> None:
        while True:
            try:
                if not await self.step(_READ_SECONDS) and (self.failing or self._position is None):
                    await asyncio.sleep(_RETRY_SECONDS)
            except _TROUBLE as error:
                self._position = None
                _logger.warning("reactor %s waits: %s", self.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
