"""Metering: facts projected on PostgreSQL, a month of a million lines closed, and asked for."""

import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.figures import Figure, quantile
from bench.log import on_a_loop
from bench.projection import projected
from qm_metering import queries
from qm_metering.closing import digest_of
from qm_metering.consumers import METERING
from qm_metering.intervals import Span, micros
from qm_metering.projections import LEDGER, LedgerLine
from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log_memory import MemoryLog
from qm_service.runtime import Runtime
from qm_service.schema import create
from tests.support.servers import Postgres
from tests.unit.metering import facts

LINES = 1_000_000
FACTS = 40_000
BATCH = 500
ASKED = 20
JUNE = micros(datetime(2026, 6, 1, tzinfo=UTC))
JULY = micros(datetime(2026, 7, 1, tzinfo=UTC))
_CHUNK = 10_000


def metered_facts(quick: bool) -> list[Figure]:
    """Fold the facts of orders into metering's documents on PostgreSQL, a transaction for each batch."""
    count = FACTS // (10 if quick else 1)
    with Postgres() as server:
        return [on_a_loop(_projected(server.database("bench"), count))]


async def _projected(url: str, count: int) -> Figure:
    database = Database(url)
    rate = await projected(database, METERING, list(_orders(count)), BATCH)
    await database.close()
    return Figure(f"metering's facts projected on PostgreSQL, batch {BATCH}", rate, "facts/s", 10_000.0)


def _orders(count: int) -> Iterator[Any]:
    for number in range(count // 4):
        name = f"o-{number}"
        told = (facts.allocated(0), facts.ready(10), facts.released(50), facts.returned(60))
        for it in told:
            stream = f"{it.subject.partition('/')[0]}/{name}"
            yield it.model_copy(update={"subject": stream, "data": it.data.model_copy(update={"order": name})})


def month(quick: bool) -> list[Figure]:
    """Close a month of a million lines, and ask for it by project, on PostgreSQL."""
    count = LINES // (100 if quick else 1)
    with Postgres() as server:
        return on_a_loop(_month(server.database("bench"), count))


async def _month(url: str, count: int) -> list[Figure]:
    database = Database(url)
    runtime = Runtime(METERING, database, MemoryLog(), WallClock())
    await create(database, runtime.schema)
    await _fill(database, runtime.schema.documents[LEDGER.name], count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    lines, _ = await digest_of(runtime, "acme", "2026-06")
    closed = time.perf_counter() - began
    assert lines == count
    after, took = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(ASKED):
        began = time.perf_counter()
        async with database.read() as tx:
            await queries.usage(tx, runtime.schema, ("project",), Span(JUNE, JULY), JULY, ["acme/p1", "acme/p2"])
        took.append((time.perf_counter() - began) * 1e3)
    await database.close()
    return [
        Figure(f"digest of a month of {count:,} lines", closed, "s", 60.0, "<="),
        Figure("memory of the process afterwards", after / 1024, "MiB", 500.0, "<="),
        Figure("… and what it grew by", (after - before) / 1024, "MiB"),
        Figure(f"usage of a tenant-month over {count:,} lines, p95", quantile(took, 0.95), "ms", 300.0, "<="),
    ]


async def _fill(database: Database, table: Any, count: int) -> None:
    minute = timedelta(minutes=1) // timedelta(microseconds=1)
    for start in range(0, count, _CHUNK):
        rows = [_line(number, minute) for number in range(start, min(start + _CHUNK, count))]
        async with database.write() as tx:
            await tx.execute(table.insert(), rows)


def _line(number: int, minute: int) -> dict[str, Any]:
    since = JUNE + (number % 40_000) * minute
    line = LedgerLine(
        record=f"{number:012}",
        meter="billable" if number % 2 else "held",
        tenant="acme",
        project=f"p{number % 50}",
        order=f"o-{number // 4}",
        allocation=f"a-{number // 4}",
        accelerator="h100",
        service_model="vm",
        cards=8,
        from_us=since,
        to_us=since + 30 * minute,
        period="2026-06",
        price="1.5",
        currency="EUR",
    )
    columns = {name: column.of(line) for name, column in LEDGER.columns.items()}
    return {"key": line.record, "doc": line.model_dump_json(), "resident": False, **columns}
