"""A log that does all that a log may do to its readers. What works on it has no luck built in."""

import random
from collections.abc import Iterable, Sequence

from qm_events.registry import Topic
from qm_service.log import EventLog, Message, Position, Record

_REPEAT_RUN = 0.1
_REPEAT_OLD = 0.05
_HIDE = 0.4
_LONGEST_RUN = 5
_REMEMBERED = 500


class NastyLog:
    """Wraps a log, by the seed always in the same way.

    Runs of messages are published twice, at once or long after, at new offsets. A read sees some partitions only, takes
    fewer records than it may and mixes the partitions. The facts of a key first come in order, and a read that returns
    nothing still means that nothing is there.
    """

    def __init__(self, log: EventLog, seed: int) -> None:
        self._log = log
        self._random = random.Random(seed)
        self._old: list[Message] = []

    async def start(self) -> None:
        """As the log inside."""
        await self._log.start()

    async def close(self) -> None:
        """As the log inside."""
        await self._log.close()

    async def ensure_topics(self, topics: Iterable[Topic]) -> None:
        """As the log inside."""
        await self._log.ensure_topics(topics)

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish all, and some of them and of earlier ones again."""
        await self._log.publish(self._worse(messages))

    async def read(self, position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        """Return some of what is there, the partitions mixed."""
        seen = {at: offset for at, offset in position.items() if self._random.random() > _HIDE}
        found = await self._log.read(seen, self._random.randint(1, limit)) if seen else []
        return self._mixed(found or await self._log.read(position, limit, wait_seconds))

    async def ends(self, topics: Iterable[str]) -> Position:
        """As the log inside."""
        return await self._log.ends(topics)

    async def starts(self, topics: Iterable[str]) -> Position:
        """As the log inside."""
        return await self._log.starts(topics)

    async def blocked(self) -> Position:
        """As the log inside."""
        return await self._log.blocked()

    def _worse(self, messages: Sequence[Message]) -> list[Message]:
        published: list[Message] = []
        for message in messages:
            published.append(message)
            if self._random.random() < _REPEAT_RUN:
                published += published[-self._random.randint(1, _LONGEST_RUN) :]
            if self._old and self._random.random() < _REPEAT_OLD:
                published.append(self._random.choice(self._old))
        self._old = [*self._old, *messages][-_REMEMBERED:]
        return published

    def _mixed(self, records: list[Record]) -> list[Record]:
        queues: dict[tuple[str, int], list[Record]] = {}
        for record in reversed(records):
            queues.setdefault((record.topic, record.partition), []).append(record)
        order = [(record.topic, record.partition) for record in records]
        self._random.shuffle(order)
        return [queues[at].pop() for at in order]
