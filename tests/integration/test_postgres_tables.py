"""What the chassis keeps beside facts and documents, in the database of the distributed product."""

import asyncio

import pytest

from qm_service.database import Database
from qm_service.migrate import upgrade
from qm_service.schema import create
from qm_service.sealed import SubjectKeys
from tests.unit.http.test_migrate import SCHEMA, differences

pytestmark = pytest.mark.integration


async def test_replicas_that_migrate_at_once_make_the_tables_once(database_url: str) -> None:
    replicas = [Database(database_url) for _ in range(3)]
    await asyncio.gather(*(upgrade(replica, "qm_catalog") for replica in replicas))
    async with replicas[0].read() as connection:
        assert await connection.run_sync(differences, SCHEMA.metadata) == []
    for replica in replicas:
        await replica.close()


async def test_a_database_that_a_service_made_is_taken_over(database_url: str) -> None:
    database = Database(database_url)
    await create(database, SCHEMA)
    await upgrade(database, "qm_catalog")
    async with database.read() as connection:
        assert await connection.run_sync(differences, SCHEMA.metadata) == []
    await database.close()


async def test_callers_who_need_a_key_at_once_get_the_same_one(database_url: str) -> None:
    database = Database(database_url)
    keys = SubjectKeys(database)
    assert len(set(await asyncio.gather(*(keys.ensure("dora") for _ in range(5))))) == 1
    await keys.erase("dora")
    assert await keys.of("dora") == {}
    await database.close()
