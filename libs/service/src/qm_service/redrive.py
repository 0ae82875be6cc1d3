"""Trying parked records again, with a cursor of its own: positions do not move, and live traffic goes on."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select

from qm_service.items import Input
from qm_service.park import parked_record
from qm_service.runtime import Runtime

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Redriven:
    """How many records were folded now, and how many still wait."""

    done: int
    waiting: int


async def redrive(
    runtime: Runtime, *, stream: str | None = None, wire: str | None = None, limit: int = 1_000_000
) -> Redriven:
    """Try parked records again, in the order of each stream, at most `limit`: those of one stream, of all streams where
    a fact of type `wire` is parked, or all. Raises Unavailable, DatabaseUnavailable."""
    cursor, done, tried = 0, 0, 0
    while tried < limit:
        query = _page(runtime, cursor, stream, wire).limit(min(_PAGE, limit - tried))
        async with runtime.database.read() as tx:
            rows = (await tx.execute(query)).all()
        if not rows:
            break
        cursor = rows[-1].id
        tried += len(rows)
        await runtime.retry([Input(parked_record(row), parked=row.id) for row in rows])
        async with runtime.database.read() as tx:
            parked = runtime.schema.parked.c.id
            left = await tx.execute(select(parked).where(parked.in_([row.id for row in rows])))
            done += len(rows) - len(left.all())
    return Redriven(done, tried - done)


def _page(runtime: Runtime, cursor: int, stream: str | None, wire: str | None) -> Select[Any]:
    table = runtime.schema.parked
    query = select(table).where(table.c.id > cursor).order_by(table.c.id)
    if stream is not None:
        query = query.where(table.c.stream == stream)
    if wire is not None:
        query = query.where(table.c.stream.in_(select(table.c.stream).where(table.c.type == wire)))
    return query
