"""The database of one service: SQLite or PostgreSQL behind SQLAlchemy Core."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from qm_service import sqlite_driver

_DOWN = (OperationalError, InterfaceError, InternalError, PoolTimeout, OSError, TimeoutError)
"""What says that the database, not the statement, is at fault."""
_SERVER_SETTINGS = {"idle_in_transaction_session_timeout": "10s"}
"""A process that was paused in the middle of a transaction must not hold the others up for as long."""
_DOWN_STATES = ("08", "28", "3D", "40", "53", "55", "57", "58", "25P03")
"""The same in SQLSTATEs: no connection, nobody is let in, no such database, a deadlock, no resources, in use, stopped
by an operator, I/O, a transaction that was idle for too long."""


class DatabaseUnavailable(Exception):
    """The database cannot be reached, or it failed; whether the transaction was committed is not known."""


class Database:
    """The engine of `sqlite+aiosqlite:///path` (`:memory:` for none) or `postgresql+asyncpg://…`.

    `durable=False` lets SQLite skip the sync to disk: a killed process loses nothing then, a machine without power may.
    """

    def __init__(self, url: str, *, durable: bool = True) -> None:
        parsed = make_url(url)
        self.sqlite = parsed.get_backend_name() == "sqlite"
        # No ping before each use: within seconds the writer's beat finds out that the server was away, and the pool
        # lets go of every connection from before.
        options: dict[str, Any] = {"pool_timeout": 5.0}
        # SQLite lets one write at a time; those of this process take turns instead of trying until they may.
        self._turn = asyncio.Lock() if self.sqlite else None
        if not self.sqlite:
            options["connect_args"] = {"timeout": 5.0, "command_timeout": 60.0, "server_settings": _SERVER_SETTINGS}
        else:
            options["async_creator"] = _opener(parsed.database or ":memory:", durable=durable)
            if parsed.database in (None, "", ":memory:"):
                # One connection is the whole database: whoever holds it, others wait.
                options |= {"poolclass": AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0}
        self.engine: AsyncEngine = create_async_engine(url, **options)
        if self.sqlite:
            _prepare_sqlite(self.engine, "FULL" if durable else "OFF")

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that may write: committed at the end, rolled back on any exception.

        Raises DatabaseUnavailable.
        """
        async with self._begin(writes=True) as connection:
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that only reads. Raises DatabaseUnavailable."""
        async with self._begin(writes=False) as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that only reads, and sees one moment throughout. Raises DatabaseUnavailable."""
        async with self._begin(writes=False, isolation_level="REPEATABLE READ") as connection:
            yield connection

    @asynccontextmanager
    async def _begin(self, *, writes: bool, **options: Any) -> AsyncIterator[AsyncConnection]:
        # Every transaction of SQLite sees one moment.
        options = {"qm_writes": writes} if self.sqlite else options
        try:
            async with self._turn if self._turn and writes else nullcontext(), self.engine.connect() as connection:
                if options:
                    await connection.execution_options(**options)
                async with connection.begin():
                    yield connection
        except _DOWN as error:
            raise DatabaseUnavailable(f"{type(error).__name__}: {error}") from error
        except DBAPIError as error:
            if not str(getattr(error.orig, "sqlstate", "")).startswith(_DOWN_STATES):
                raise
            raise DatabaseUnavailable(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close all connections."""
        await self.engine.dispose()


def _opener(path: str, *, durable: bool) -> Callable[[], Awaitable[sqlite_driver.Connection]]:
    async def connect() -> sqlite_driver.Connection:
        return sqlite_driver.Connection(path, waits=durable)

    return connect


def _prepare_sqlite(engine: AsyncEngine, synchronous: str) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "cache_size=-32000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("qm_writes", True)
        connection.exec_driver_sql(sqlite_driver.BEGIN_WRITING if writes else "BEGIN")
