"""A replay that was killed half way: nobody serves on half a history, and the next replay makes it whole."""

import asyncio
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from qm_events import new_event
from qm_events.admission import OrderAdmitted
from qm_events.catalog import OrderSubmitted
from qm_events.registry import TOPICS
from qm_service import refold
from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.inputs import ReplayNeeded
from qm_service.log import Message
from qm_service.log_sqlite import SqliteLog
from qm_service.replay import NotEmpty, replay, state_hash
from qm_service.runtime import Runtime
from qm_service.store import message_of
from qm_service.testing.world import START
from tests.crash.forks import FORKS
from tests.support.toys import CATALOG, request

pytestmark = pytest.mark.crash

ORDERS = 300


def history() -> list[Message]:
    """Return what lies on the topics."""
    found: list[Message] = []
    for i in range(ORDERS):
        order = f"o{i}"
        submitted = OrderSubmitted(
            order=order, request=request(labels={"order": order}), digest="d", submitted_at=START
        )
        admitted = OrderAdmitted(order=order, request=request(), digest="d", submitted_at=START)
        found.append(message_of(new_event(f"order/{order}", 1, START, "/quartermaster/catalog", submitted)))
        found.append(message_of(new_event(f"admission/{order}", 1, START, "/quartermaster/admission", admitted)))
    return found


def play(log: str, database: str, chunks: int, told: "Connection[int, int]") -> None:
    """Replay in a process of its own, in small chunks; say so and wait for the end after so many transactions."""
    asyncio.run(_play(log, database, chunks, told))


async def _play(log: str, database: str, chunks: int, told: "Connection[int, int]") -> None:
    refold.CHUNK = 50
    place, left = Database(database, durable=False), chunks
    write = place.write

    def counted() -> object:
        nonlocal left
        left -= 1
        if left < 0:
            told.send(chunks)
            signal.pause()
        return write()

    place.write = counted  # type: ignore[assignment,method-assign]  # the moment of the kill
    await replay(CATALOG, place, SqliteLog(log))
    told.send(chunks)


def killed_after(chunks: int, log: Path, database: str) -> None:
    """Kill a replay after so many of its transactions."""
    heard, told = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=play, args=(str(log), database, chunks, told), daemon=True)
    process.start()
    told.close()
    assert heard.poll(60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    heard.close()


async def test_nobody_serves_on_a_replay_that_was_killed_and_the_next_one_is_whole(tmp_path: Path) -> None:
    log, url = SqliteLog(tmp_path / "log.db"), f"sqlite+aiosqlite:///{tmp_path}/catalog.db"
    await log.ensure_topics(TOPICS.values())
    await log.publish(history())
    whole, database = Database("sqlite+aiosqlite://"), Database(url, durable=False)
    await replay(CATALOG, whole, log)
    for chunks in (1, 2, 4, 14):
        await asyncio.to_thread(killed_after, chunks, tmp_path / "log.db", url)
        with pytest.raises(ReplayNeeded, match="replay it"):
            await Runtime(CATALOG, database, log, WallClock(), stepped=True).start()
        if chunks > 2:
            with pytest.raises(NotEmpty):
                await replay(CATALOG, database, log)
        async with database.write() as tx:
            await tx.run_sync(Runtime(CATALOG, database, log, WallClock()).schema.metadata.drop_all)
    await replay(CATALOG, database, log)
    assert await state_hash(database, CATALOG) == await state_hash(whole, CATALOG)
    runtime = Runtime(CATALOG, database, log, WallClock())
    await runtime.start()
    assert runtime.status().leader
    await runtime.stop()
    for place in (whole, database):
        await place.close()
    await log.close()
