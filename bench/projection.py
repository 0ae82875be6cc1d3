"""What the chassis does with facts in SQLite: folding them into documents, and loading a stream."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.facts import facts
from bench.figures import Figure, quantile
from bench.log import on_a_loop
from qm_events import Event
from qm_events.catalog import OrderExtensionRequested, OrderSubmitted
from qm_service.database import Database
from qm_service.items import Changes
from qm_service.memory import Memory
from qm_service.model import Column, Definition, Fold, Projection
from qm_service.plan import plan_of
from qm_service.schema import create, schema_of
from qm_service.store import NEW, SqlEventStore
from qm_service.writes import Writes

BATCH = 100
FOLDED = 40_000
IN_A_STREAM = 10
AGGREGATE = 40
LOADS = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """A document: how often an order was spoken of."""

    tenant: str
    facts: int = 0


def _count(old: Seen | None, event: Event[Any]) -> Seen:
    old = old or Seen(event.tenant or "")
    return replace(old, facts=old.facts + 1)


SEEN = Projection(
    name="seen_orders",
    version=1,
    model=Seen,
    folds={OrderSubmitted: Fold(_count), OrderExtensionRequested: Fold(_count)},
    columns={"tenant": Column(str, lambda doc: doc.tenant)},
)
DEFINITION = Definition(name="metering", deciders=(), projections=(SEEN,), reactions={})


def projection(quick: bool) -> list[Figure]:
    """Fold decoded facts and write documents and position, a transaction for each hundred.

    What can be built again need not wait for the disk; beside it stands the figure with a sync for each transaction.
    """
    count = FOLDED // (10 if quick else 1)
    return [on_a_loop(_projection(count, durable=durable)) for durable in (False, True)]


async def _projection(count: int, *, durable: bool) -> Figure:
    events = list(facts(count, IN_A_STREAM))
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        database = Database(f"sqlite+aiosqlite:///{Path(folder) / 'projection.sqlite'}", durable=durable)
        rate = await projected(database, DEFINITION, events, BATCH)
        await database.close()
    name = f"projection in SQLite, batch {BATCH}{', synced' if durable else ''}"
    return Figure(name, rate, "events/s", None if durable else 40_000.0)


async def projected(database: Database, definition: Definition, events: Sequence[Event[Any]], batch: int) -> float:
    """Return how many facts a second an empty database takes in transactions of `batch`: loaded, folded, written."""
    plan, schema, count = plan_of(definition), schema_of(definition), len(events)
    await create(database, schema)
    store = SqlEventStore(schema, database)
    writes, memory = Writes(plan, schema, database, store), Memory(plan, schema, store, count)
    began = time.perf_counter()
    for start in range(0, count, batch):
        changes = Changes(positions={("orders", 0): start + batch})
        some = [(event, memory.targets(event)) for event in events[start : start + batch]]
        async with database.write() as tx:
            await memory.load_documents(tx, memory.unknown([one for _, targets in some for one in targets]))
            for event, targets in some:
                memory.fold(event, targets, changes.documents)
            await writes.changes(tx, changes)
    return count / (time.perf_counter() - began)


def aggregate(_: bool) -> list[Figure]:
    """Load and decode a stream of forty facts from a table of many streams."""
    return [on_a_loop(_aggregate())]


async def _aggregate() -> Figure:
    schema, events = schema_of(DEFINITION), list(facts(AGGREGATE * 100, AGGREGATE))
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        database = Database(f"sqlite+aiosqlite:///{Path(folder) / 'events.sqlite'}")
        await create(database, schema)
        store = SqlEventStore(schema, database)
        async with database.write() as tx:
            for start in range(0, len(events), AGGREGATE):
                await store.append(tx, events[start].subject, NEW, events[start : start + AGGREGATE])
        took = []
        for number in range(LOADS):
            began = time.perf_counter()
            async with database.read() as tx:
                loaded = await store.load(tx, events[number % 100 * AGGREGATE].subject)
            took.append((time.perf_counter() - began) * 1e3)
            assert len(loaded) == AGGREGATE
        await database.close()
    return Figure(f"load an aggregate of {AGGREGATE} facts, p50", quantile(took, 0.5), "ms", 2.0, "<=")
