"""Killed writers of the SQLite log: what was acknowledged is there, and nothing is half there."""

import itertools
import random
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from qm_service.log import Position, Record, first_positions
from qm_service.log_sqlite import SqliteLog
from qm_service.testing.log_contract import read_all, versions
from tests.crash.sqlite_log_writer import TOPIC, WRITERS

pytestmark = pytest.mark.crash

KILLS = 12


class Writer:
    """A writing process. `promised` has the last version of each key that was acknowledged."""

    def __init__(self, path: Path, name: str) -> None:
        command = [sys.executable, "-m", "tests.crash.sqlite_log_writer", str(path), name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.promised: dict[str, int] = {}

    def follow(self, lines: int | None) -> None:
        """Take in what it prints: that many lines, or all that are left."""
        assert self._process.stdout is not None
        for line in itertools.islice(self._process.stdout, lines):
            if line.endswith("\n"):  # the kill may have cut off the last one
                key, version = line.split()
                self.promised[key] = int(version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with self._process:
            self.follow(None)


async def everything(path: Path) -> list[Record]:
    """Return all records of a log, after a look at their offsets."""
    log = SqliteLog(path)
    position: Position = first_positions([TOPIC])
    records = await read_all(log, position, 1_000)
    assert position == await log.ends([TOPIC.name])
    await log.close()
    for _, of_partition in itertools.groupby(sorted(records, key=_place), key=lambda record: record.partition):
        offsets = [record.offset for record in of_partition]
        assert offsets == list(range(len(offsets)))
    return records


async def test_what_a_killed_writer_was_promised_is_there(tmp_path: Path) -> None:
    path, chance = tmp_path / "log.db", random.Random(7)
    promised: dict[str, int] = {}
    for kill in range(KILLS):
        with Writer(path, f"run{kill}") as writer:
            writer.follow(chance.randint(1, 2_000))
        promised |= writer.promised
    found = versions(await everything(path))
    for key, last in promised.items():
        there = found[f"thing/{key}"]
        assert there == list(range(1, len(there) + 1))
        assert last <= len(there) <= last + 1


async def test_two_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with Writer(path, "one") as one, Writer(path, "two") as two:
        one.follow(2_000)
        two.follow(2_000)
    found = versions(await everything(path))
    assert len(one.promised) == len(two.promised) == WRITERS
    for key, last in (one.promised | two.promised).items():
        assert found[f"thing/{key}"][:last] == list(range(1, last + 1))


async def test_a_record_of_another_process_wakes_a_waiting_reader(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await log.ensure_topics([TOPIC])
    with Writer(tmp_path / "log.db", "other"):
        assert await log.read(first_positions([TOPIC]), 1, 30.0)
    await log.close()


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset
