"""What the scheduler weighs and what its past costs: memory with a large fleet and a long queue, and a full replay."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from bench.log import on_a_loop
from bench.scheduler import CARDS, Place, one_card, serving
from qm_events import Event, encode
from qm_events.registry import TOPICS
from qm_events.specs import OrderRequest
from qm_scheduler.consumers import SCHEDULER
from qm_service.database import Database
from qm_service.log import EventLog, Message
from qm_service.log_sqlite import SqliteLog
from qm_service.replay import replay
from qm_service.store import message_of
from tests.unit.scheduler.shadow import Taped
from tests.unit.scheduler.yard import request

NODES, PENDING = 12_800, 100_000
MEMORY_MIB = 1_024.0
FACTS = 1_000_000
REPLAY_SECONDS = 60.0
_ORDERS, _FLEET = 500, 32
"""Of one chapter of the past."""
_HEAD = b'{"specversion":"1.0",'


def memory(quick: bool) -> list[Figure]:
    """Fill a fleet, let orders wait for it, and look at the process; then at one that starts with all that."""
    scale = 10 if quick else 1
    nodes, pending = NODES // scale, PENDING // scale
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        ran, started = (_process(folder, how, nodes, pending) for how in ("fill", "start"))
    name = f"memory, {nodes * CARDS:,} cards, {pending:,} pending"
    budget = MEMORY_MIB / scale + (1 - 1 / scale) * 128
    return [
        Figure(f"{name}, that came one after another", ran, "MiB", budget, "<="),
        Figure(f"{name}, after a start", started, "MiB", budget, "<="),
    ]


def _process(folder: str, how: str, nodes: int, pending: int) -> float:
    command = [sys.executable, "-m", "bench.size", folder, how, str(nodes), str(pending)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


async def _filled(folder: Path, how: str, nodes: int, pending: int) -> float:
    """Return the resident memory in MiB."""
    place = Place(f"sqlite+aiosqlite:///{folder / 'scheduler.sqlite'}", lambda: SqliteLog(folder / "log.sqlite"))
    async with serving(place) as served:
        if how == "fill":
            await served.fleet(nodes)
            await served.admit((f"h{n:06}" for n in range(nodes)), _whole_node)
            await served.durable("allocation.allocated.v1", nodes)
            await served.admit((f"o{n:06}" for n in range(pending)), one_card)
            await served.durable("allocation.waiting.v1", pending)
        await served.rest()
        assert len(served.runtime.context().index.queue.orders) == pending
        return _rss_mib()


def _rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def _whole_node(n: int) -> OrderRequest:
    return request(cards=CARDS, cpu=32_000, memory=262_144, project=f"p{n % 50}", duration_seconds=3_600)


def replayed(quick: bool) -> list[Figure]:
    """Rebuild the database of the scheduler from topics that tell of orders that came, were served and went."""
    count = FACTS // (10 if quick else 1)
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        took = on_a_loop(_replayed(Path(folder), count))
    budget = REPLAY_SECONDS * count / FACTS
    return [Figure(f"full replay of {count:,} facts", took, "s", budget, "<=")]


async def _replayed(folder: Path, count: int) -> float:
    log, database = SqliteLog(folder / "log.sqlite"), Database(f"sqlite+aiosqlite:///{folder / 'fresh.sqlite'}")
    await log.ensure_topics(TOPICS.values())
    try:
        await _publish(log, count)
        began = time.perf_counter()
        await replay(SCHEDULER, database, log)
        return time.perf_counter() - began
    finally:
        await log.close()
        await database.close()


async def _publish(log: EventLog, count: int) -> None:
    """Publish the past: first what others said, then own facts, of which some name the last of those as their input."""
    tape = _tape()
    own = [event.source.endswith("/scheduler") for event in tape]
    chapters = -(-count // len(tape))
    for chapter in range(chapters):
        await log.publish([_told(event, chapter) for event, mine in zip(tape, own, strict=True) if not mine])
    ends = await log.ends([name for name in TOPICS if name not in ("allocations", "fleet")])
    inputs = iter([f"{topic}/{partition}/{end - 1}" for (topic, partition), end in ends.items() if end])
    for chapter in range(chapters):
        await log.publish([_told(event, chapter, inputs) for event, mine in zip(tape, own, strict=True) if mine])


def _tape() -> list[Event[object]]:
    yard = Taped()
    for n in range(_FLEET):
        yard.node(f"NODE-{n}", {"h100": CARDS}, rack=f"rack-{n // 8}")
    for n in range(_ORDERS):
        order = f"ORDER-{n:04}"
        yard.order(order, request(cards=1 + n % 8, project=f"p{n % 20}"), settle=False)
        if n >= _FLEET:
            yard.settle()
            gone = f"ORDER-{n - _FLEET:04}"
            if yard.placed(gone):
                yard.ready(gone)
                yard.give_back(gone)
    return yard.tape


def _told(event: Event[object], chapter: int, inputs: Iterator[str] | None = None) -> Message:
    """Return a fact of a chapter: the same story on other nodes, of other orders."""
    message, mark = message_of(event), f"C{chapter}-"
    value = encode(event).replace(b"NODE-", f"{mark}NODE-".encode()).replace(b"ORDER-", f"{mark}ORDER-".encode())
    if inputs is not None and (seen := next(inputs, None)) is not None:
        value = value.replace(_HEAD, _HEAD + f'"input":"{seen}",'.encode(), 1)
    kind, _, key = message.subject.partition("/")
    return Message(
        topic=message.topic,
        key=f"{mark}{key}",
        type=message.type,
        id=f"{mark}{message.id}",
        subject=f"{kind}/{mark}{key}",
        version=message.version,
        time=message.time,
        value=value,
    )


if __name__ == "__main__":
    print(on_a_loop(_filled(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
