"""Folding without deciding: facts to documents in chunks. What replays and rebuilds are made of.

There is no decider, no reaction and no reactor in here, so a replay cannot repeat an effect or decide anew.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_events import Event, decode
from qm_service.database import Database
from qm_service.log import EventLog, Position, Record
from qm_service.memory import Key, Memory
from qm_service.model import Definition
from qm_service.park import WAITS, parked_row
from qm_service.plan import plan_of
from qm_service.schema import Schema, schema_of
from qm_service.store import Cursor, SqlEventStore
from qm_service.writes import Writes

CHUNK = 1_000
"""Facts in one transaction."""
_CAPACITY = 20_000
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""When something was parked by a replay, which looks at no clock."""
_PATIENCE_SECONDS = 5.0


class BrokenHistory(Exception):
    """A stream on the log has a hole, or an own fact cannot be folded: nothing can be rebuilt from it."""


@dataclass(slots=True)
class Folded:
    """What came of some records: the last folded version of each stream, and rows of those that have to wait."""

    seen: dict[str, int] = field(default_factory=dict)
    parked: list[dict[str, Any]] = field(default_factory=list)


class Refold:
    """The documents of a definition, as far as they are folded, and the tables that they go to."""

    def __init__(self, definition: Definition, database: Database) -> None:
        bare = replace(definition, reactions={}, new_index=None)
        self.inputs = plan_of(definition).inputs
        """What the live writer reads: also topics that only reactions need."""
        self.plan = plan_of(bare)
        self.schema = schema_of(bare)
        self.database = database
        self.store = SqlEventStore(self.schema, database)
        self.writes = Writes(self.plan, self.schema, database, self.store)
        self.memory = Memory(self.plan, self.schema, self.store, _CAPACITY)
        self.discarded: set[tuple[str, int]] = set()
        """Stream and version of foreign facts that are not folded."""

    async def own(self, tx: AsyncConnection, events: Sequence[Event[Any]]) -> None:
        """Fold own facts. Raises BrokenHistory."""
        changed: dict[Key, Any | None] = {}
        await self._load(tx, events)
        for event in events:
            try:
                self.memory.fold(event, self.memory.targets(event), changed)
            except Exception as error:
                raise BrokenHistory(f"{event.subject} version {event.version}: {error}") from error
        await self._write(tx, changed)

    async def foreign(self, tx: AsyncConnection, records: Sequence[Record]) -> Folded:
        """Fold records that are neither duplicates nor out of order; one that cannot be folded is left to be parked."""
        changed: dict[Key, Any | None] = {}
        folded = Folded()
        opened = {record.position: _opened(record) for record in records if self.plan.handles(record.type)}
        await self._load(tx, [event for event in opened.values() if isinstance(event, Event)])
        for record in records:
            error = self._tried(record, opened.get(record.position), changed)
            if error is None:
                folded.seen[record.subject] = record.version
            else:
                self.memory.parked.add(record.subject)
                folded.parked.append(parked_row(record, error, _NEVER))
        await self._write(tx, changed)
        return folded

    def _tried(self, record: Record, event: Event[Any] | str | None, changed: dict[Key, Any | None]) -> str | None:
        """Fold one; return what is wrong with it."""
        if (record.subject, record.version) in self.discarded:
            return None
        if record.subject in self.memory.parked:
            return WAITS
        if not isinstance(event, Event):
            return event
        try:
            self.memory.fold(event, self.memory.targets(event), changed)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    async def _load(self, tx: AsyncConnection, events: Sequence[Event[Any]]) -> None:
        targets = (target for event in events for target in self.memory.targets(event))
        await self.memory.load_documents(tx, [(name, key) for name, key, _ in targets])

    async def _write(self, tx: AsyncConnection, changed: dict[Key, Any | None]) -> None:
        await self.writes.documents(tx, changed)
        self.memory.shrink()

    async def stored(self, tx: AsyncConnection, after: Cursor, limit: int = CHUNK) -> tuple[list[Event[Any]], Cursor]:
        """Return the next own facts of the event table, and the place behind them."""
        found = await self.store.after(tx, after, limit)
        events = [decode(one.message.value, one.message.type) for one in found if self.plan.handles(one.message.type)]
        return events, found[-1].cursor if found else after


def _opened(record: Record) -> Event[Any] | str:
    try:
        return decode(record.value, record.type)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def fresh(records: Sequence[Record], versions: dict[str, int]) -> list[Record]:
    """Return the records that continue their streams; `versions` is moved along. Raises BrokenHistory for a hole."""
    found: list[Record] = []
    for record in records:
        last = versions.get(record.subject, 0)
        if record.version > last + 1:
            raise BrokenHistory(
                f"{record.position}: version {record.version} of {record.subject} follows version {last}"
            )
        if record.version > last:
            versions[record.subject] = record.version
            found.append(record)
    return found


async def first_parked(tx: AsyncConnection, schema: Schema) -> dict[str, int]:
    """Return the first parked version of each stream that waits."""
    c = schema.parked.c
    rows = await tx.execute(select(c.stream, func.min(c.version)).group_by(c.stream))
    return {stream: version for stream, version in rows}


async def records_until(log: EventLog, position: Position, ends: Position) -> AsyncIterator[list[Record]]:
    """Yield the records from `position`, which is moved along, up to `ends`. Raises LogUnavailable, PositionLost."""
    while left := {place: offset for place, offset in position.items() if offset < ends.get(place, 0)}:
        records = await log.read(left, CHUNK, _PATIENCE_SECONDS)
        for record in records:
            place = (record.topic, record.partition)
            position[place] = max(position[place], record.offset + 1)
        if not records:
            # Before the end there may be offsets that no record has.
            position |= {place: ends[place] for place in left}
        yield [record for record in records if record.offset < ends[record.topic, record.partition]]


async def last_cursor(tx: AsyncConnection, refold: Refold) -> Cursor:
    """Return the place of the last own fact."""
    c = refold.schema.events.c
    row = (await tx.execute(select(c.xid, c.id).order_by(c.xid.desc(), c.id.desc()).limit(1))).first()
    return (row.xid, row.id) if row else (0, 0)
