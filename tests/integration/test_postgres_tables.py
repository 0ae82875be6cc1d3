"""What the chassis keeps beside facts and documents, in the database of the distributed product."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from qm_catalog.notice_box import NoticeBox
from qm_catalog.notices import Notice
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


async def test_a_notice_is_taken_once_and_waits_until_its_time(database_url: str) -> None:
    database, at = Database(database_url), datetime(2026, 6, 1, 8, tzinfo=UTC)
    boxes = [NoticeBox(database) for _ in range(3)]
    later = at + timedelta(hours=1)
    notices = [
        Notice("n1", "mail", "ann", at, False, {"tenant": "acme"}),
        Notice("n2", "mail", "ann", later, True, {"tenant": "acme"}),
        Notice("n3", "mail", "ann", later, True, {"tenant": "acme"}),
    ]
    await asyncio.gather(*(box.add(notices) for box in boxes))
    (first,) = await boxes[0].due(at)
    assert first.notices == (notices[0],)
    await boxes[0].later(first, at + timedelta(minutes=1), "ConnectionError")
    assert await boxes[0].due(at) == []
    found = {parcel.id: (len(parcel.notices), parcel.attempts) for parcel in await boxes[1].due(later)}
    assert found == {"n1": (1, 1), "n2": (2, 0)}
    await boxes[0].done(notices, "sent")
    assert await boxes[2].due(later) == []
    assert await boxes[2].results() == {"n1": "sent", "n2": "sent", "n3": "sent"}
    await database.close()
