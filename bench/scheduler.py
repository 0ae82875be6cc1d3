"""The scheduler as a service of its own: what admission lets in comes over the log, every fact is durable when it
counts. What it is measured on: SQLite with the embedded log, and PostgreSQL with Apache Kafka."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qm_events import Event, EventData, new_event
from qm_events.admission import OrderAdmitted
from qm_events.registry import TOPICS
from qm_events.specs import OrderRequest
from qm_scheduler.consumers import SCHEDULER
from qm_scheduler.inventory import Describe
from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log import EventLog
from qm_service.log_kafka import KafkaLog
from qm_service.log_sqlite import SqliteLog
from qm_service.model import Act
from qm_service.runtime import Runtime
from qm_service.store import message_of
from tests.support.servers import Kafka, Postgres
from tests.unit.chassis.support import until
from tests.unit.scheduler.yard import node_fact, request

CARDS = 8
PROJECTS = 50
AT_ONCE = 1_000
"""Orders in one call of the log."""
LIMIT_SECONDS = 900.0


@dataclass
class Place:
    """Where a service keeps its facts, and publishes them."""

    database: str
    log: Callable[[], EventLog]


@contextmanager
def on_sqlite() -> Iterator[Place]:
    """Keep all in files, as `qm up` does."""
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        yield Place(
            f"sqlite+aiosqlite:///{Path(folder) / 'scheduler.sqlite'}", lambda: SqliteLog(Path(folder) / "log.sqlite")
        )


@contextmanager
def on_servers() -> Iterator[Place]:
    """Start PostgreSQL, every transaction synced to the disk, and Apache Kafka."""
    with Postgres(durable=True) as postgres, Kafka() as kafka:
        yield Place(postgres.database("scheduler"), lambda: KafkaLog(kafka.servers))


@dataclass
class Served:
    """A running scheduler, and what it has committed by type of fact."""

    runtime: Runtime
    log: EventLog
    told: dict[str, int] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Something was committed."""
    ready_seconds: float = 0.0
    """From its start until it decides."""

    def count(self, events: Iterable[Event[Any]]) -> None:
        """Count facts that are durable now."""
        for event in events:
            self.told[event.type] = self.told.get(event.type, 0) + 1
        self.news.set()

    async def fleet(self, nodes: int, accelerator: str = "h100", prefix: str = "node") -> None:
        """Describe nodes of eight cards."""
        await asyncio.gather(*(self._node(f"{prefix}-{n:05}", accelerator, n) for n in range(nodes)))

    async def _node(self, node: str, accelerator: str, n: int) -> None:
        fact = node_fact(node, {accelerator: CARDS}, rack=f"rack-{n // 16}")
        await self.runtime.execute(Act(f"node/{node}", Describe(fact)))

    async def admit(self, orders: Iterable[str], asked: Callable[[int], OrderRequest]) -> None:
        """Say on the log that orders were let in."""
        now, batch = WallClock().now(), []
        for n, order in enumerate(orders):
            data: EventData = OrderAdmitted(order=order, request=asked(n), digest="d", submitted_at=now)
            event = new_event(f"admission/{order}", 1, now, "/quartermaster/admission", data, tenant="acme")
            batch.append(message_of(event))
            if len(batch) == AT_ONCE:
                await self.log.publish(batch)
                batch = []
                await asyncio.sleep(0)
        if batch:
            await self.log.publish(batch)

    async def durable(self, fact: str, count: int) -> None:
        """Wait until so many facts of a type are committed."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.told.get(fact, 0) < count:
                self.news.clear()
                await self.news.wait()

    async def rest(self) -> None:
        """Wait until nothing is at work."""
        await until(self.runtime.idle, LIMIT_SECONDS)


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[Served]:
    """Run the scheduler, until the end of the block."""
    log, database = place.log(), Database(place.database)
    runtime = Runtime(SCHEDULER, database, log, WallClock())
    await log.start()
    await log.ensure_topics(TOPICS.values())
    served, began = Served(runtime, log), time.perf_counter()
    runtime.committed.append(served.count)
    try:
        await runtime.start()
        await until(lambda: runtime.status().leader, LIMIT_SECONDS)
        served.ready_seconds = time.perf_counter() - began
        yield served
    finally:
        await runtime.stop()
        await database.close()
        await log.close()


def one_card(n: int) -> OrderRequest:
    """Return what the `n`-th order asks for: one card."""
    return request(cpu=4_000, memory=32_768, project=f"p{n % PROJECTS}", duration_seconds=3_600)
