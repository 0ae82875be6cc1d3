"""Time that is moved by hand, and names that sort by age."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from qm_service.clock import FileClock, ManualClock, WallClock, clock_from, new_id
from tests.support.toys import at


async def test_who_waits_on_a_manual_clock_looks_again_when_it_is_moved() -> None:
    clock = ManualClock(at("08:00"))
    waiting = asyncio.create_task(clock.wait(at("09:00"), 60))
    await asyncio.sleep(0)
    clock.advance(timedelta(minutes=5))
    async with asyncio.timeout(5):
        await waiting
    assert clock.now() == at("08:05")
    await clock.wait(at("08:05"), 60)


async def test_a_wait_ends_after_its_limit() -> None:
    async with asyncio.timeout(5):
        await ManualClock(at("08:00")).wait(at("09:00"), 0.01)
        await WallClock().wait(None, 0.01)


async def test_processes_share_the_time_in_a_file(tmp_path: Path) -> None:
    mine, other = (clock_from(f"manual:{tmp_path / 'clock'}") for _ in range(2))
    assert isinstance(mine, FileClock)
    waiting = asyncio.create_task(other.wait(at("08:10"), 60))
    await asyncio.sleep(0)
    for minute in range(1, 20):
        mine.set(at(f"08:{minute:02}"))
        assert other.now() == at(f"08:{minute:02}")
    async with asyncio.timeout(5):
        await waiting


def test_an_unknown_clock_is_refused() -> None:
    with pytest.raises(ValueError, match="sundial"):
        clock_from("sundial")


def test_ids_are_unique_and_sort_by_age() -> None:
    ids = [new_id() for _ in range(10_000)]
    assert all(one < other for one, other in pairwise(ids))
    assert {UUID(one).version for one in ids} == {7}
