"""What is to be told and was not yet: a table in the catalog's database, on no log. Where it is lost, what waited in it
is not sent, nothing is sent again, and the inbox shows all as ever."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Boolean, Column, Integer, MetaData, String, Table, Text, select, update
from sqlalchemy.dialects import postgresql, sqlite

from qm_catalog.notices import Notice
from qm_service.database import Database
from qm_service.ddl import exclusively
from qm_service.schema import Instant

METADATA = MetaData()
BOX = Table(
    "notices",
    METADATA,
    Column("id", String, primary_key=True),
    Column("channel", String, nullable=False),
    Column("recipient", String, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("digest", Boolean, nullable=False),
    Column("body", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Instant, nullable=False, index=True),
    Column("open", Boolean, nullable=False, index=True),
    Column("result", String, nullable=False),
)
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Parcel:
    """Notices that go out as one; `id` stays the same until they are sent."""

    notices: tuple[Notice, ...]
    attempts: int

    @property
    def id(self) -> str:
        """The id of the first."""
        return self.notices[0].id


class NoticeBox:
    """The table. All methods raise DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._created = False

    async def add(self, notices: Sequence[Notice]) -> None:
        """Take notices; those that are here already stay as they are."""
        await self._create()
        insert = sqlite.insert(BOX) if self._database.sqlite else postgresql.insert(BOX)
        rows = [
            {
                "id": it.id,
                "channel": it.channel,
                "recipient": it.recipient,
                "due_at": it.due_at,
                "digest": it.digest,
                "body": json.dumps(dict(it.body), sort_keys=True),
                "attempts": 0,
                "next_at": it.due_at,
                "open": True,
                "result": "",
            }
            for it in notices
        ]
        async with self._database.write() as tx:
            for row in rows:
                await tx.execute(insert.values(**row).on_conflict_do_nothing())

    async def due(self, now: datetime) -> list[Parcel]:
        """Return what is to be sent now: each notice by itself, or those of one digest together."""
        await self._create()
        query = select(BOX).where(BOX.c.open, BOX.c.next_at <= now).order_by(BOX.c.due_at, BOX.c.id).limit(_BATCH)
        async with self._database.read() as tx:
            rows = list(await tx.execute(query))
        parcels: dict[tuple[object, ...], list[tuple[Notice, int]]] = {}
        for row in rows:
            notice = Notice(row.id, row.channel, row.recipient, row.due_at, row.digest, json.loads(row.body))
            together = (row.channel, row.recipient, notice.tenant, row.due_at) if row.digest else (row.id,)
            parcels.setdefault(together, []).append((notice, row.attempts))
        return [Parcel(tuple(it for it, _ in some), max(n for _, n in some)) for some in parcels.values()]

    async def done(self, notices: Iterable[Notice], result: str) -> None:
        """Close notices: sent, or not to be sent any more."""
        async with self._database.write() as tx:
            ids = [it.id for it in notices]
            await tx.execute(update(BOX).where(BOX.c.id.in_(ids)).values(open=False, result=result[:500]))

    async def later(self, parcel: Parcel, next_at: datetime, why: str) -> None:
        """Try again at an instant."""
        async with self._database.write() as tx:
            ids = [it.id for it in parcel.notices]
            values = {"attempts": parcel.attempts + 1, "next_at": next_at, "result": why[:500]}
            await tx.execute(update(BOX).where(BOX.c.id.in_(ids)).values(**values))

    async def results(self) -> dict[str, str]:
        """Return what became of each notice; empty for one that waits."""
        await self._create()
        async with self._database.read() as tx:
            return {row.id: row.result for row in await tx.execute(select(BOX.c.id, BOX.c.result))}

    async def _create(self) -> None:
        if not self._created:
            async with self._database.write() as tx:
                await exclusively(self._database, tx)
                await tx.run_sync(METADATA.create_all)
            self._created = True
