"""Orders that the scheduler lets onto free cards, from the log to durable facts: many at once, and one by one."""

import asyncio
import time
from contextlib import AbstractContextManager

from bench.figures import Figure, quantile
from bench.log import on_a_loop
from bench.scheduler import CARDS, Place, Served, on_servers, on_sqlite, one_card, serving

SIZES = {1_000: 2.0, 10_000: 20.0}
"""Orders onto as many free cards -> seconds."""
ALONE = 100
ALONE_P95_MS = 100.0
ALLOCATED = "allocation.allocated.v1"


def placing(quick: bool) -> list[Figure]:
    """Place orders that are let in at once, in SQLite with the embedded log."""
    return _placing("SQLite", on_sqlite(), quick)


def placing_distributed(quick: bool) -> list[Figure]:
    """Place orders that are let in at once, on PostgreSQL, synced to the disk, and Apache Kafka."""
    return _placing("PostgreSQL + Kafka", on_servers(), quick)


def _placing(where: str, place: AbstractContextManager[Place], quick: bool) -> list[Figure]:
    with place as there:
        return on_a_loop(_measured(where, there, quick))


async def _measured(where: str, place: Place, quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    async with serving(place) as served:
        for orders, seconds in SIZES.items() if not quick else [(1_000, 2.0)]:
            await served.fleet(orders // CARDS, prefix=f"of-{orders}")
            took = await _at_once(served, orders)
            figures.append(Figure(f"{orders:,} orders onto {orders:,} cards, {where}", took, "s", seconds, "<="))
        await served.fleet(ALONE // CARDS + 1, prefix="of-one")
        waits = [await _at_once(served, 1, f"alone-{n}") for n in range(ALONE // (4 if quick else 1))]
    p95 = quantile(waits, 0.95) * 1e3
    return [
        *figures,
        Figure(f"idle, admitted to allocated, p50, {where}", quantile(waits, 0.5) * 1e3, "ms"),
        Figure(f"idle, admitted to allocated, p95, {where}", p95, "ms", ALONE_P95_MS, "<="),
    ]


async def _at_once(served: Served, orders: int, name: str = "") -> float:
    """Return the seconds from the first admission until all allocations are durable."""
    await served.rest()
    before, began = served.told.get(ALLOCATED, 0), time.perf_counter()
    letting = asyncio.create_task(served.admit((f"{name or orders}-{n:06}" for n in range(orders)), one_card))
    await served.durable(ALLOCATED, before + orders)
    took = time.perf_counter() - began
    await letting
    return took
