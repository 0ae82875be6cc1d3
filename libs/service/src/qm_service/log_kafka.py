"""The log in Apache Kafka. Plain records, plain offsets: no consumer group, no transaction, no automatic commit.

A client that does not answer in time is given up and built anew by the next call: none of them is waited for.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from qm_events.registry import Topic
from qm_service import kafka_topics
from qm_service.kafka_clients import Shared, new_consumer, new_producer, quiet_clients
from qm_service.kafka_reader import KafkaReader
from qm_service.log import LogUnavailable, Message, Position, Record
from qm_service.log_rules import headers_of, target_of

READERS = 8
"""Consumers kept, one for each set of partitions that somebody reads together."""


class KafkaLog:
    """An EventLog on the brokers in `servers`, `host:port` with commas between. One object serves one event loop.

    `connection` goes to every client as it is (`security_protocol`, `ssl_context`, `sasl_...` of aiokafka).
    """

    def __init__(self, servers: str, replication: int = 1, connection: Mapping[str, Any] | None = None) -> None:
        self._cluster = (servers, dict(connection or {}))
        self._replication = replication
        self._closed = False
        self._counts: dict[str, int] = {}
        self._producer: Shared[AIOKafkaProducer] = Shared(self._new_producer)
        self._asker: Shared[AIOKafkaConsumer] = Shared(self._new_consumer)
        self._readers: dict[frozenset[tuple[str, int]], KafkaReader] = {}

    async def start(self) -> None:
        """Nothing to wait for: each call connects when it has to."""
        quiet_clients()

    async def close(self) -> None:
        """Let go of all clients, within seconds. Calls that are under way, and later ones, raise LogUnavailable."""
        self._closed = True
        readers, self._readers = self._readers, {}
        await asyncio.gather(self._producer.close(), self._asker.close(), *(r.close() for r in readers.values()))

    async def ensure_topics(self, topics: Iterable[Topic]) -> None:
        """Create what is missing and check what is there. Raises TopicMisconfigured."""
        wanted = list(topics)
        await kafka_topics.ensure(*self._cluster, wanted, self._replication)
        self._counts |= {topic.name: topic.partitions for topic in wanted}

    async def publish(self, messages: Sequence[Message]) -> None:
        """Append all, acknowledged by all replicas that are in sync."""
        counts = {topic: await self._count(topic) for topic in {message.topic for message in messages}}
        async with self._producer.use("publish") as producer:
            acknowledged = [await _send(producer, message, counts[message.topic]) for message in messages]
            await asyncio.gather(*acknowledged)

    async def read(self, position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        """Return up to `limit` records from `position` on. Raises PositionLost."""
        if not position:
            return []
        reader = await self._reader(frozenset(position))
        return await reader.read(position, limit, wait_seconds, lambda: self._offsets("end_offsets", position))

    async def ends(self, topics: Iterable[str]) -> Position:
        """Return the offset after the last record that can be read.

        Markers of foreign transactions at the end are left out as soon as a reader of this object has passed them.
        """
        ends = await self._offsets("end_offsets", await self._partitions(topics))
        for reader in self._readers.values():
            for at, (first, past) in reader.holes.items():
                if ends.get(at) == past:
                    ends[at] = first
        return ends

    async def starts(self, topics: Iterable[str]) -> Position:
        """Return the first offset of every partition."""
        return await self._offsets("beginning_offsets", await self._partitions(topics))

    async def blocked(self) -> Position:
        """Return how many records of a partition lie behind an open transaction."""
        return {at: count for reader in self._readers.values() for at, count in reader.blocked().items()}

    async def _new_producer(self) -> AIOKafkaProducer:
        self._check_open()
        return await new_producer(*self._cluster)

    async def _new_consumer(self) -> AIOKafkaConsumer:
        self._check_open()
        return await new_consumer(*self._cluster)

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable("the log is closed")

    async def _reader(self, partitions: frozenset[tuple[str, int]]) -> KafkaReader:
        reader = self._readers.pop(partitions, None)
        if reader is None:
            for topic in {topic for topic, _ in partitions}:
                await self._count(topic)
            reader = KafkaReader(partitions, self._new_consumer)
            if idle := [at for at, other in self._readers.items() if other.idle()][: len(self._readers) - READERS + 1]:
                await asyncio.gather(*(self._readers.pop(at).close() for at in idle))
        self._readers[partitions] = reader  # last: the one that was used longest ago is first
        return reader

    async def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts |= await kafka_topics.partition_counts(*self._cluster, [topic])
        if topic not in self._counts:
            raise LogUnavailable(f"topic {topic} is missing")
        return self._counts[topic]

    async def _partitions(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        return [(topic, i) for topic in topics for i in range(await self._count(topic))]

    async def _offsets(self, which: str, partitions: Iterable[tuple[str, int]]) -> Position:
        async with self._asker.use("offsets") as asker:
            found = await getattr(asker, which)([TopicPartition(*at) for at in partitions])
        return {(at.topic, at.partition): offset for at, offset in found.items()}


async def _send(producer: AIOKafkaProducer, message: Message, partitions: int) -> "asyncio.Future[Any]":
    acknowledged: asyncio.Future[Any] = await producer.send(
        message.topic,
        message.value,
        message.key.encode(),
        target_of(message, partitions),
        headers=[(name, value.encode()) for name, value in headers_of(message).items()],
    )
    return acknowledged
