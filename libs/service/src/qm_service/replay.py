"""A service's database, made again from the topics; and the proof that it is the same.

Own topics become the event table and its documents. Topics of others are folded, without reactions, up to the last
input that an own fact names; the runtime takes over from there, and its rules decide nothing twice. What is on no topic
is not in a rebuilt database: parked records, effects, secrets.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_events import Event, decode
from qm_service.attributes import idempotency_row
from qm_service.database import Database
from qm_service.log import EventLog, Position, Record, first_positions
from qm_service.model import Definition
from qm_service.refold import Refold, first_parked, fresh, last_cursor, records_until
from qm_service.schema import Schema, create, schema_of, table_name
from qm_service.store import row_of
from qm_service.writes import RELAY, REPLAY, load_discarded, load_positions

_RELAY_SECONDS = 30.0


class NotEmpty(Exception):
    """The database to rebuild into has facts: replay needs an empty one."""


class LogBehind(Exception):
    """The log does not yet have all facts of the live database: is its relay running?"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hashes of the live and of the rebuilt state, by name."""

    live: Mapping[str, str]
    fresh: Mapping[str, str]

    @property
    def differing(self) -> Sequence[str]:
        """Names of what is not the same."""
        return sorted(name for name in {**self.live, **self.fresh} if self.live.get(name) != self.fresh.get(name))

    @property
    def equal(self) -> bool:
        """All is the same, byte for byte."""
        return not self.differing


async def replay(definition: Definition, database: Database, log: EventLog) -> None:
    """Rebuild an empty database from the topics as they are now.

    Raises NotEmpty, BrokenHistory, LogUnavailable, DatabaseUnavailable; after one of these, empty the database again.
    """
    refold = await _started(definition, database)
    recovered: Position = {}
    ends = await log.ends([topic.name for topic in refold.plan.own])
    await _own(refold, log, ends, recovered, {})
    # What nothing reacts to decides nothing either: it is folded to its end, so that `settle` sees all of it.
    reacted = {fact.topic for fact in definition.reactions}
    folded = await log.ends([topic.name for topic in refold.inputs if topic.name not in reacted])
    await _inputs(refold, log, first_positions(refold.inputs) | recovered | folded, {})
    await _finish(refold)


async def verify(definition: Definition, live: Database, fresh: Database, log: EventLog) -> Comparison:
    """Rebuild into the empty database `fresh` what `live` is now, and compare. The live service may go on meanwhile.

    Raises what `replay` raises, and LogBehind.
    """
    schema = schema_of(definition)
    async with live.snapshot() as tx:
        positions = await load_positions(tx, schema)
        heads = await _heads(tx, schema)
        hashes = await _hashes(tx, schema, definition)
        waiting = await first_parked(tx, schema)
        discarded = await load_discarded(tx, schema)
    refold = await _started(definition, fresh)
    refold.discarded = discarded
    await _own_upto(refold, log, heads)
    await _inputs(refold, log, positions, waiting)
    await _finish(refold)
    return Comparison(hashes, await state_hash(fresh, definition))


async def state_hash(database: Database, definition: Definition) -> dict[str, str]:
    """Return the SHA-256 of the facts and of each projection: equal for equal state, whatever way it came about."""
    async with database.snapshot() as tx:
        return await _hashes(tx, schema_of(definition), definition)


async def _started(definition: Definition, database: Database) -> Refold:
    refold = Refold(definition, database)
    await create(database, schema_of(definition))
    async with database.read() as tx:
        if (await last_cursor(tx, refold)) != (0, 0) or await load_positions(tx, refold.schema):
            raise NotEmpty(f"the database of {definition.name} has facts already")
        await refold.memory.load_residents(tx)
    async with database.write() as tx:
        await refold.writes.cursor(tx, REPLAY, (0, 0))
    return refold


async def _own(
    refold: Refold,
    log: EventLog,
    ends: Position,
    recovered: Position,
    versions: dict[str, int],
    upto: dict[str, int] | None = None,
) -> Position:
    """Fill the event table; collect in `recovered` what to read next of each input."""
    position: Position = first_positions(refold.plan.own)
    async for records in records_until(log, position, ends):
        wanted = [r for r in fresh(records, versions) if upto is None or r.version <= upto.get(r.subject, 0)]
        if not wanted:
            continue
        events = [decode(record.value, record.type) for record in wanted]
        async with refold.database.write() as tx:
            rows = [_row(event, record) for event, record in zip(events, wanted, strict=True)]
            await refold.store.insert(tx, rows)
            await refold.writes.idempotency(tx, _idempotency(events))
            await refold.own(tx, events)
        _recover(events, recovered)
    return position


