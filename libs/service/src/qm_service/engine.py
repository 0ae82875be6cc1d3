"""The parts of a running service, and the round that they do together, called by loops or by the hand of a test."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic

from qm_service.clock import Clock
from qm_service.commands import NOT_THE_WRITER, Unavailable
from qm_service.database import Database
from qm_service.inputs import Inputs, seed
from qm_service.items import Command, Input, Item
from qm_service.lease import Lease
from qm_service.log import EventLog, LogUnavailable, Record
from qm_service.model import Definition
from qm_service.park import ParkPolicy
from qm_service.plan import plan_of
from qm_service.rebuild import upgrade
from qm_service.relay import Relay
from qm_service.schema import create, schema_of
from qm_service.status import Watch
from qm_service.writer import Writer


class Engine:
    """Inputs before the writer, the relay behind it, the lease around it. `batch`: items in one transaction at most."""

    def __init__(
        self,
        definition: Definition,
        database: Database,
        log: EventLog,
        clock: Clock,
        *,
        lease_seconds: float,
        batch: int,
        park: ParkPolicy,
    ) -> None:
        self.definition = definition
        self.plan = plan_of(definition)
        self.schema = schema_of(definition)
        self.database = database
        self.log = log
        self.clock = clock
        self.batch = batch
        self.queue: deque[Command] = deque()
        self.wake = asyncio.Event()
        """There is work for the writer."""
        self.rearm = asyncio.Event()
        """`due` may have changed."""
        self.due: datetime | None = None
        self.lease = Lease(self.schema, database, definition.name, lease_seconds)
        self.inputs = Inputs(self.plan, log)
        self.relay = Relay(self.schema, database, log)
        self.watch = Watch(self.plan, log)
        self.writer = Writer(
            self.plan,
            self.schema,
            database,
            clock,
            lease=self.lease,
            relay=self.relay,
            inputs=self.inputs,
            policy=park,
        )
        self._entered = asyncio.Lock()
        self._created = False
        self._ensured = False

    @property
    def leads(self) -> bool:
        """This process is the writer, and its memory is loaded."""
        return self.writer.memory is not None

    @property
    def turning(self) -> bool:
        """A turn, a retry or a beat is under way."""
        return self._entered.locked()

    async def begin(self) -> bool:
        """Become the writer, unless another process is. Raises what is in the way."""
        if not self._created:
            await create(self.database, self.schema)
            self._created = True
        with suppress(LogUnavailable):
            await self.ensure_topics()
        await upgrade(self.definition, self.database, self.log)
        if not await self.lease.acquire():
            return False
        await seed(self.plan, self.schema, self.database, self.log, self.writer.writes)
        await self.relay.load()
        self.inputs.reset((await self.writer.load()).positions)
        self.lease.renewed = monotonic()
        self.due = self.writer.due()
        return True

    async def ensure_topics(self) -> None:
        """Create or check the topics, once. Raises LogUnavailable, TopicMisconfigured."""
        if not self._ensured:
            await self.log.ensure_topics([*self.plan.own, *self.plan.inputs])
            self._ensured = True

    async def turn(self, records: Sequence[Record] = ()) -> bool:
        """Carry out what is queued, and these records; False if nothing came of it.

        Raises DatabaseUnavailable, LeaseLost.
        """
        async with self._entered:
            items: list[Item] = [self.queue.popleft() for _ in range(min(len(self.queue), self.batch))]
            # What was read ahead of a halt is void: the partition is read again from there.
            halted = self.inputs.halted
            items += [Input(record) for record in records if (record.topic, record.partition) not in halted]
            done = await self.writer.process(items)
            self.due = self.writer.due()
            self.rearm.set()
            if self.writer.memory is not None:
                self.watch.progress(self.writer.memory.positions)
            return done

    async def retry(self, items: Sequence[Input]) -> None:
        """Carry out parked inputs, between two turns. Raises Unavailable, DatabaseUnavailable, LeaseLost."""
        async with self._entered:
            if not self.leads:
                raise Unavailable(NOT_THE_WRITER)
            await self.writer.process(items)

    async def beat(self) -> None:
        """Renew the lease. Raises DatabaseUnavailable, LeaseLost."""
        async with self._entered:
            self.lease.renewed = monotonic()
            await self.writer.beat()

    def is_due(self) -> bool:
        """Tell whether `settle` has something to do by the clock."""
        return self.due is not None and self.due <= self.clock.now()

    def dismiss(self, why: str = NOT_THE_WRITER) -> None:
        """Forget everything, and tell those who wait."""
        self.writer.drop()
        while self.queue:
            if not (command := self.queue.popleft()).answer.done():
                command.answer.set_exception(Unavailable(why))
