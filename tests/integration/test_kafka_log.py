"""What only a real broker shows: settings, other clients, transactions of others, and the broker gone."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable

import pytest
from aiokafka.partitioner import DefaultPartitioner
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from qm_events.registry import Topic
from qm_service.log import LogUnavailable, PositionLost, Record, TopicMisconfigured, first_positions, partition_of
from qm_service.log_kafka import KafkaLog
from qm_service.testing.log_contract import message, new_topic, read_all, versions
from tests.support.servers import Kafka

pytestmark = pytest.mark.integration

LIMIT_SECONDS = 12.0
"""For any call while the broker is away."""


@pytest.fixture
async def log(kafka_servers: str) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(kafka_servers)
    await log.start()
    yield log
    await log.close()


@pytest.fixture
async def topic(log: KafkaLog) -> Topic:
    topic = new_topic()
    await log.ensure_topics([topic])
    return topic


def transactional(servers: str, name: str) -> Producer:
    """Return a foreign producer that has a transaction open."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    return producer


def write(producer: Producer, topic: Topic, keys: list[str], version: int) -> None:
    """Write facts as another client would, and wait until the broker has them."""
    for key in keys:
        fact = message(topic, key, version)
        headers = {"ce_type": fact.type, "ce_subject": fact.subject, "ce_version": str(version)}
        producer.produce(
            topic.name, fact.value, key, partition_of(key, topic.partitions), headers=list(headers.items())
        )
    assert producer.flush(20) == 0


async def settled(calls: list[Awaitable[object]]) -> list[type]:
    """Return what each call came to, all within the limit."""
    async with asyncio.timeout(LIMIT_SECONDS):
        return [type(result) for result in await asyncio.gather(*calls, return_exceptions=True)]


async def test_all_clients_find_a_key_in_the_same_partition(log: KafkaLog, topic: Topic, kafka_servers: str) -> None:
    keys = [f"01890a5d-ac96-774b-bcce-b302099a8057-{i}" for i in range(1_000)]
    ours = [partition_of(key, topic.partitions) for key in keys]
    partitions = list(range(topic.partitions))
    assert ours == [DefaultPartitioner()(key.encode(), partitions, partitions) for key in keys]
    theirs: dict[bytes | None, int | None] = {}
    producer = Producer({"bootstrap.servers": kafka_servers, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(
            topic.name, b"", key, on_delivery=lambda _, done: theirs.update({done.key(): done.partition()})
        )
    assert await asyncio.to_thread(producer.flush, 20) == 0
    assert ours == [theirs[key.encode()] for key in keys]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000"),
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "CreateTime"),
    ],
)
async def test_a_topic_that_would_lose_facts_is_refused(
    log: KafkaLog, kafka_servers: str, setting: str, value: str
) -> None:
    topic = new_topic()
    good = {"retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "LogAppendTime"}
    wrong = NewTopic(topic.name, topic.partitions, 1, config=good | {setting: value})
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    for created in admin.create_topics([wrong]).values():
        created.result(20)
    with pytest.raises(TopicMisconfigured, match=f"{topic.name}: {setting} is {value}, must be"):
        await log.ensure_topics([topic])


async def test_topics_that_the_broker_refuses_are_said(kafka_servers: str) -> None:
    log = KafkaLog(kafka_servers, replication=3)
    with pytest.raises(LogUnavailable, match="InvalidReplicationFactor"):
        await log.ensure_topics([new_topic()])
    await log.close()


async def test_a_foreign_record_is_handed_on_as_it_is(log: KafkaLog, topic: Topic, kafka_servers: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_servers})
    producer.produce(topic.name, None, "a", 0)
    producer.produce(topic.name, b"x", None, 0, headers=[("ce_type", b"\xff"), ("ce_version", b"many")])
    assert await asyncio.to_thread(producer.flush, 20) == 0
    found = await read_all(log, first_positions([topic]))
    assert found == [Record(topic.name, 0, 0, "", "", 0, b""), Record(topic.name, 0, 1, "\ufffd", "", 0, b"x")]


async def test_a_fact_dated_2020_is_kept_under_the_time_of_the_broker(
    log: KafkaLog, topic: Topic, kafka_servers: str
) -> None:
    await log.publish([message(topic, "old")])
    consumer = Consumer({"bootstrap.servers": kafka_servers, "group.id": topic.name})
    consumer.assign([TopicPartition(topic.name, partition_of("old", topic.partitions), 0)])
    record = await asyncio.to_thread(consumer.poll, 20)
    consumer.close()
    assert record is not None
    kind, at_ms = record.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert abs(at_ms / 1000 - time.time()) < 60
    assert record.headers() == [
        ("content-type", b"application/cloudevents+json"),
        ("ce_id", b"old@1"),
        ("ce_type", b"thing.happened.v1"),
        ("ce_time", b"2020-02-29T12:00:00Z"),
        ("ce_subject", b"thing/old"),
        ("ce_version", b"1"),
    ]


