"""The event table: streams of facts with versions 1..n, without hole or fork. It is the outbox of the relay too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, Select, bindparam, func, literal_column, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_events import Event, decode, encode
from qm_events.ids import event_id, stream_key
from qm_service.commands import VersionConflict
from qm_service.database import Database
from qm_service.log import Message
from qm_service.schema import Schema

NEW = 0
"""Expected version of a stream that must not exist yet."""
ANY = -1
"""Whatever version the stream has."""

Cursor = tuple[int, int]
"""(xid, id) of the last row that was read: the order in which the relay reads."""

_PARAMETERS = 500


@dataclass(frozen=True, slots=True)
class Stored:
    """A fact in the table, at its place in the order of the relay."""

    cursor: Cursor
    message: Message


def row_of(event: Event[Any], value: bytes) -> dict[str, Any]:
    """Return the row of a fact; `value` is `encode(event)`, made once."""
    return {
        "xid": 0,
        "stream": event.subject,
        "version": event.version,
        "topic": event.data.topic,
        "type": event.type,
        "time": event.time.isoformat().replace("+00:00", "Z"),
        "traceparent": event.traceparent,
        "value": value,
    }


class SqlEventStore:
    """Appends and loads facts inside the caller's transaction."""

    def __init__(self, schema: Schema, database: Database) -> None:
        self._events = schema.events
        self._sqlite = database.sqlite
        # PostgreSQL gives out ids in the order of the inserts, not of the commits: a reader by id alone loses facts.
        # With the id of the transaction beside it, a reader can stop where an open transaction may still commit.
        xid: ColumnElement[Any] = (
            bindparam("xid") if self._sqlite else literal_column("pg_current_xact_id()::text::bigint")
        )
        self._insert = self._events.insert().values(xid=xid)
        self._after = self._following()

    async def insert(self, tx: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows of `row_of`. Raises IntegrityError where a version exists."""
        if not self._sqlite:
            rows = [{name: value for name, value in row.items() if name != "xid"} for row in rows]
        await tx.execute(self._insert, rows)

    async def append(self, tx: AsyncConnection, stream: str, expected: int, events: Sequence[Event[Any]]) -> None:
        """Append facts that continue `stream` after version `expected` (NEW, ANY). Raises VersionConflict.

        After a conflict the transaction can only be rolled back.
        """
        actual = (await self.versions(tx, [stream])).get(stream, 0)
        first = events[0].version if events else actual + 1
        if (expected not in (ANY, actual)) or first != actual + 1:
            raise VersionConflict(stream, first - 1 if expected == ANY else expected, actual)
        try:
            await self.insert(tx, [row_of(event, encode(event)) for event in events])
        except IntegrityError as error:
            raise VersionConflict(stream, actual, actual + 1) from error

    async def load(self, tx: AsyncConnection, stream: str, after: int = 0, upto: int | None = None) -> list[Event[Any]]:
        """Return the facts of a stream with versions in (after, upto], in order."""
        events = self._events.c
        query = select(events.value, events.type).where(events.stream == stream, events.version > after)
        if upto is not None:
            query = query.where(events.version <= upto)
        return [decode(value, type_) for value, type_ in await tx.execute(query.order_by(events.version))]

    async def load_many(self, tx: AsyncConnection, streams: Sequence[str]) -> Mapping[str, list[Event[Any]]]:
        """Return the facts of several streams, in order; a stream without facts is left out."""
        found: dict[str, list[Event[Any]]] = {}
        events = self._events.c
        for some in chunks(streams):
            query = select(events.stream, events.value, events.type).where(events.stream.in_(some))
            for stream, value, type_ in await tx.execute(query.order_by(events.stream, events.version)):
                found.setdefault(stream, []).append(decode(value, type_))
        return found

    async def versions(self, tx: AsyncConnection, streams: Sequence[str]) -> dict[str, int]:
        """Return the last version of each stream that has facts."""
        return {stream: version for stream, (version, _) in (await self.heads(tx, streams)).items()}

    async def heads(self, tx: AsyncConnection, streams: Sequence[str]) -> dict[str, tuple[int, datetime]]:
        """Return version and time of the last fact of each stream that has facts."""
        found: dict[str, tuple[int, datetime]] = {}
        c = self._events.c
        for some in chunks(streams):
            last = select(c.stream, func.max(c.version).label("version")).where(c.stream.in_(some)).group_by(c.stream)
            head = last.subquery()
            both = (c.stream == head.c.stream) & (c.version == head.c.version)
            rows = await tx.execute(select(c.stream, c.version, c.time).join(head, both))
            found |= {stream: (version, datetime.fromisoformat(time)) for stream, version, time in rows}
        return found

    async def after(self, tx: AsyncConnection, cursor: Cursor, limit: int) -> list[Stored]:
        """Return the next facts in the order of the relay: nothing that is committed later can sort before them."""
        place = {"id_": cursor[1]} if self._sqlite else {"xid_": cursor[0], "id_": cursor[1]}
        rows = await tx.execute(self._after, {**place, "limit_": limit})
        return [Stored((row.xid, row.id), _message(row)) for row in rows]

    async def blocked(self, tx: AsyncConnection, cursor: Cursor) -> bool:
        """Tell whether facts are committed that `after` keeps back: an open transaction, of any database of the
        server, may still sort before them."""
        if self._sqlite:
            return False
        left = select(self._events.c.id).where(*self._beyond()).limit(1)
        return (await tx.execute(left, {"xid_": cursor[0], "id_": cursor[1]})).first() is not None

    def _beyond(self) -> tuple[ColumnElement[bool], ...]:
        c, xid, id_ = self._events.c, bindparam("xid_", type_=BigInteger), bindparam("id_", type_=BigInteger)
        return c.xid >= xid, (c.xid > xid) | ((c.xid == xid) & (c.id > id_))

    def _following(self) -> Select[Any]:
        c = self._events.c
        query = select(c.xid, c.id, c.topic, c.stream, c.version, c.type, c.time, c.value, c.traceparent)
        if self._sqlite:
            query = query.where(c.id > bindparam("id_", type_=BigInteger)).order_by(c.id)
        else:
            settled: ColumnElement[int] = literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
            query = query.where(c.xid < settled, *self._beyond()).order_by(c.xid, c.id)
        return query.limit(bindparam("limit_", type_=Integer))


def _message(row: Any) -> Message:
    return Message(
        topic=row.topic,
        key=stream_key(row.stream),
        type=row.type,
        id=event_id(row.stream, row.version),
        subject=row.stream,
        version=row.version,
        time=row.time,
        value=row.value,
        traceparent=row.traceparent,
    )


def message_of(event: Event[Any]) -> Message:
    """Return a fact on its way to the log."""
    return _message(Row(row_of(event, encode(event))))


class Row:
    """A row that is not written yet, read like one that is."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


def chunks(values: Sequence[Any]) -> list[Sequence[Any]]:
    """Cut a long list of parameters into lists that every database takes in one statement."""
    return [values[i : i + _PARAMETERS] for i in range(0, len(values), _PARAMETERS)]
