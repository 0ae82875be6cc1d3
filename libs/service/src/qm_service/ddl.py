"""Changing tables while other processes may do the same."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_service.database import Database

_LOCK = 0x514D_0001
"""Of PostgreSQL's advisory locks."""


async def exclusively(database: Database, tx: AsyncConnection) -> None:
    """Let one process after the other change tables, until its transaction ends.

    PostgreSQL lets two `CREATE TABLE IF NOT EXISTS` begin and fails the second; SQLite has one writer as it is.
    """
    if not database.sqlite:
        await tx.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
