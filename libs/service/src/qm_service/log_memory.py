"""The log in memory, for tests and for worlds that end with their process."""

import asyncio
from collections.abc import Iterable, Sequence

from qm_events.registry import Topic
from qm_service.log import LogUnavailable, Message, Position, Record, TopicMisconfigured
from qm_service.log_rules import record_of, shares, target_of


class MemoryLog:
    """All records of all partitions, in lists. One event loop; nothing survives it."""

    def __init__(self) -> None:
        self._records: dict[str, list[list[Record]]] = {}
        self._grown = asyncio.Event()
        self._turn = 0

    async def start(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to let go of: the records stay, for a second reader in a test."""

    async def ensure_topics(self, topics: Iterable[Topic]) -> None:
        """Create what is missing. Raises TopicMisconfigured for another number of partitions."""
        for topic in topics:
            there = self._records.setdefault(topic.name, [[] for _ in range(topic.partitions)])
            if len(there) != topic.partitions:
                raise TopicMisconfigured(f"{topic.name}: partitions is {len(there)}, must be {topic.partitions}")

    async def publish(self, messages: Sequence[Message]) -> None:
        """Append all; every reader that waits wakes up."""
        for message in messages:
            partitions = self._partitions(message.topic)
            partition = target_of(message, len(partitions))
            records = partitions[partition]
            records.append(record_of(message, partition, len(records)))
        self._grown.set()
        self._grown = asyncio.Event()

    async def read(self, position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        """Return up to `limit` records from `position` on. Raises PositionLost."""
        grown = self._grown
        if not (found := self._take(position, limit)) and wait_seconds > 0:
            try:
                await asyncio.wait_for(grown.wait(), wait_seconds)
            except TimeoutError:
                return []
            return self._take(position, limit)
        return found

    async def ends(self, topics: Iterable[str]) -> Position:
        """Return the offset after the last record of every partition."""
        return self._ends(topics)

    async def starts(self, topics: Iterable[str]) -> Position:
        """Return 0 for every partition."""
        return {(topic, i): 0 for topic in topics for i, _ in enumerate(self._partitions(topic))}

    async def blocked(self) -> Position:
        """Return nothing: there are no transactions here."""
        return {}

    def _partitions(self, topic: str) -> list[list[Record]]:
        if topic not in self._records:
            raise LogUnavailable(f"topic {topic} is missing")
        return self._records[topic]

    def _ends(self, topics: Iterable[str]) -> Position:
        return {(topic, i): len(records) for topic in topics for i, records in enumerate(self._partitions(topic))}

    def _take(self, position: Position, limit: int) -> list[Record]:
        self._turn += 1
        ends = self._ends({topic for topic, _ in position})
        found: list[Record] = []
        for (topic, partition), count in shares(position, ends, limit, self._turn).items():
            offset = position[topic, partition]
            found += self._records[topic][partition][offset : offset + count]
        return found
