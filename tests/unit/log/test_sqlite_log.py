"""The SQLite log when its file cannot be had."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from qm_service import log_sqlite
from qm_service.log import LogUnavailable, first_positions
from qm_service.log_sqlite import SqliteLog
from qm_service.testing.log_contract import message, new_topic, read_all


async def test_a_file_that_another_one_locks_is_said_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_sqlite, "BUSY_SECONDS", 0.1)
    log, topic = SqliteLog(tmp_path / "log.db"), new_topic()
    await log.ensure_topics([topic])
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    results = await asyncio.gather(*(log.publish([message(topic, str(i))]) for i in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [LogUnavailable] * 3
    assert await log.read(first_positions([topic]), 10) == []
    other.execute("ROLLBACK")
    other.close()
    await log.publish([message(topic, "a")])
    assert len(await read_all(log, first_positions([topic]))) == 1
    await log.close()


async def test_a_place_that_is_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "log.db"):
        log = SqliteLog(path)
        await log.start()
        with pytest.raises(LogUnavailable, match=str(path)):
            await log.ensure_topics([new_topic()])
        await log.close()


async def test_more_than_memory_should_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_sqlite, "WAITING_MESSAGES", 10)
    log, topic = SqliteLog(tmp_path / "log.db"), new_topic()
    await log.ensure_topics([topic])
    results = await asyncio.gather(
        *(log.publish([message(topic, str(i), version) for version in range(1, 5)]) for i in range(9)),
        return_exceptions=True,
    )
    assert LogUnavailable in map(type, results)
    assert len(await read_all(log, first_positions([topic]))) == 4 * results.count(None)
    await log.close()


async def test_closing_keeps_what_was_handed_over(tmp_path: Path) -> None:
    log, topic = SqliteLog(tmp_path / "log.db"), new_topic()
    await log.ensure_topics([topic])
    publishing = [asyncio.create_task(log.publish([message(topic, str(i))])) for i in range(20)]
    await asyncio.sleep(0)
    await log.close()
    await asyncio.gather(*publishing)
    again = SqliteLog(tmp_path / "log.db")
    assert len(await read_all(again, first_positions([topic]))) == 20
    await again.close()