def _row(event: Event[Any], record: Record) -> dict[str, Any]:
    return row_of(event, record.value) | {"topic": record.topic}


async def _own_upto(refold: Refold, log: EventLog, heads: dict[str, int]) -> None:
    """Fill the event table with what the live one had; the relay may need a moment to publish the last of it."""
    names = [topic.name for topic in refold.plan.own]
    versions: dict[str, int] = {}
    deadline = monotonic() + _RELAY_SECONDS
    ends = await log.ends(names)
    while not await _reached(log, ends, heads, refold):
        if monotonic() > deadline:
            raise LogBehind(f"the log lacks facts of {refold.plan.definition.name}")
        await asyncio.sleep(0.1)
        ends = await log.ends(names)
    await _own(refold, log, ends, {}, versions, heads)


async def _reached(log: EventLog, ends: Position, heads: dict[str, int], refold: Refold) -> bool:
    versions: dict[str, int] = {}
    async for records in records_until(log, first_positions(refold.plan.own), ends):
        fresh(records, versions)
    return all(versions.get(stream, 0) >= version for stream, version in heads.items())


async def _inputs(refold: Refold, log: EventLog, until: Position, waiting: Mapping[str, int]) -> None:
    versions: dict[str, int] = {}
    position = first_positions(refold.inputs)
    async for records in records_until(log, position, until):
        wanted = [r for r in fresh(records, versions) if r.version < waiting.get(r.subject, r.version + 1)]
        async with refold.database.write() as tx:
            folded = await refold.foreign(tx, wanted)
            await refold.writes.park(tx, folded.parked)
            await refold.writes.seen(tx, folded.seen)
    async with refold.database.write() as tx:
        await refold.writes.positions(tx, {place: until.get(place, 0) for place in position})


async def _finish(refold: Refold) -> None:
    async with refold.database.write() as tx:
        await refold.writes.built(tx, refold.plan.definition.projections)
        # All of it came from the log: nothing is to be published again.
        await refold.writes.cursor(tx, RELAY, await last_cursor(tx, refold))
        cursors = refold.schema.cursors
        await tx.execute(cursors.delete().where(cursors.c.name == REPLAY))


def _idempotency(events: Sequence[Event[Any]]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.idempotency is not None:
            row = idempotency_row(event.idempotency, event.request, event.subject, event.version, event.version)
            rows.setdefault(event.idempotency, row)["last_version"] = event.version
    return list(rows.values())


def _recover(events: Sequence[Event[Any]], recovered: Position) -> None:
    for event in events:
        if event.input is not None:
            topic, partition, offset = event.input.rsplit("/", 2)
            place = (topic, int(partition))
            recovered[place] = max(recovered.get(place, 0), int(offset) + 1)


async def _heads(tx: AsyncConnection, schema: Schema) -> dict[str, int]:
    c = schema.events.c
    rows = await tx.execute(select(c.stream, c.version).order_by(c.stream, c.version))
    return {stream: version for stream, version in rows}


async def _hashes(tx: AsyncConnection, schema: Schema, definition: Definition) -> dict[str, str]:
    events = schema.events.c
    facts = select(events.stream, events.version, events.value).order_by(events.stream, events.version)
    found = {"events": await _digest(tx, facts)}
    keyed = schema.idempotency.c
    found["idempotency"] = await _digest(tx, select(*keyed).order_by(keyed.key))
    for projection in definition.projections:
        table = schema.documents[projection.name]
        found[table_name(projection)] = await _digest(tx, select(*table.c).order_by(table.c.key), documents=True)
    return found


async def _digest(tx: AsyncConnection, query: Any, *, documents: bool = False) -> str:
    digest = hashlib.sha256()
    async for row in await tx.stream(query):
        values = [value.decode() if isinstance(value, bytes) else value for value in row]
        if documents:
            # The order of keys within a document is the only thing that the order of facts may change.
            values[1] = orjson.dumps(orjson.loads(values[1]), option=orjson.OPT_SORT_KEYS).decode()
        digest.update(orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE))
    return digest.hexdigest()
