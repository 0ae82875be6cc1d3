"""Publishes the event table to the log: in order, at least once, with stable ids."""

import asyncio

from qm_service.database import Database
from qm_service.log import EventLog
from qm_service.schema import Schema
from qm_service.store import Cursor, SqlEventStore
from qm_service.writes import RELAY, load_cursor

_BATCH = 1_000


class Relay:
    """Reads behind the writer. Where it is gets saved with the writer's next transaction: a relay that dies in between
    publishes some facts again, with the ids that they had."""

    def __init__(self, schema: Schema, database: Database, log: EventLog) -> None:
        self.cursor: Cursor = (0, 0)
        self.saved: Cursor = (0, 0)
        self.drained = False
        """Nothing was left when it looked last, and nothing was committed since."""
        self.wake = asyncio.Event()
        self._told = 0
        self._schema = schema
        self._database = database
        self._store = SqlEventStore(schema, database)
        self._log = log

    async def load(self) -> None:
        """Go to the saved place. Raises DatabaseUnavailable."""
        async with self._database.read() as tx:
            self.cursor = self.saved = await load_cursor(tx, self._schema, RELAY) or (0, 0)
        self.drained = False

    def notify(self) -> None:
        """Say that facts were committed."""
        self.drained = False
        self._told += 1
        self.wake.set()

    async def run_once(self) -> bool:
        """Publish a batch; False when there was nothing to publish. Raises DatabaseUnavailable, LogUnavailable."""
        told = self._told
        async with self._database.read() as tx:
            found = await self._store.after(tx, self.cursor, _BATCH)
            blocked = not found and await self._store.blocked(tx, self.cursor)
        if not found:
            self.drained = not blocked and told == self._told
            return False
        await self._log.publish([stored.message for stored in found])
        self.cursor = found[-1].cursor
        # SQLite has one writer, which tells of every fact: there is nothing behind a batch that was not full.
        self.drained = self._database.sqlite and len(found) < _BATCH and told == self._told
        return True
