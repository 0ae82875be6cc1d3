"""One projection, built anew beside the live one: the table of the new version catches up in chunks while the old one
serves; then, in one transaction that holds the writer off, the rest is folded and the new one takes its place."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_service.database import Database
from qm_service.lease import Lease
from qm_service.log import EventLog, Position, Record, first_positions
from qm_service.model import Definition, Projection, no_acts
from qm_service.refold import CHUNK, BrokenHistory, Refold, first_parked, fresh, records_until
from qm_service.schema import create, schema_of, table_name
from qm_service.store import Cursor
from qm_service.writes import load_built, load_discarded, load_positions

_LOG = logging.getLogger(__name__)
_ROUNDS = 50
_BUILDER_SECONDS = 10.0


class Outdated(Exception):
    """The database was built by a newer release. To go back on purpose, rebuild the projection with this one first."""


class Busy(Exception):
    """Another process builds this projection."""


async def upgrade(definition: Definition, database: Database, log: EventLog) -> None:
    """Build what this release has newer than the database. Raises Outdated, and what `rebuild` raises."""
    async with database.read() as tx:
        built = await load_built(tx, schema_of(definition))
    if not built:
        return
    for projection in definition.projections:
        if (there := built.get(projection.name, 0)) > projection.version:
            raise Outdated(f"{table_name(projection)}: the database has version {there}")
    for projection in definition.projections:
        if built.get(projection.name, 0) < projection.version:
            await rebuild(definition, database, log, projection.name)


async def rebuild(definition: Definition, database: Database, log: EventLog, name: str) -> None:
    """Build the version of a projection that `definition` has, and put it in place; also to go back to an older one.

    The writer that runs meanwhile is held off for the last chunk, and must take its lease again afterwards: one whose
    release has an older version cannot. The version that is in place is built in one transaction, with no table beside.
    Raises Busy, BrokenHistory, DatabaseUnavailable, LogUnavailable.
    """
    build = _Build(definition, database, log, name)
    if not await build.begin():
        for _ in range(_ROUNDS):
            if await build.round() < CHUNK:
                break
    await build.swap()
    _LOG.info("%s is in place", table_name(build.projection))


class _Build:
    def __init__(self, definition: Definition, database: Database, log: EventLog, name: str) -> None:
        self.projection: Projection[Any] = next(p for p in definition.projections if p.name == name)
        self._definition = definition
        self._database = database
        self._log = log
        self._refold = Refold(replace(definition, projections=(self.projection,), settle=no_acts), database)
        self._inputs = self._refold.plan.inputs
        self._cursor: Cursor = (0, 0)
        self._position: Position = first_positions(self._inputs)
        self._versions: dict[str, int] = {}
        self._skipped: Sequence[Record] = ()
        self._in_place = False
        self._lease = Lease(
            self._refold.schema, database, f"{definition.name} {table_name(self.projection)}", _BUILDER_SECONDS
        )

    async def begin(self) -> bool:
        """Take the right to build. True if this version is in place: then `swap` has to do all."""
        await create(self._database, self._refold.schema)
        if not await self._lease.acquire():
            raise Busy(f"another process builds {table_name(self.projection)}")
        async with self._database.write() as tx:
            await self._lease.fence(tx)
            built = await load_built(tx, self._refold.schema)
            self._in_place = built.get(self.projection.name) == self.projection.version
            if not self._in_place:
                await self._clear(tx)
        return self._in_place

    async def _clear(self, tx: AsyncConnection) -> None:
        await tx.execute(delete(self._refold.schema.documents[self.projection.name]))
        await self._refold.memory.load_residents(tx)

    async def round(self) -> int:
        """Fold what there is now, in chunks; return how much it was."""
        count = 0
        while events := await self._own_chunk():
            count += events
        async with self._database.read() as tx:
            until = await load_positions(tx, self._refold.schema)
        async for records in records_until(self._log, self._position, self._bounds(until)):
            async with self._database.write() as tx:
                await self._lease.fence(tx)
                await self._foreign(tx, records)
            count += len(records)
        return count

    async def _own_chunk(self) -> int:
        async with self._database.read() as tx:
            if not await self._refold.store.after(tx, self._cursor, 1):
                return 0
        async with self._database.write() as tx:
            await self._lease.fence(tx)
            return await self._own(tx)

    async def _own(self, tx: AsyncConnection) -> int:
        events, cursor = await self._refold.stored(tx, self._cursor)
        moved = cursor != self._cursor
        self._cursor = cursor
        await self._refold.own(tx, events)
        return max(len(events), int(moved))

    async def _foreign(self, tx: AsyncConnection, records: Sequence[Record]) -> None:
        # What the live writer has parked is not folded here either, until somebody has it tried again there.
        waiting = await first_parked(tx, self._refold.schema)
        self._refold.discarded = await load_discarded(tx, self._refold.schema)
        ready, self._skipped = _split([*self._skipped, *fresh(records, self._versions)], waiting)
        folded = await self._refold.foreign(tx, ready)
        if folded.parked:
            row = folded.parked[0]
            raise BrokenHistory(f"version {row['version']} of {row['stream']}: {row['error']}")

    def _bounds(self, positions: Position) -> Position:
        return {place: positions.get(place, 0) for place in self._position}

    async def swap(self) -> None:
        """Fold the rest while no other transaction of the writer can come in between, and take its place."""
        schema = self._refold.schema
        async with self._database.write() as tx:
            await self._lease.fence(tx)
            service = schema.lease.c.service == self._definition.name
            await tx.execute(schema.lease.update().where(service).values(epoch=schema.lease.c.epoch + 1, holder=""))
            if self._in_place:
                await self._clear(tx)
            while await self._own(tx):
                pass
            until = await load_positions(tx, schema)
            async for records in records_until(self._log, self._position, self._bounds(until)):
                await self._foreign(tx, records)
            await self._foreign(tx, ())
            await self._refold.writes.built(tx, [self.projection])
        await self._lease.release()


def _split(records: Sequence[Record], waiting: Mapping[str, int]) -> tuple[list[Record], list[Record]]:
    ready = [record for record in records if record.version < waiting.get(record.subject, record.version + 1)]
    return ready, [record for record in records if record.version >= waiting.get(record.subject, record.version + 1)]
