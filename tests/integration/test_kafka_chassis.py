"""A service on Apache Kafka, beside a foreign client with transactions of its own: late is not lost, and it is said."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from qm_events.registry import TOPICS
from qm_service import status
from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log_kafka import KafkaLog
from qm_service.replay import verify
from qm_service.runtime import Runtime
from tests.integration.test_kafka_log import transactional
from tests.support.topics import wipe
from tests.support.toys import ADMISSION
from tests.unit.chassis.support import until
from tests.unit.chassis.test_failures import submitted

pytestmark = pytest.mark.integration

TOPIC = TOPICS["orders"]


def keep_open(servers: str) -> Producer:
    """Return a foreign producer whose open transaction has a record in every partition."""
    producer = transactional(servers, "foreign")
    for partition in range(TOPIC.partitions):
        producer.produce(TOPIC.name, b"not a fact", b"x", partition)
    assert producer.flush(20) == 0
    return producer


@pytest.fixture
async def log(kafka_servers: str) -> AsyncIterator[KafkaLog]:
    """A log with empty topics."""
    await asyncio.to_thread(wipe, kafka_servers)
    log = KafkaLog(kafka_servers)
    await log.start()
    await log.ensure_topics(TOPICS.values())
    yield log
    await log.close()


async def test_a_foreign_transaction_that_hangs_is_lag_with_an_age_and_its_end_is_caught_up_with(
    log: KafkaLog, kafka_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_LOOK_SECONDS", 0.1)
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/admission.db", durable=False)
    runtime = Runtime(ADMISSION, database, log, WallClock())
    await runtime.start()
    await log.publish([submitted(f"o{i}") for i in range(20)])
    await until(lambda: runtime.status().read["orders"] >= 20 and runtime.status().lag["orders"].events == 0)
    assert runtime.status().ready
    producer = await asyncio.to_thread(keep_open, kafka_servers)
    await log.publish([submitted(f"o{i}") for i in range(20, 40)])
    held = TOPIC.partitions + 20
    await until(lambda: runtime.status().lag["orders"].events == held, 20)
    await until(lambda: runtime.status().lag["orders"].age_seconds > 0.5)
    assert (await runtime.docs.get("used", "acme")).cards <= 4
    assert runtime.status().ready
    await asyncio.to_thread(producer.abort_transaction, 20)
    await until(lambda: runtime.status().lag["orders"].events == 0, 20)
    async with database.read() as tx:
        assert len((await tx.execute(runtime.schema.events.select())).all()) == 40
    await until(runtime.idle, 20)
    fresh = Database("sqlite+aiosqlite://")
    comparison = await verify(ADMISSION, database, fresh, log)
    assert comparison.equal, comparison.differing
    await runtime.stop()
    for place in (database, fresh):
        await place.close()
