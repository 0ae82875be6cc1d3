"""What every log must do. Subclass `LogContract` in a test file and say how a log is made."""

import asyncio
import itertools
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from qm_events.registry import Topic
from qm_service.log import (
    EventLog,
    LogUnavailable,
    Message,
    Position,
    PositionLost,
    Record,
    TopicMisconfigured,
    first_positions,
    partition_of,
)
from qm_service.log_memory import MemoryLog
from qm_service.segments import SegmentRefused, export_log, import_log

_numbers = itertools.count()


def new_topic(partitions: int = 12) -> Topic:
    """Return a topic that nobody used before: tests share the broker."""
    return Topic(f"contract-{next(_numbers)}", "test", "order", partitions)


def message(topic: Topic, key: str, version: int = 1, value: bytes | None = None) -> Message:
    """Return the `version`-th fact of the stream about `key`."""
    return Message(
        topic=topic.name,
        key=key,
        type="thing.happened.v1",
        id=f"{key}@{version}",
        subject=f"thing/{key}",
        version=version,
        time="2020-02-29T12:00:00Z",
        value=b'{"id":"%s","time":"2020-02-29T12:00:00Z"}' % key.encode() if value is None else value,
    )


async def read_all(log: EventLog, position: Position, limit: int = 100) -> list[Record]:
    """Read from `position`, which is moved, until nothing is left."""
    found: list[Record] = []
    while records := await log.read(position, limit):
        for record in records:
            position[record.topic, record.partition] = record.offset + 1
        found += records
    return found


def versions(records: Sequence[Record]) -> dict[str, list[int]]:
    """Return the versions by stream, in the order in which they came."""
    found: dict[str, list[int]] = {}
    for record in records:
        found.setdefault(record.subject, []).append(record.version)
    return found


