"""The one transaction of a batch: facts, documents, positions and all the rest, or nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_service.database import Database
from qm_service.items import Changes
from qm_service.log import Position
from qm_service.memory import Key, Memory
from qm_service.model import Projection
from qm_service.plan import Plan
from qm_service.schema import Schema, column_value, insert_of, upsert
from qm_service.store import Cursor, SqlEventStore, chunks

RELAY = "relay"
"""Name of the relay's place in the event table."""
REPLAY = "replay"
"""Name of the mark of a database that is being rebuilt, and that is worth nothing until that is done."""


class Writes:
    """The statements, made once."""

    def __init__(self, plan: Plan, schema: Schema, database: Database, store: SqlEventStore) -> None:
        self._plan = plan
        self._schema = schema
        self._store = store
        self._seen = upsert(database, schema.seen)
        self._positions = upsert(database, schema.positions)
        self._cursors = upsert(database, schema.cursors)
        # A rebuild meets the facts of one call in several chunks: the first version stays.
        keyed = insert_of(database, schema.idempotency)
        last = {"last_version": keyed.excluded.last_version}
        self._idempotency = keyed.on_conflict_do_update(index_elements=["key"], set_=last)
        self._built = upsert(database, schema.built)
        self._park = insert_of(database, schema.parked).on_conflict_do_nothing(index_elements=["stream", "version"])
        parked = schema.parked
        self._fail = parked.update().where(parked.c.id == bindparam("row")).values(error=bindparam("why"))
        self._documents = {name: upsert(database, table) for name, table in schema.documents.items()}

    async def changes(self, tx: AsyncConnection, changes: Changes) -> None:
        """Write what a batch came to."""
        if changes.rows:
            await self._store.insert(tx, changes.rows)
        await self.documents(tx, changes.documents)
        await self.seen(tx, changes.seen)
        await self.positions(tx, changes.positions)
        await self.idempotency(tx, changes.idempotency)
        await self.park(tx, changes.parked)
        for some in chunks(list(changes.unparked)):
            await tx.execute(delete(self._schema.parked).where(self._schema.parked.c.id.in_(some)))
        if changes.failed:
            await tx.execute(self._fail, changes.failed)
        if changes.discarded:
            await tx.execute(self._schema.discarded.insert(), changes.discarded)

    async def documents(self, tx: AsyncConnection, documents: dict[Key, Any | None]) -> None:
        """Write the last state of each changed document; delete the rows of those that are gone."""
        rows: dict[str, list[dict[str, Any]]] = {}
        gone: dict[str, list[str]] = {}
        for (name, key), document in documents.items():
            if document is None:
                gone.setdefault(name, []).append(key)
            else:
                rows.setdefault(name, []).append(self._row(name, key, document))
        for name, some in rows.items():
            await tx.execute(self._documents[name], some)
        for name, keys in gone.items():
            table = self._schema.documents[name]
            for chunk in chunks(keys):
                await tx.execute(delete(table).where(table.c.key.in_(chunk)))

    def _row(self, name: str, key: str, document: Any) -> dict[str, Any]:
        projection = self._plan.projections[name]
        return {
            "key": key,
            "doc": self._plan.adapters[name].dump_json(document).decode(),
            "resident": projection.resident is not None and projection.resident(document),
            **{column: column_value(of.type, of.of(document)) for column, of in projection.columns.items()},
        }

    async def positions(self, tx: AsyncConnection, positions: Position, consumer: str = "") -> None:
        """Move the positions of a consumer."""
        if positions:
            rows = [
                {"consumer": consumer, "topic": topic, "partition": partition, "next_offset": offset}
                for (topic, partition), offset in positions.items()
            ]
            await tx.execute(self._positions, rows)

    async def seen(self, tx: AsyncConnection, seen: Mapping[str, int]) -> None:
        """Remember the last folded versions of foreign streams."""
        if seen:
            await tx.execute(self._seen, [{"stream": stream, "version": version} for stream, version in seen.items()])

    async def idempotency(self, tx: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
        """Remember what keyed calls led to."""
        if rows:
            await tx.execute(self._idempotency, rows)

    async def park(self, tx: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
        """Set records aside; one that is there already stays as it is."""
        if rows:
            await tx.execute(self._park, rows)

    async def built(self, tx: AsyncConnection, projections: Iterable[Projection[Any]]) -> None:
        """Say that these versions of projections are in step with the writer."""
        if rows := [{"name": projection.name, "version": projection.version} for projection in projections]:
            await tx.execute(self._built, rows)

    async def cursor(self, tx: AsyncConnection, name: str, cursor: Cursor) -> None:
        """Remember a place in the event table."""
        await tx.execute(self._cursors, [{"name": name, "xid": cursor[0], "id": cursor[1]}])


async def load_cursor(tx: AsyncConnection, schema: Schema, name: str) -> Cursor | None:
    """Return a remembered place, None where there is none."""
    table = schema.cursors
    row = (await tx.execute(select(table.c.xid, table.c.id).where(table.c.name == name))).first()
    return (row.xid, row.id) if row else None


async def load_positions(tx: AsyncConnection, schema: Schema, consumer: str = "") -> Position:
    """Return the positions of a consumer; empty for one that never ran."""
    table = schema.positions
    query = select(table.c.topic, table.c.partition, table.c.next_offset).where(table.c.consumer == consumer)
    return {(topic, partition): offset for topic, partition, offset in await tx.execute(query)}


async def load_parked(tx: AsyncConnection, schema: Schema) -> set[str]:
    """Return the streams of which something is parked."""
    return {stream for (stream,) in await tx.execute(select(schema.parked.c.stream).distinct())}


async def still_parked(tx: AsyncConnection, schema: Schema, streams: Sequence[str]) -> set[str]:
    """Return those of the streams of which something is parked."""
    found: set[str] = set()
    for some in chunks(streams):
        query = select(schema.parked.c.stream).where(schema.parked.c.stream.in_(some)).distinct()
        found |= {stream for (stream,) in await tx.execute(query)}
    return found


async def load_discarded(tx: AsyncConnection, schema: Schema) -> set[tuple[str, int]]:
    """Return stream and version of what an operator had skipped for good."""
    c = schema.discarded.c
    return {(stream, version) for stream, version in await tx.execute(select(c.stream, c.version))}


async def load_memory(tx: AsyncConnection, memory: Memory) -> None:
    """Fill an empty memory."""
    memory.positions = await load_positions(tx, memory.schema)
    memory.parked = await load_parked(tx, memory.schema)
    await memory.load_residents(tx)


async def load_built(tx: AsyncConnection, schema: Schema) -> dict[str, int]:
    """Return which version of each projection is in step with the writer."""
    return {name: version for name, version in await tx.execute(select(schema.built.c.name, schema.built.c.version))}
