"""The log port: topics of partitions of records, kept for ever. Implemented by `log_memory`, `log_sqlite`, `log_kafka`.

What all promise, and no more: a record that `publish` returned for is durable; records of one key come in the order in
which they were published; any record may come twice, at another offset; offsets grow but may have holes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from qm_events.registry import Topic

Position = dict[tuple[str, int], int]
"""(topic, partition) -> the offset to read next."""


class PositionLost(Exception):
    """A position is below the start of the log or above its end: stop loudly, never rewind or skip."""


class LogUnavailable(Exception):
    """The log cannot be reached now; try again."""


class TopicMisconfigured(Exception):
    """A topic has other settings than the product needs; names topic and setting."""


@dataclass(frozen=True, slots=True)
class Message:
    """One fact on its way to the log: the bytes are the structured CloudEvent."""

    topic: str
    key: str
    type: str
    id: str
    subject: str
    version: int
    time: str
    value: bytes
    traceparent: str | None = None
    partition: int | None = None
    """Only where a log is restored; otherwise the key decides."""


@dataclass(frozen=True, slots=True)
class Record:
    """One fact as it lies in the log."""

    topic: str
    partition: int
    offset: int
    type: str
    subject: str
    version: int
    value: bytes

    @property
    def position(self) -> str:
        """`topic/partition/offset`, as `Event.input` names it."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class EventLog(Protocol):
    """Where topics live. Every call is bounded in time and raises LogUnavailable instead of hanging."""

    async def start(self) -> None:
        """Connect. May be called while the log is down: later calls connect by themselves."""

    async def close(self) -> None:
        """Let go within seconds, also while the log is down."""

    async def ensure_topics(self, topics: Iterable[Topic]) -> None:
        """Create what is missing and check what is there. Raises TopicMisconfigured."""

    async def publish(self, messages: Sequence[Message]) -> None:
        """Append all, in order; durable on return. LogUnavailable: any part of them may be there, publish all again."""

    async def read(self, position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        """Return up to `limit` records from `position` on, in order within a partition, fair over partitions.

        Waits up to `wait_seconds` for the first; nothing means that nothing is there. Raises PositionLost.
        """

    async def ends(self, topics: Iterable[str]) -> Position:
        """Return the offset after the last readable record of every partition."""

    async def blocked(self) -> Position:
        """Return how many records of a partition cannot be read yet because a foreign transaction is open.

        Only of partitions that are being read and have some. `ends` leaves them out; they are lag all the same.
        """

    async def starts(self, topics: Iterable[str]) -> Position:
        """Return the first offset of every partition (0 unless something is wrong)."""


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key: murmur2 as Kafka's own clients compute it, so that every client finds it there."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 of Kafka (`org.apache.kafka.common.utils.Utils.murmur2`), seed 0x9747b28c."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def first_positions(topics: Mapping[str, Topic] | Iterable[Topic]) -> Position:
    """Return the position before the first record of all topics."""
    values = topics.values() if isinstance(topics, Mapping) else topics
    return {(topic.name, partition): 0 for topic in values for partition in range(topic.partitions)}
