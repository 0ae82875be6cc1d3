"""Reading a set of partitions from positions that the caller keeps."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError, OffsetOutOfRangeError

from qm_service.kafka_clients import abandon, bounded
from qm_service.log import LogUnavailable, Position, PositionLost, Record

_INSIST_SECONDS = 0.2


class KafkaReader:
    """One consumer for one set of partitions. It knows where it stands, so that reading on costs no seek."""

    def __init__(
        self, partitions: frozenset[tuple[str, int]], connect: Callable[[], Awaitable[AIOKafkaConsumer]]
    ) -> None:
        self.holes: dict[tuple[str, int], tuple[int, int]] = {}
        """Partition -> (first, past): no record lies from offset `first` to before `past`, only markers."""
        self._partitions = [TopicPartition(*at) for at in sorted(partitions)]
        self._connect = connect
        self._consumer: AIOKafkaConsumer | None = None
        self._next: Position = {}
        self._lock = asyncio.Lock()

    async def read(
        self, position: Position, limit: int, wait_seconds: float, ends: Callable[[], Awaitable[Position]]
    ) -> list[Record]:
        """Return up to `limit` records from `position` on. Raises PositionLost, LogUnavailable; then it starts anew."""
        async with self._lock:
            try:
                consumer = await self._at(position)
                found = await self._take(consumer, limit, wait_seconds)
                return found or await self._make_sure(consumer, limit, await ends())
            except OffsetOutOfRangeError as error:
                lost = ", ".join(f"{at.topic}/{at.partition}: {offset}" for at, offset in error.args[0].items())
                raise PositionLost(f"positions that the log does not cover: {lost}") from error
            except (KafkaError, ConsumerStoppedError) as error:
                await self.close()
                raise LogUnavailable(f"read: {error!r}") from error
            except LogUnavailable:
                await self.close()
                raise

    async def close(self) -> None:
        """Let go of the consumer; the next `read` makes another."""
        consumer, self._consumer, self._next = self._consumer, None, {}
        if consumer is not None:
            await abandon(consumer)

    def idle(self) -> bool:
        """Return whether nobody is reading now."""
        return not self._lock.locked()

    def blocked(self) -> Position:
        """Return how many records of a partition lie behind an open transaction, by the last answer of the broker."""
        counts: Position = {}
        if consumer := self._consumer:
            for at in self._partitions:
                high, stable = consumer.highwater(at), consumer.last_stable_offset(at)
                if high and stable is not None and high > stable >= 0:
                    counts[at] = high - stable
        return counts

    async def _at(self, position: Position) -> AIOKafkaConsumer:
        if self._consumer is None:
            self._consumer = await self._connect()
            self._consumer.assign(self._partitions)
        for at in self._partitions:
            if self._next.get(at) != position[at]:
                self._consumer.seek(at, position[at])
                self._next[at] = position[at]
        return self._consumer

    async def _take(self, consumer: AIOKafkaConsumer, limit: int, wait_seconds: float) -> list[Record]:
        found: list[Record] = []
        for at, records in (await consumer.getmany(timeout_ms=int(wait_seconds * 1000), max_records=limit)).items():
            found += map(_record, records)
            self._next[at] = records[-1].offset + 1
        return found

    async def _make_sure(self, consumer: AIOKafkaConsumer, limit: int, ends: Position) -> list[Record]:
        """Insist where the log goes on: an empty answer may also mean that the client is not there yet, or sleeps."""
        async with bounded("read"):
            # Above the end, the broker has the last word: a new leader may know less for a moment.
            while [
                at for at in self._partitions if self._next[at] > ends[at] or await consumer.position(at) < ends[at]
            ]:
                if found := await self._take(consumer, limit, _INSIST_SECONDS):
                    return found
        for at in self._partitions:
            if (past := await consumer.position(at)) > self._next[at]:
                self.holes[at] = (self._next[at], past)
        return []


def _record(record: ConsumerRecord) -> Record:
    headers = dict(record.headers)
    # A record of somebody else may lack them: it is handed on as it is, the reader decides.
    version = 0
    with suppress(ValueError):
        version = int(headers.get("ce_version", b"0"))
    return Record(
        record.topic,
        record.partition,
        record.offset,
        headers.get("ce_type", b"").decode(errors="replace"),
        headers.get("ce_subject", b"").decode(errors="replace"),
        version,
        record.value or b"",
    )