async def test_a_position_below_the_start_is_lost(log: KafkaLog, topic: Topic, kafka_servers: str) -> None:
    await log.publish([message(topic, "a", version) for version in range(1, 11)])
    partition = partition_of("a", topic.partitions)
    admin = AdminClient({"bootstrap.servers": kafka_servers})
    for deleted in admin.delete_records([TopicPartition(topic.name, partition, 4)]).values():
        deleted.result(20)
    for wait_seconds in (0.0, 5.0):
        with pytest.raises(PositionLost, match=f"{topic.name}/{partition}: 0"):
            await log.read(first_positions([topic]), 10, wait_seconds)
    assert (await log.starts([topic.name]))[topic.name, partition] == 4
    assert len(await read_all(log, await log.starts([topic.name]))) == 6


async def test_holes_of_aborted_transactions_are_passed(log: KafkaLog, topic: Topic, kafka_servers: str) -> None:
    keys = [str(i) for i in range(50)]
    producer = await asyncio.to_thread(transactional, kafka_servers, topic.name)
    await log.publish([message(topic, key, 1) for key in keys])
    for version, end in ((2, producer.abort_transaction), (3, producer.commit_transaction)):
        await asyncio.to_thread(write, producer, topic, keys, version)
        await asyncio.to_thread(end, 20)
        producer.begin_transaction()
    await log.publish([message(topic, key, 4) for key in keys])
    await asyncio.to_thread(write, producer, topic, keys, 5)
    await asyncio.to_thread(producer.abort_transaction, 20)
    position = first_positions([topic])
    async with asyncio.timeout(LIMIT_SECONDS):
        found = await read_all(log, position, limit=20)
    assert versions(found) == {f"thing/{key}": [1, 3, 4] for key in keys}
    assert position == await log.ends([topic.name]), "a reader that has all must have no lag"
    again = KafkaLog(kafka_servers)
    assert await again.read(position, 10) == []
    assert position == await again.ends([topic.name])
    await again.close()


async def test_an_open_transaction_is_seen_as_lag_and_costs_nothing(
    log: KafkaLog, topic: Topic, kafka_servers: str
) -> None:
    producer = await asyncio.to_thread(transactional, kafka_servers, topic.name)
    await asyncio.to_thread(write, producer, topic, ["a"], 1)
    await log.publish([message(topic, "a", 2), message(topic, "b", 1)])
    position = first_positions([topic])
    assert versions(await log.read(position, 10, 5.0)) == {"thing/b": [1]}
    position |= {(topic.name, partition_of("b", topic.partitions)): 1}
    before = time.process_time()
    assert await log.read(position, 10, 2.0) == []
    assert time.process_time() - before < 0.5
    assert await log.blocked() == {(topic.name, partition_of("a", topic.partitions)): 2}
    assert position == await log.ends([topic.name])
    await asyncio.to_thread(producer.abort_transaction, 20)
    found: list[Record] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while not found:
            found = await log.read(position, 10, 1.0)
    assert versions(found) == {"thing/a": [2]}
    assert await log.blocked() == {}


@pytest.mark.crash
@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_a_broker_that_is_gone_is_said_in_time_and_found_again(
    log: KafkaLog, topic: Topic, kafka: Kafka, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await log.publish([message(topic, "a", 1)])
    position = first_positions([topic])
    assert len(await read_all(log, position)) == 1
    (kafka.kill9 if how == "killed" else kafka.pause)()
    try:
        with caplog.at_level(logging.DEBUG, "aiokafka"):
            for _ in range(2):
                calls: list[Awaitable[object]] = [log.publish([message(topic, "a", 2)]), log.read(position, 10, 0.1)]
                calls += [log.ends([topic.name]), log.starts([topic.name]), log.ensure_topics([topic])]
                assert set(await settled(calls)) == {LogUnavailable}
        assert sum(record.name.startswith("aiokafka") for record in caplog.records) < 100
        other = KafkaLog(kafka.servers)
        assert await settled([other.start(), other.publish([message(topic, "a", 2)])]) == [type(None), LogUnavailable]
        async with asyncio.timeout(5.0):
            await other.close()
    finally:
        await asyncio.to_thread(kafka.restart if how == "killed" else kafka.resume)
    async with asyncio.timeout(LIMIT_SECONDS):
        await until_published(log, topic)
    found = versions(await read_all(log, first_positions([topic])))
    assert list(dict.fromkeys(found["thing/a"])) == [1, 2]


@pytest.mark.crash
async def test_a_log_is_let_go_of_while_the_broker_is_gone(kafka: Kafka) -> None:
    log, topic = KafkaLog(kafka.servers), new_topic()
    await log.ensure_topics([topic])
    await log.publish([message(topic, str(i)) for i in range(100)])
    position = first_positions([topic])
    await read_all(log, position)
    kafka.pause()
    try:
        publishing = asyncio.create_task(log.publish([message(topic, "a", 2)]))
        reading = asyncio.create_task(log.read(position, 10, 60.0))
        await asyncio.wait([publishing, reading], timeout=0.5)
        async with asyncio.timeout(5.0):
            await log.close()
        assert set(await settled([publishing, reading])) == {LogUnavailable}
    finally:
        kafka.resume()


async def until_published(log: KafkaLog, topic: Topic) -> None:
    """Publish again until it works, as a relay does."""
    while True:
        try:
            await log.publish([message(topic, "a", 2)])
        except LogUnavailable:
            continue
        return
