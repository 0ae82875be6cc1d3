"""The embedded log alone: durable appends, typed replay, and the way from a publisher to a consumer."""

import asyncio
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from bench.facts import facts
from bench.figures import Figure, latencies
from qm_events import TOPICS, decode
from qm_service.cli import collect_rarely
from qm_service.log import Message, first_positions
from qm_service.log_sqlite import SqliteLog
from qm_service.store import message_of

WAITERS = {1: 200, 16: 2_000, 128: 10_000, 512: 40_000}
"""Publishers that wait for the disk at once -> appends to measure."""
REPLAYED = 40_000
DELIVERED = 1_000

T = TypeVar("T")


def appends(quick: bool) -> list[Figure]:
    """Append one fact a call, each call returning when it is on the disk."""
    return [_appends(waiters, count // (10 if quick else 1)) for waiters, count in WAITERS.items()]


def _appends(waiters: int, count: int) -> Figure:
    todo = [message_of(event) for event in facts(count)]

    async def publish(log: SqliteLog) -> None:
        while todo:
            await log.publish([todo.pop()])

    async def measure(log: SqliteLog) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(publish(log) for _ in range(waiters)))
        return count / (time.perf_counter() - began)

    budget = 15_000.0 if waiters == 512 else None
    return Figure(f"durable appends, {waiters} waiters", _on_a_log(measure), "events/s", budget)


def replay(quick: bool) -> list[Figure]:
    """Read a topic from its beginning and decode every fact into its class."""
    count = REPLAYED // (10 if quick else 1)

    async def measure(log: SqliteLog) -> tuple[float, float]:
        await _fill(log, count)
        return await _replayed(log, count, typed=False), await _replayed(log, count, typed=True)

    raw, typed = _on_a_log(measure)
    return [Figure("raw replay", raw, "events/s"), Figure("typed replay", typed, "events/s", 30_000.0)]


async def _replayed(log: SqliteLog, count: int, *, typed: bool) -> float:
    position, left = first_positions([TOPICS["orders"]]), count
    began = time.perf_counter()
    while left:
        for record in await log.read(position, 1_000):
            if typed:
                decode(record.value, record.type)
            position[record.topic, record.partition] = record.offset + 1
            left -= 1
    return count / (time.perf_counter() - began)


def delivery(quick: bool) -> list[Figure]:
    """Publish one fact after another and take the time until a waiting consumer has it."""
    count = DELIVERED // (10 if quick else 1)

    async def measure(log: SqliteLog) -> list[float]:
        took, position = list[float](), first_positions([TOPICS["orders"]])
        for message in map(message_of, facts(count)):
            reading = asyncio.create_task(log.read(position, 10, 5.0))
            await asyncio.sleep(0)
            began = time.perf_counter()
            await log.publish([message])
            for record in await reading:
                position[record.topic, record.partition] = record.offset + 1
            took.append(time.perf_counter() - began)
        return took

    return latencies("publish to consumer, embedded", _on_a_log(measure), 15.0)


async def _fill(log: SqliteLog, count: int) -> None:
    batch: list[Message] = []
    for event in facts(count):
        batch.append(message_of(event))
        if len(batch) == 1_000:
            await log.publish(batch)
            batch = []
    await log.publish(batch)


def _on_a_log(measure: Any) -> Any:
    async def run() -> Any:
        with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
            log = SqliteLog(Path(folder) / "log.sqlite")
            await log.ensure_topics(TOPICS.values())
            try:
                return await measure(log)
            finally:
                await log.close()

    return on_a_loop(run())


def on_a_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run on the loop that the product runs on, with memory looked through as rarely."""
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
