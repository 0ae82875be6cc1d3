"""A migrated database and one that a service made itself are the same."""

from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData

from qm_service.database import Database
from qm_service.migrate import upgrade
from qm_service.model import Definition
from qm_service.schema import create, schema_of

SCHEMA = schema_of(Definition(name="catalog", deciders=(), projections=(), reactions={}))


def differences(connection: Connection, metadata: MetaData) -> list[Any]:
    """Return what alembic would change."""
    ours = {
        "include_object": lambda _, name, kind, *__: kind != "table" or name in metadata.tables,
        "compare_type": True,
    }
    return list(compare_metadata(MigrationContext.configure(connection, opts=ours), metadata))


async def test_a_migrated_database_has_the_tables_of_this_release(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'db.sqlite'}")
    await upgrade(database, "qm_catalog")
    await upgrade(database, "qm_catalog")
    async with database.read() as connection:
        assert await connection.run_sync(differences, SCHEMA.metadata) == []
    await database.close()


async def test_a_database_that_a_service_made_is_taken_over(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'db.sqlite'}")
    await create(database, SCHEMA)
    await upgrade(database, "qm_catalog")
    async with database.read() as connection:
        assert await connection.run_sync(differences, SCHEMA.metadata) == []
    await database.close()
