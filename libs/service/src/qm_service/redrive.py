"""Trying parked records again, with a cursor of its own: positions do not move, and live traffic goes on.

An operator asks from anywhere, through the database (`ask`); the writer, which alone may do it, finds that (`serve`).
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Select, delete, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_service.database import Database
from qm_service.items import Input
from qm_service.park import parked_record
from qm_service.schema import Schema, upsert

_log = logging.getLogger(__name__)

_PAGE = 500
_ASKED = "redrive"


class Retries(Protocol):
    """What can carry out parked records: an engine or a runtime."""

    @property
    def database(self) -> Database:
        """Where they are."""

    @property
    def schema(self) -> Schema:
        """Its tables."""

    async def retry(self, items: Sequence[Input]) -> None:
        """Carry them out. Raises Unavailable, DatabaseUnavailable, LeaseLost."""


@dataclass(frozen=True, slots=True)
class Which:
    """Parked records: of one stream, of all streams where a fact of type `wire` is parked, or (both None) all."""

    stream: str | None = None
    wire: str | None = None
    discard: int | None = None
    """The version of `stream` that is not tried but skipped for good, so that the later ones can be."""

    def condition(self, schema: Schema) -> ColumnElement[bool]:
        """Return what is true of the rows."""
        parked = schema.parked.c
        if self.stream is not None:
            return parked.stream == self.stream
        if self.wire is not None:
            return parked.stream.in_(select(parked.stream).where(parked.type == self.wire))
        return true()


@dataclass(frozen=True, slots=True)
class Redriven:
    """How many records were folded now, and how many of those that were tried still wait."""

    done: int
    waiting: int


async def redrive(runtime: Retries, which: Which = Which(), *, limit: int = 1_000_000) -> Redriven:
    """Try parked records again, in the order of each stream, at most `limit`.

    Raises Unavailable, DatabaseUnavailable, LeaseLost.
    """
    cursor, done, tried = 0, 0, 0
    while tried < limit and (rows := await _page(runtime, which, cursor, min(_PAGE, limit - tried))):
        cursor = rows[-1].id
        tried += len(rows)
        done += await _retry(runtime, which, rows)
    return Redriven(done, tried - done)


async def _page(runtime: Retries, which: Which, after: int, limit: int) -> Sequence[Any]:
    table = runtime.schema.parked
    query: Select[Any] = select(table).where(table.c.id > after, which.condition(runtime.schema))
    async with runtime.database.read() as tx:
        rows: Sequence[Any] = (await tx.execute(query.order_by(table.c.id).limit(limit))).all()
    return rows


async def _retry(runtime: Retries, which: Which, rows: Sequence[Any]) -> int:
    """Carry out a page; return how many records of it do not wait any more."""
    items = [Input(parked_record(row), parked=row.id, discard=row.version == which.discard) for row in rows]
    await runtime.retry(items)
    async with runtime.database.read() as tx:
        parked = runtime.schema.parked.c.id
        rows_left = await tx.execute(select(parked).where(parked.in_([row.id for row in rows])))
        left = {id_ for (id_,) in rows_left}
    for item, row in zip(items, rows, strict=True):
        if item.discard and row.id not in left:
            place = f"{item.record.position}, {row.type}, version {row.version} of {row.stream}"
            _log.warning("an operator discarded %s, which had failed with: %s", place, row.error)
    return len(rows) - len(left)


async def ask(database: Database, schema: Schema, which: Which) -> int:
    """Ask the writer to try records again; return how many that will be. Raises DatabaseUnavailable."""
    async with database.write() as tx:
        count = select(func.count()).select_from(schema.parked).where(which.condition(schema))
        asked: int = (await tx.execute(count)).scalar_one()
        if asked:
            await _remember(tx, database, schema, which, 0)
    return asked


async def serve(runtime: Retries) -> None:
    """Do what was asked for, a page after the other; one that was begun is gone on with. Raises as `redrive`."""
    for which, after in await _asked(runtime):
        cursor = after
        while rows := await _page(runtime, which, cursor, _PAGE):
            await _retry(runtime, which, rows)
            cursor = rows[-1].id
            async with runtime.database.write() as tx:
                await _remember(tx, runtime.database, runtime.schema, which, cursor)
        async with runtime.database.write() as tx:
            cursors = runtime.schema.cursors
            await tx.execute(delete(cursors).where(cursors.c.name == _name(which)))


async def _asked(runtime: Retries) -> list[tuple[Which, int]]:
    cursors = runtime.schema.cursors.c
    async with runtime.database.read() as tx:
        rows = await tx.execute(select(cursors.name, cursors.id).where(cursors.name.startswith(_ASKED)))
        return [(_which(name), id_) for name, id_ in rows]


async def _remember(tx: AsyncConnection, database: Database, schema: Schema, which: Which, cursor: int) -> None:
    await tx.execute(upsert(database, schema.cursors), [{"name": _name(which), "xid": 0, "id": cursor}])


def _name(which: Which) -> str:
    return f"{_ASKED} {json.dumps(astuple(which))}"


def _which(name: str) -> Which:
    return Which(*json.loads(name.removeprefix(_ASKED)))