class LogContract:
    """The suite. `reopen` makes a second object on the same log, None where there is none."""

    @abstractmethod
    async def new_log(self) -> EventLog:
        """Return a log that is not started, on the place that the fixtures of the subclass gave."""

    @pytest.fixture
    async def log(self) -> AsyncIterator[EventLog]:
        """A log that is started, closed after the test."""
        log = await self.new_log()
        await log.start()
        yield log
        await log.close()

    @pytest.fixture
    async def topic(self, log: EventLog) -> Topic:
        """A new topic on it."""
        topic = new_topic()
        await log.ensure_topics([topic])
        return topic

    async def test_a_record_is_what_was_published(self, log: EventLog, topic: Topic) -> None:
        value = '{"text": "한국어 – \u0000"}'.encode() + b"x" * 100_000
        await log.publish([message(topic, "a", 7, value)])
        (record,) = await log.read(first_positions([topic]), 10, 5.0)
        at = partition_of("a", topic.partitions)
        assert record == Record(topic.name, at, 0, "thing.happened.v1", "thing/a", 7, value)
        assert record.position == f"{topic.name}/{at}/0"

    async def test_records_of_a_key_come_in_order_and_in_one_partition(self, log: EventLog, topic: Topic) -> None:
        keys = [f"order-{i}" for i in range(50)]
        for version in range(1, 11):
            await log.publish([message(topic, key, version) for key in keys])
        records = await read_all(log, first_positions([topic]))
        assert versions(records) == {f"thing/{key}": list(range(1, 11)) for key in keys}
        assert all(record.partition == partition_of(record.subject[6:], topic.partitions) for record in records)

    async def test_offsets_grow_within_a_partition(self, log: EventLog, topic: Topic) -> None:
        await log.publish([message(topic, str(i)) for i in range(300)])
        last: Position = {}
        for record in await read_all(log, first_positions([topic]), limit=7):
            assert record.offset > last.get((record.topic, record.partition), -1)
            last[record.topic, record.partition] = record.offset

    async def test_many_publish_at_once_and_nothing_is_lost(self, log: EventLog, topic: Topic) -> None:
        async def one(key: str) -> None:
            for version in range(1, 21):
                await log.publish([message(topic, key, version)])

        keys = [f"writer-{i}" for i in range(40)]
        await asyncio.gather(*(one(key) for key in keys))
        found = versions(await read_all(log, first_positions([topic])))
        assert found == {f"thing/{key}": list(range(1, 21)) for key in keys}

    async def test_reading_goes_on_from_any_position(self, log: EventLog, topic: Topic) -> None:
        await log.publish([message(topic, "a", version) for version in range(1, 11)])
        at = (topic.name, partition_of("a", topic.partitions))
        for offset in (4, 9, 0, 4):
            records = await log.read(first_positions([topic]) | {at: offset}, 3, 5.0)
            assert [record.offset for record in records] == [offset, offset + 1, offset + 2][: 10 - offset]

    async def test_two_readers_do_not_disturb_each_other(self, log: EventLog, topic: Topic) -> None:
        await log.publish([message(topic, str(i)) for i in range(200)])
        one, other = await asyncio.gather(
            read_all(log, first_positions([topic]), limit=9), read_all(log, first_positions([topic]), limit=13)
        )
        assert len(one) == len(other) == len(set(one)) == 200

    async def test_a_long_partition_does_not_starve_the_others(self, log: EventLog, topic: Topic) -> None:
        await log.publish([message(topic, "long", i, b"x" * 1_000) for i in range(1, 2_001)])
        short = [key for key in map(str, range(30)) if partition_of(key, 12) != partition_of("long", 12)]
        await log.publish([message(topic, key) for key in short])
        position, seen = first_positions([topic]), list[Record]()
        while len(versions(seen)) <= len(short):
            records = await log.read(position, 50)
            assert records
            seen += records
            position |= {(record.topic, record.partition): record.offset + 1 for record in records}
        assert len(seen) < 1_500

    async def test_a_waiting_reader_is_woken(self, log: EventLog, topic: Topic) -> None:
        reading = asyncio.create_task(log.read(first_positions([topic]), 10, 30.0))
        await asyncio.sleep(0)
        await log.publish([message(topic, "a")])
        async with asyncio.timeout(10.0):
            assert [record.subject for record in await reading] == ["thing/a"]

    async def test_reading_where_nothing_is_ends_in_time(self, log: EventLog, topic: Topic) -> None:
        async with asyncio.timeout(5.0):
            assert await log.read(first_positions([topic]), 10, 0.1) == []
            assert await log.read({}, 10) == []

    async def test_an_idle_reader_has_no_lag(self, log: EventLog, topic: Topic) -> None:
        await log.publish([message(topic, str(i)) for i in range(100)])
        position = first_positions([topic])
        assert sum((await log.ends([topic.name])).values()) == 100
        await read_all(log, position)
        assert position == await log.ends([topic.name])
        assert await log.starts([topic.name]) == first_positions([topic])
        assert await log.blocked() == {}

    async def test_a_position_above_the_end_is_lost_and_nothing_else_comes(self, log: EventLog, topic: Topic) -> None:
        await log.publish([message(topic, "a")])
        position = await log.ends([topic.name])
        position[topic.name, 3] += 1
        for wait_seconds in (0.0, 5.0, 0.0):
            with pytest.raises(PositionLost, match=f"{topic.name}/3"):
                await log.read(position, 10, wait_seconds)
        position[topic.name, 3] -= 1
        assert await log.read(position, 10) == []

    async def test_a_missing_topic_is_not_there_yet(self, log: EventLog) -> None:
        topic = new_topic()
        for call in (
            log.publish([message(topic, "a")]),
            log.read(first_positions([topic]), 10),
            log.ends([topic.name]),
            log.starts([topic.name]),
        ):
            with pytest.raises(LogUnavailable, match=topic.name):
                await call

    async def test_topics_are_ensured_again_and_again(self, log: EventLog, topic: Topic) -> None:
        await log.publish([message(topic, "a")])
        await log.ensure_topics([topic, new_topic()])
        assert sum((await log.ends([topic.name])).values()) == 1

    async def test_another_number_of_partitions_is_refused(self, log: EventLog, topic: Topic) -> None:
        with pytest.raises(TopicMisconfigured, match=f"{topic.name}: partitions is 12, must be 13"):
            await log.ensure_topics([Topic(topic.name, "test", "order", 13)])

    async def test_publishing_nothing_is_lawful(self, log: EventLog, topic: Topic) -> None:
        await log.publish([])
        assert sum((await log.ends([topic.name])).values()) == 0

    async def test_a_log_survives_its_object(self, log: EventLog, topic: Topic) -> None:
        await log.publish([message(topic, str(i)) for i in range(50)])
        second = await self.new_log()
        await second.start()
        try:
            assert len(await read_all(second, first_positions([topic]))) == 50
        finally:
            await second.close()

    async def test_an_exported_log_is_the_same_in_another_one(
        self, log: EventLog, topic: Topic, tmp_path: Path
    ) -> None:
        await log.publish([message(topic, str(i % 40), i // 40 + 1) for i in range(400)])
        await log.publish([message(topic, "poison", 1, b"\xff\x00 no json")])
        file, copy = tmp_path / "log.jsonl", MemoryLog()
        assert await export_log(log, file, [topic]) == 401
        assert await import_log(copy, file) == 401
        theirs = await read_all(copy, first_positions([topic]))
        assert sorted(theirs, key=_place) == sorted(await read_all(log, first_positions([topic])), key=_place)
        with pytest.raises(SegmentRefused, match="not empty"):
            await import_log(log, file)

    async def test_a_log_is_filled_from_a_file(self, log: EventLog, tmp_path: Path) -> None:
        topic, source, file = new_topic(), MemoryLog(), tmp_path / "log.jsonl"
        await source.ensure_topics([topic])
        await source.publish([message(topic, str(i % 40), i // 40 + 1) for i in range(2_500)])
        await export_log(source, file, [topic])
        assert await import_log(log, file) == 2_500
        mine = await read_all(log, first_positions([topic]))
        assert sorted(mine, key=_place) == sorted(await read_all(source, first_positions([topic])), key=_place)


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
