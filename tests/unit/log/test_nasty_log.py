"""The nasty log is nasty, and no nastier than a log may be."""

from itertools import pairwise

from qm_service.log import Record, first_positions
from qm_service.log_memory import MemoryLog
from qm_service.testing.log_contract import message, new_topic, read_all, versions
from qm_service.testing.nasty import NastyLog

KEYS = [f"order-{i}" for i in range(20)]


async def story(seed: int) -> tuple[list[Record], list[Record]]:
    """Return what was read from a nasty log, and what lies in it."""
    inside, topic = MemoryLog(), new_topic()
    log = NastyLog(inside, seed)
    await log.ensure_topics([topic])
    for version in range(1, 11):
        await log.publish([message(topic, key, version) for key in KEYS])
    return await read_all(log, first_positions([topic]), 50), await read_all(inside, first_positions([topic]))


async def test_the_facts_of_a_key_first_come_in_order() -> None:
    for seed in range(20):
        for seen in versions((await story(seed))[0]).values():
            assert list(dict.fromkeys(seen)) == list(range(1, 11))


async def test_facts_come_twice_at_new_offsets_and_late() -> None:
    read, inside = await story(1)
    assert len(set(read)) == len(read) == len(inside) > 10 * len(KEYS)
    assert any(after < before for seen in versions(read).values() for before, after in pairwise(seen))


async def test_everything_in_the_log_is_read_once_and_in_order_within_a_partition() -> None:
    read, inside = await story(2)
    assert sorted(read, key=_place) == sorted(inside, key=_place)
    for partition in range(12):
        offsets = [record.offset for record in read if record.partition == partition]
        assert offsets == sorted(offsets)


async def test_partitions_are_mixed_and_the_seed_decides() -> None:
    first, second, other = (await story(3))[0], (await story(3))[0], (await story(4))[0]
    partitions = [record.partition for record in first]
    assert sum(a != b for a, b in pairwise(partitions)) > len(partitions) / 3
    assert [_place(record) for record in first] == [_place(record) for record in second]
    assert [_place(record) for record in first] != [_place(record) for record in other]


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset
