"""The topics as they lie in Kafka or in the SQLite log, read by nothing of the product: what its checks are made on."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they mean to export it
    AdminClient,
    OffsetSpec,
)

TOPICS = ("directory", "orders", "admissions", "quotas", "allocations", "fleet", "environments", "usage")
PARTITIONS = 12
_SECONDS = 20.0
_ASK_SECONDS = 5.0
_PLACES = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]


class Unreadable(Exception):
    """The broker does not tell now."""


@dataclass(frozen=True)
class Fact:
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    raw: bytes

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The CloudEvent."""
        body: Mapping[str, Any] = json.loads(self.raw)
        return body

    @property
    def type(self) -> str:
        """The wire type without its version, as `order.submitted`."""
        return str(self.body["type"]).rpartition(".v")[0]

    @property
    def data(self) -> Mapping[str, Any]:
        """What it says."""
        data: Mapping[str, Any] = self.body["data"]
        return data

    @property
    def stream(self) -> str:
        """Whose history it belongs to."""
        return str(self.body["subject"])


def ends_of_kafka(servers: str) -> dict[str, int]:
    """Return how many records each topic has, all partitions together. Raises Unreadable."""
    wanted = {TopicPartition(*place): OffsetSpec.latest() for place in _PLACES}  # type: ignore[no-untyped-call]  # theirs
    ends = dict.fromkeys(TOPICS, 0)
    try:
        for place, answer in _asker(servers).list_offsets(wanted, request_timeout=_ASK_SECONDS).items():
            ends[place.topic] += answer.result().offset
    except KafkaException as error:
        _asker.cache_clear()  # it goes on believing in the leader that was
        raise Unreadable from error
    return ends


@cache
def _asker(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def wipe(servers: str) -> None:
    """Delete all topics of the product, so that a test begins with none. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    there = [topic for topic in admin.list_topics(timeout=_SECONDS).topics if topic in TOPICS]
    for deleted in admin.delete_topics(there).values() if there else ():
        deleted.result(_SECONDS)


def facts_of_kafka(servers: str) -> list[Fact]:
    """Return all records, partition by partition in order. Raises KafkaException."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(settings | {"enable.auto.commit": False, "auto.offset.reset": "error"})
    try:
        consumer.assign([TopicPartition(*place, 0) for place in _PLACES])
        return sorted(_until_the_ends(consumer), key=lambda fact: (fact.topic, fact.partition, fact.offset))
    finally:
        consumer.close()


def _until_the_ends(consumer: Consumer) -> Iterator[Fact]:
    left: set[tuple[str | None, int | None]] = set(_PLACES)
    until = monotonic() + _SECONDS
    while left:
        message = consumer.poll(_SECONDS)
        if message is None or monotonic() > until:
            raise KafkaException(f"no end of {left} within {_SECONDS} s")
        if (error := message.error()) is None:
            yield Fact(message.topic() or "", message.partition() or 0, message.offset() or 0, message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard((message.topic(), message.partition()))
        else:
            raise KafkaException(error)


def ends_of_sqlite(path: Path) -> dict[str, int]:
    """Return how many records each topic has, all partitions together."""
    with closing(sqlite3.connect(path, timeout=_SECONDS)) as db:
        return dict(db.execute("SELECT topic, sum(head) FROM partitions GROUP BY topic"))


def facts_of_sqlite(path: Path) -> list[Fact]:
    """Return all records, partition by partition in order."""
    with closing(sqlite3.connect(path, timeout=_SECONDS)) as db:
        places = {
            at: (topic, number) for at, topic, number in db.execute("SELECT id, topic, partition FROM partitions")
        }
        rows = db.execute("SELECT place >> 40, place & ((1 << 40) - 1), value FROM records ORDER BY place").fetchall()
    facts = [Fact(*places[at], offset, value) for at, offset, value in rows]
    return sorted(facts, key=lambda fact: (fact.topic, fact.partition, fact.offset))
