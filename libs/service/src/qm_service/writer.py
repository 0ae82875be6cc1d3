"""The one who changes things: runs batches against memory and database until they are committed or void."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from qm_events import Event
from qm_service.batch import Batch
from qm_service.clock import Clock
from qm_service.commands import NOT_THE_WRITER, Outcome, Unavailable
from qm_service.database import Database, DatabaseUnavailable
from qm_service.inputs import Inputs
from qm_service.items import Changes, Command, Input, Item
from qm_service.lease import Lease, LeaseLost
from qm_service.memory import Memory
from qm_service.model import Context
from qm_service.park import ParkPolicy
from qm_service.plan import Plan
from qm_service.relay import Relay
from qm_service.schema import Schema
from qm_service.store import SqlEventStore
from qm_service.writes import RELAY, Writes, load_memory, still_parked

_log = logging.getLogger(__name__)

_NO_RULE = (DatabaseUnavailable, LeaseLost)
"""Failures for which no item is to blame."""
_CAPACITY = 20_000
"""Entries of each cache."""
_LATE = 1_000
"""Streams of which only the position has moved; when there are more, it is written."""


class Writer:
    """Owns the memory. Not to be entered twice at once."""

    def __init__(
        self,
        plan: Plan,
        schema: Schema,
        database: Database,
        clock: Clock,
        *,
        lease: Lease,
        relay: Relay,
        inputs: Inputs,
        policy: ParkPolicy,
    ) -> None:
        self.memory: Memory | None = None
        self.committed: list[Callable[[Sequence[Event[Any]]], None]] = []
        self.failure: str | None = None
        """What `settle` raised when it was last called; None when it went well."""
        self.unsettled = False
        """The last batch left something to settle: come again at once."""
        self.store = SqlEventStore(schema, database)
        self.writes = Writes(plan, schema, database, self.store)
        self._plan = plan
        self._schema = schema
        self._database = database
        self._clock = clock
        self._lease = lease
        self._relay = relay
        self._inputs = inputs
        self._policy = policy
        self._late = Changes()
        """Positions that are written with the next change, or with the next beat: most facts concern few services."""

    async def load(self) -> Memory:
        """Fill the memory from the database, if it is not. Raises DatabaseUnavailable."""
        if self.memory is None:
            memory = Memory(self._plan, self._schema, self.store, _CAPACITY)
            async with self._database.read() as tx:
                await load_memory(tx, memory)
            memory.positions |= self._late.positions
            memory.seen |= self._late.seen
            self.memory = memory
        return self.memory

    def drop(self) -> None:
        """Forget everything: another process may be the writer by the time of the next `load`."""
        self.memory, self._late = None, Changes()

    def context(self) -> Context:
        """Return what a decision would see now. Raises Unavailable."""
        if self.memory is None:
            raise Unavailable(NOT_THE_WRITER)
        return Context(self._clock.now(), self.memory.view, self.memory.index)

    def due(self) -> datetime | None:
        """Return when `settle` wants to run next."""
        if self.memory is None:
            return None
        try:
            return self._plan.definition.due(self.context())
        except Exception as error:
            self._blame(None, [], error)
            return None

    async def process(self, items: Sequence[Item], *, settle: bool = True) -> bool:
        """Carry out the items and settle; False if nothing came of it. Poison is set aside; the others are retried.

        Raises DatabaseUnavailable, LeaseLost or what else made it give up, after all callers were told: then the memory
        is void, and what was read from the log has to be read again.
        """
        items = list(items)
        try:
            while True:
                batch = Batch(await self.load(), self._database, self._clock.now(), self._policy)
                try:
                    changes = await batch.run(items, settle=settle)
                except _NO_RULE:
                    raise
                except Exception as error:
                    self.memory = None
                    if batch.current is None and not settle:
                        raise
                    settle = self._blame(batch.current, items, error) and settle
                else:
                    return await self._finish(items, changes, settle=settle)
        except BaseException as error:
            self._give_up(items, error)
            raise

    async def _finish(self, items: list[Item], changes: Changes, *, settle: bool) -> bool:
        try:
            await self._commit(changes)
        except _NO_RULE:
            raise
        except Exception as error:
            self.memory = None
            return await self._one_by_one(items, error)
        self._tell(changes)
        if settle:
            self.failure = None
        return changes.any() or bool(changes.answers)

    def _give_up(self, items: Sequence[Item], error: BaseException) -> None:
        self.memory = None
        for item in items:
            if isinstance(item, Command) and not item.answer.done():
                item.answer.set_exception(Unavailable(f"{type(error).__name__}: {error}"))

    def _blame(self, item: Item | None, items: list[Item], error: Exception) -> bool:
        """Take out what failed. False if it was `settle`: then the items go on without it."""
        if item is None:
            self.failure = f"settle: {type(error).__name__}: {error}"
            _log.error("settling failed", exc_info=error)
            return False
        if isinstance(item, Input):
            item.fail(error)
        else:
            items.remove(item)
            if not item.answer.done():
                item.answer.set_exception(error)
        return True

    async def _one_by_one(self, items: list[Item], error: Exception) -> bool:
        """The transaction failed, and nobody knows for whom: each item gets its own."""
        if len(items) == 1:
            if isinstance(items[0], Input) and items[0].error is not None:
                raise error
            self._blame(items[0], items, error)
            return await self.process(items, settle=False)
        if not items:
            return not self._blame(None, items, error)
        return any([await self.process([item], settle=False) for item in items])

    async def _commit(self, changes: Changes) -> None:
        self.unsettled = changes.unsettled
        if not changes.any():
            return
        late = Changes(seen=self._late.seen | changes.seen, positions=self._late.positions | changes.positions)
        if not changes.matters() and len(late.seen) < _LATE:
            self._late = late
            return
        changes.seen, changes.positions = late.seen, late.positions
        async with self._database.write() as tx:
            await self._lease.fence(tx)
            await self.writes.changes(tx, changes)
            cursor = self._relay.cursor
            if cursor != self._relay.saved:
                await self.writes.cursor(tx, RELAY, cursor)
            freed = set(changes.unparked.values())
            freed -= await still_parked(tx, self._schema, list(freed))
        self._relay.saved, self._late = cursor, Changes()
        if self.memory is not None:
            self.memory.parked -= freed
            self.memory.shrink()

    def _tell(self, changes: Changes) -> None:
        self._inputs.halt(changes.halted)
        for command, result in changes.answers:
            if command.answer.done():
                continue
            if isinstance(result, Outcome):
                command.answer.set_result(result)
            else:
                command.answer.set_exception(result)
        if changes.events:
            self._relay.notify()
            for listener in self.committed:
                try:
                    listener(changes.events)
                except Exception:
                    _log.exception("a listener failed")

    async def beat(self) -> None:
        """Renew the lease, and save where relay and inputs are. Raises DatabaseUnavailable, LeaseLost."""
        async with self._database.write() as tx:
            await self._lease.fence(tx)
            await self.writes.changes(tx, self._late)
            cursor = self._relay.cursor
            if cursor != self._relay.saved:
                await self.writes.cursor(tx, RELAY, cursor)
        self._relay.saved, self._late = cursor, Changes()
