"""A damaged or unfit file is refused before anything is written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qm_service.log import LogUnavailable, first_positions
from qm_service.log_memory import MemoryLog
from qm_service.segments import SegmentRefused, export_log, import_log
from qm_service.testing.log_contract import message, new_topic, read_all

TOPIC = new_topic()


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    log = MemoryLog()
    await log.ensure_topics([TOPIC])
    await log.publish([message(TOPIC, str(i)) for i in range(20)])
    await export_log(log, tmp_path / "log.jsonl", [TOPIC])
    return tmp_path / "log.jsonl"


def rewrite(file: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the content of a file."""
    file.write_bytes(change(file.read_bytes()))


async def refused(file: Path, why: str) -> None:
    """Assert that the file is refused and that no topic was made."""
    log = MemoryLog()
    with pytest.raises(SegmentRefused, match=why):
        await import_log(log, file)
    with pytest.raises(LogUnavailable):
        await log.ends([TOPIC.name])


async def test_a_changed_byte_is_found(file: Path) -> None:
    rewrite(file, lambda content: content.replace(b"thing/7", b"thing/8", 1))
    await refused(file, "damaged or cut off")


@pytest.mark.parametrize("lines", [0, 1, 2, 10, 21])
async def test_a_file_that_was_cut_off_is_found(file: Path, lines: int) -> None:
    rewrite(file, lambda content: b"".join(content.splitlines(keepends=True)[:lines]))
    await refused(file, "damaged or cut off|no JSON")


async def test_a_log_with_a_hole_is_refused_because_offsets_would_move(tmp_path: Path) -> None:
    class Holed(MemoryLog):
        async def starts(self, topics):  # type: ignore[no-untyped-def]
            return {at: min(1, end) for at, end in (await self.ends(topics)).items()}

    log = Holed()
    await log.ensure_topics([TOPIC])
    await log.publish([message(TOPIC, "a", version) for version in range(1, 5)])
    file = tmp_path / "log.jsonl"
    await export_log(log, file, [TOPIC])
    await refused(file, "hole")


async def test_what_comes_during_an_export_is_left_for_the_next(tmp_path: Path) -> None:
    class Growing(MemoryLog):
        async def read(self, position, limit, wait_seconds=0.0):  # type: ignore[no-untyped-def]
            await self.publish([message(TOPIC, "late")])
            return await super().read(position, limit, wait_seconds)

    log = Growing()
    await log.ensure_topics([TOPIC])
    await log.publish([message(TOPIC, str(i)) for i in range(100)])
    assert await export_log(log, tmp_path / "log.jsonl", [TOPIC]) == 100


async def test_an_empty_log_has_a_file_too(tmp_path: Path) -> None:
    log, copy = MemoryLog(), MemoryLog()
    await log.ensure_topics([TOPIC])
    assert await export_log(log, tmp_path / "log.jsonl", [TOPIC]) == 0
    assert await import_log(copy, tmp_path / "log.jsonl") == 0
    assert await read_all(copy, first_positions([TOPIC])) == []
