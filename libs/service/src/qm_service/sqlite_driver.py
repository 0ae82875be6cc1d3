"""SQLite under SQLAlchemy's asyncio engine, in the shape of aiosqlite's connection, without its thread.

A statement takes microseconds; a hop to a thread and back takes a hundred times that, several for each statement, and
waits for the interpreter's lock while the loop is busy. So statements run on the loop. Only what waits for the disk or
for another process does not: the commit of a transaction that writes is done by a thread, its beginning is tried again.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Self

BEGIN_WRITING = "BEGIN IMMEDIATE"
"""A deferred transaction that reads first and writes later fails at once, whatever the busy timeout says."""
_BUSY_SECONDS = 5.0
_RETRY_SECONDS = 0.002


class Connection:
    """A connection that belongs to one task at a time. Transactions begin by statement.

    `waits`: a commit waits for the disk, so it is not for the loop.
    """

    def __init__(self, path: str, *, waits: bool) -> None:
        self._connection = self._db = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._waits = waits
        self._writes = False
        self._committing: asyncio.Future[None] | None = None

    def cursor(self) -> "Cursor":
        """Return a cursor."""
        return Cursor(self, self._db.cursor())

    async def begin_writing(self, cursor: sqlite3.Cursor) -> None:
        """Begin a transaction that writes; raises sqlite3.OperationalError where another process goes on writing."""
        late = monotonic() + _BUSY_SECONDS
        # Another process holds the lock: there is no event to wait for.
        while not self._begins(cursor, last_try=monotonic() > late):  # noqa: ASYNC110
            await asyncio.sleep(_RETRY_SECONDS)
        self._writes = True

    def _begins(self, cursor: sqlite3.Cursor, *, last_try: bool) -> bool:
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            cursor.execute(BEGIN_WRITING)
        except sqlite3.OperationalError as error:
            if last_try or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1_000:.0f}")
        return True

    async def commit(self) -> None:
        """End the transaction; what it wrote is on the disk, where this connection waits for it."""
        if not (self._writes and self._waits):
            self._writes = False
            self._db.commit()
            return
        self._writes = False
        self._committing = asyncio.get_running_loop().run_in_executor(None, self._db.commit)
        # Who waits may be cancelled, the commit cannot be: `rollback` comes after it.
        await asyncio.shield(self._committing)

    async def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        await self._settled()
        self._writes = False
        self._db.rollback()

    async def close(self) -> None:
        """Let go of the file."""
        await self._settled()
        self._db.close()

    def stop(self) -> None:
        """Let go of the file now."""
        self._db.close()

    async def create_function(self, name: str, arguments: int, function: Callable[..., Any], **options: bool) -> None:
        """Make a function known to SQL."""
        self._db.create_function(name, arguments, function, **options)

    async def _settled(self) -> None:
        if self._committing is not None and not self._committing.done():
            with suppress(sqlite3.Error):
                await asyncio.shield(self._committing)


class Cursor:
    """A cursor."""

    def __init__(self, connection: Connection, cursor: sqlite3.Cursor) -> None:
        self._owner = connection
        self._cursor = cursor

    async def __aenter__(self) -> Self:
        """Return the cursor."""
        return self

    @property
    def description(self) -> Any:
        """The columns of the result."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The id of the last row that was inserted."""
        return self._cursor.lastrowid

    async def execute(self, statement: str, parameters: Any = ()) -> None:
        """Run a statement."""
        if statement == BEGIN_WRITING:
            await self._owner.begin_writing(self._cursor)
        else:
            self._cursor.execute(statement, parameters)

    async def executemany(self, statement: str, rows: Sequence[Any]) -> None:
        """Run a statement for each row."""
        self._cursor.executemany(statement, rows)

    async def fetchone(self) -> Any:
        """Return the next row of the result, None at its end."""
        return self._cursor.fetchone()

    async def fetchmany(self, size: int) -> list[Any]:
        """Return the next rows of the result."""
        return self._cursor.fetchmany(size)

    async def fetchall(self) -> list[Any]:
        """Return what is left of the result."""
        return self._cursor.fetchall()

    async def close(self) -> None:
        """Drop the result."""
        self._cursor.close()
