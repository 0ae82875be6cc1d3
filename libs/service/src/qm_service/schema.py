"""The tables of a service: the same for all, and one table a projection."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import Insert

from qm_service.database import Database
from qm_service.ddl import exclusively
from qm_service.model import Definition, Projection

_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
_LOWEST = -(2**63)


class Instant(TypeDecorator[datetime]):
    """An aware instant as microseconds since 1970: exact and sortable in every database. None sorts first."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> int:
        """Return the microseconds."""
        return _LOWEST if value is None else (value - _ZERO) // timedelta(microseconds=1)

    def process_result_value(self, value: int | None, _dialect: Dialect) -> datetime | None:
        """Return the instant."""
        return None if value is None or value == _LOWEST else _ZERO + timedelta(microseconds=value)


_KEY = String().with_variant(String(collation="C"), "postgresql")
_ID = BigInteger().with_variant(Integer, "sqlite")
_COLUMNS: Mapping[type, tuple[Any, Any]] = {
    str: (_KEY, ""),
    int: (BigInteger, _LOWEST),
    bool: (Boolean, False),
    datetime: (Instant, None),
}
"""Python type -> SQL type and what stands for None: a column of a keyset order may not be null."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one service."""

    metadata: MetaData
    events: Table
    """Own facts: the truth, and the outbox of the relay."""
    positions: Table
    """What to read next of each partition; `consumer` is empty for the writer."""
    seen: Table
    """The last version that was folded of each foreign stream: finds duplicates and gaps."""
    cursors: Table
    """Places in `events`, by name."""
    lease: Table
    idempotency: Table
    parked: Table
    discarded: Table
    """Parked records that an operator had skipped for good: no rebuild of a projection folds them."""
    effects: Table
    built: Table
    """Which version of each projection is in step with the writer."""
    documents: Mapping[str, Table]
    """By name of the projection."""


def schema_of(definition: Definition) -> Schema:
    """Describe the tables of a service."""
    metadata = MetaData()
    return Schema(
        metadata=metadata,
        **{name: Table(name, metadata, *columns) for name, columns in _common().items()},
        documents={projection.name: _documents(projection, metadata) for projection in definition.projections},
    )


def _common() -> dict[str, tuple[Any, ...]]:
    return {
        "events": (
            Column("id", _ID, primary_key=True),
            Column("xid", BigInteger, nullable=False),
            Column("stream", _KEY, nullable=False),
            Column("version", Integer, nullable=False),
            Column("topic", String, nullable=False),
            Column("type", String, nullable=False),
            Column("time", String, nullable=False),
            Column("traceparent", String),
            Column("value", LargeBinary, nullable=False),
            UniqueConstraint("stream", "version"),
            Index("events_relay", "xid", "id"),
        ),
        "positions": (
            Column("consumer", String, primary_key=True),
            Column("topic", String, primary_key=True),
            Column("partition", Integer, primary_key=True),
            Column("next_offset", BigInteger, nullable=False),
        ),
        "seen": (Column("stream", _KEY, primary_key=True), Column("version", Integer, nullable=False)),
        "cursors": (
            Column("name", String, primary_key=True),
            Column("xid", BigInteger, nullable=False),
            Column("id", BigInteger, nullable=False),
        ),
        "lease": (
            Column("service", String, primary_key=True),
            Column("epoch", BigInteger, nullable=False),
            Column("holder", String, nullable=False),
            Column("beat", BigInteger, nullable=False),
        ),
        "idempotency": (
            Column("key", _KEY, primary_key=True),
            Column("request", String, nullable=False),
            Column("stream", String, nullable=False),
            Column("first_version", Integer, nullable=False),
            Column("last_version", Integer, nullable=False),
        ),
        "parked": (
            Column("id", _ID, primary_key=True),
            Column("topic", String, nullable=False),
            Column("partition", Integer, nullable=False),
            Column("offset", BigInteger, nullable=False),
            Column("stream", _KEY, nullable=False),
            Column("version", Integer, nullable=False),
            Column("type", String, nullable=False),
            Column("value", LargeBinary, nullable=False),
            Column("error", Text, nullable=False),
            Column("parked_at", Instant, nullable=False),
            UniqueConstraint("stream", "version"),
        ),
        "discarded": (Column("stream", _KEY, primary_key=True), Column("version", Integer, primary_key=True)),
        "effects": (
            Column("reactor", String, primary_key=True),
            Column("key", _KEY, primary_key=True),
            Column("done_at", Instant, nullable=False),
            Column("result", Text, nullable=False),
        ),
        "built": (Column("name", String, primary_key=True), Column("version", Integer, nullable=False)),
    }


def _documents(projection: Projection[Any], metadata: MetaData) -> Table:
    name = table_name(projection)
    indexes = [Index(f"{name}_{column}", column) for column in projection.columns]
    return Table(
        name,
        metadata,
        Column("key", _KEY, primary_key=True),
        Column("doc", Text, nullable=False),
        Column("resident", Boolean, nullable=False, index=projection.resident is not None),
        *(Column(f"{column}", _COLUMNS[of.type][0], nullable=False) for column, of in projection.columns.items()),
        *indexes,
    )


def table_name(projection: Projection[Any]) -> str:
    """Return the name of a projection's table."""
    return f"p_{projection.name}_v{projection.version}"


def column_value(type_: type, value: Any) -> Any:
    """Return what a column holds for a value: None becomes what sorts first."""
    return _COLUMNS[type_][1] if value is None else value


def insert_of(database: Database, table: Table) -> Any:
    """Return an insert that can be told what to do on a conflict: each dialect has its own."""
    return sqlite.insert(table) if database.sqlite else postgresql.insert(table)


def upsert(database: Database, table: Table) -> Insert:
    """Return the statement that inserts a row of `table` or replaces the one with its primary key."""
    insert = insert_of(database, table)
    keys = list(table.primary_key.columns)
    changes = {column.name: insert.excluded[column.name] for column in table.columns if not column.primary_key}
    statement: Insert = insert.on_conflict_do_update(index_elements=keys, set_=changes)
    return statement


async def create(database: Database, schema: Schema) -> None:
    """Create the tables that are missing. Raises DatabaseUnavailable."""
    async with database.write() as tx:
        await exclusively(database, tx)
        await tx.run_sync(schema.metadata.create_all)
