"""Reading documents by SQL: what queries and lists are answered from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, select, tuple_

from qm_service.commands import Unavailable
from qm_service.database import Database
from qm_service.plan import Plan
from qm_service.schema import Schema, column_value
from qm_service.store import chunks


@dataclass(frozen=True, slots=True)
class Between:
    """A half-open span of a column, [low, high); None is open."""

    low: Any = None
    high: Any = None


class Reader:
    """The documents as of the last commit. Calls raise DatabaseUnavailable, and Unavailable while a table is built."""

    def __init__(self, plan: Plan, schema: Schema, database: Database) -> None:
        self._plan = plan
        self._schema = schema
        self._database = database

    async def get(self, projection: str, key: str) -> Any | None:
        """Return one document, or None."""
        return (await self.many(projection, [key])).get(key)

    async def many(self, projection: str, keys: Sequence[str]) -> dict[str, Any]:
        """Return the documents that exist, by key."""
        table, adapter = self._schema.documents[projection], self._plan.adapters[projection]
        found: dict[str, Any] = {}
        for some in chunks(list(dict.fromkeys(keys))):
            rows = await self._rows(projection, select(table.c.key, table.c.doc).where(table.c.key.in_(some)))
            found |= {key: adapter.validate_json(raw) for key, raw in rows}
        return found

    async def page(
        self,
        projection: str,
        where: Mapping[str, Any] | None = None,
        order: Sequence[str] = (),
        *,
        descending: bool = False,
        after: Sequence[Any] | None = None,
        limit: int = 50,
    ) -> list[tuple[str, Any]]:
        """Return (key, document) in the order of `order`, then of the key, all ascending or all descending.

        `where`: column -> a value, a sequence of values, or a `Between`. `after`: the `place` of the last one before.
        """
        table, adapter = self._schema.documents[projection], self._plan.adapters[projection]
        query = select(table.c.key, table.c.doc)
        for name, value in (where or {}).items():
            query = query.where(self._condition(projection, name, value))
        columns = [*(table.c[name] for name in order), table.c.key]
        if after is not None:
            place = tuple_(*self._values(projection, order, after), types=[column.type for column in columns])
            query = query.where(tuple_(*columns) < place if descending else tuple_(*columns) > place)
        query = query.order_by(*(column.desc() if descending else column for column in columns))
        return [(key, adapter.validate_json(raw)) for key, raw in await self._rows(projection, query.limit(limit))]

    async def _rows(self, projection: str, query: Select[Any]) -> Sequence[Any]:
        """Run a query that sees nothing of a table that is being built or is out of date."""
        built, version = self._schema.built.c, self._plan.projections[projection].version
        in_place = select(built.version).where(built.name == projection, built.version == version)
        async with self._database.read() as tx:
            rows: Sequence[Any] = (await tx.execute(query.where(in_place.exists()))).all()
            if rows:
                return rows
            if (await tx.execute(in_place)).first() is None:
                raise Unavailable(f"{projection} version {version} is not in place")
            # It may have come into place between the two looks.
            rows = (await tx.execute(query.where(in_place.exists()))).all()
            return rows

    def place(self, projection: str, order: Sequence[str], key: str, document: Any) -> tuple[Any, ...]:
        """Return where a document stands in an order: the `after` of the page that follows it."""
        columns = self._plan.projections[projection].columns
        return (*(columns[name].of(document) for name in order), key)

    def _condition(self, projection: str, name: str, value: Any) -> ColumnElement[bool]:
        column = self._schema.documents[projection].c[name]
        type_ = self._plan.projections[projection].columns[name].type
        if isinstance(value, Between):
            low = [] if value.low is None else [column >= value.low]
            return and_(True, *low, *([] if value.high is None else [column < value.high]))
        if isinstance(value, Sequence | frozenset | set) and not isinstance(value, str):
            return column.in_([column_value(type_, one) for one in value])
        equal: ColumnElement[bool] = column == column_value(type_, value)
        return equal

    def _values(self, projection: str, order: Sequence[str], after: Sequence[Any]) -> list[Any]:
        columns = self._plan.projections[projection].columns
        return [
            *(column_value(columns[name].type, value) for name, value in zip(order, after, strict=False)),
            after[-1],
        ]
