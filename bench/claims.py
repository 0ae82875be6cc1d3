"""Admission alone: one check over all limits and one claim, durable; and what a hundred thousand held orders cost."""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.facts import SPECIFICATION
from bench.figures import Figure
from bench.log import on_a_loop
from qm_admission.book import SetLimits
from qm_admission.consumers import ADMISSION
from qm_admission.domain import Admit
from qm_admission.hours import life_of
from qm_admission.index import AdmissionIndex, Waiting
from qm_admission.quota import Scope, amounts_of
from qm_admission.settle import settle
from qm_events.admission import Submission
from qm_events.registry import TOPICS
from qm_events.specs import OrderRequest, ServiceModel
from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log_memory import MemoryLog
from qm_service.model import Act, Context
from qm_service.runtime import Runtime
from tests.support.servers import Postgres
from tests.unit.chassis.support import until

CLAIMS = 10_000
AT_ONCE = 1_000
"""Callers that wait at the same time: what the writer puts into common transactions."""
PROJECTS = (10, 1_000, 10_000)
HELD = 100_000
WALKS = 2_000
PLENTY = {
    "cards": 10**6,
    "cards/a100": 10**6,
    "memory_mib": 10**12,
    "concurrent_orders": 10**6,
    "card_hours_month": 10**9,
}


def claims(quick: bool) -> list[Figure]:
    """Check and claim on two scopes with five limits each, as commands of many callers at once, in SQLite."""
    count = CLAIMS // (10 if quick else 1)
    rates = {projects: on_a_loop(_on_sqlite(count, projects)) for projects in PROJECTS}
    return [
        *(Figure(f"check and claim, SQLite, {n:,} projects", rate, "claims/s", 2_000.0) for n, rate in rates.items()),
        # Ten projects share ten rows of a batch; from a thousand on each claim has a row of its own, and no more.
        Figure("check and claim, 10,000 projects against 1,000", rates[10_000] / rates[1_000], "x", 0.8),
    ]


def claims_postgres(quick: bool) -> list[Figure]:
    """Check and claim on PostgreSQL, every transaction synced to the disk."""
    count = CLAIMS // (10 if quick else 1)
    with Postgres(durable=True) as postgres:
        rate = on_a_loop(_rate(Database(postgres.database("claims")), count, PROJECTS[0]))
    return [Figure(f"check and claim, PostgreSQL, {PROJECTS[0]} projects", rate, "claims/s", 1_000.0)]


async def _on_sqlite(count: int, projects: int) -> float:
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        return await _rate(Database(f"sqlite+aiosqlite:///{Path(folder) / 'admission.sqlite'}"), count, projects)


async def _rate(database: Database, count: int, projects: int) -> float:
    log = MemoryLog()
    runtime = Runtime(ADMISSION, database, log, WallClock())
    await log.start()
    await log.ensure_topics(TOPICS.values())
    await runtime.start()
    await until(lambda: runtime.status().leader)
    await runtime.execute(_limits(None))
    await _all(runtime, (_limits(f"p{number}") for number in range(projects)))
    began = time.perf_counter()
    await _all(runtime, (_order(number, f"p{number % projects}") for number in range(count)))
    took = time.perf_counter() - began
    await runtime.stop()
    await database.close()
    await log.close()
    return count / took


async def _all(runtime: Runtime, acts: Iterator[Act]) -> None:
    async def caller() -> None:
        for act in acts:
            await runtime.execute(act)

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))


def _limits(project: str | None) -> Act:
    return Act("quota/bench", SetLimits("bench", project, PLENTY), tenant="bench", project=project)


def _order(number: int, project: str) -> Act:
    order = f"o{number}"
    submission = Submission(request=_request(project), digest=order, submitted_at=WallClock().now())
    return Act(f"admission/{order}", Admit(order, submission), tenant="bench", project=project, correlation=order)


def _request(project: str) -> OrderRequest:
    return OrderRequest(
        tenant="bench",
        project=project,
        requester="buyer",
        specification=SPECIFICATION,
        service_model=ServiceModel.VM,
        duration_seconds=3_600,
    )


@dataclass(frozen=True)
class Docs:
    """The resident documents of the ledger, in memory."""

    all: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"scopes": {}, "waiting": {}, "tenants": {}, "subjects": {}, "policies": {}}
    )

    def get(self, projection: str, key: str) -> Any | None:
        """Return a document."""
        return self.all[projection].get(key)

    def resident(self, projection: str) -> Mapping[str, Any]:
        """Return all of them."""
        return self.all[projection]


def held(quick: bool) -> list[Figure]:
    """Let orders wait for their project, and see what they cost while others move: nothing is written or loaded."""
    count = HELD // (10 if quick else 1)
    few, many = _held(count // 100), _held(count)
    return [
        Figure(f"settle, {count:,} held, nothing changed", many["idle"], "us", 50.0, "<="),
        Figure(f"claim and refund of others, {count:,} held", many["other"], "us"),
        Figure(f"the same, {count // 100:,} held", few["other"], "us"),
        Figure(f"a refund that lets nobody in, {count:,} held", many["woken"], "us"),
        Figure(f"start with {count:,} held", many["start"] / 1e6, "s", 15.0, "<="),
    ]


def _held(count: int) -> dict[str, float]:
    docs, index, now = Docs(), AdmissionIndex(), WallClock().now()
    full = Scope(limits={"cards": 10, "concurrent_orders": 10}, used={"cards": 10, "concurrent_orders": 10})
    free = Scope(limits={"cards": 10**6}, used={"cards": 5})
    began = time.perf_counter()
    for name, scope in (("bench", Scope()), ("bench/full", full), ("bench/free", free)):
        _post(docs, index, name, scope)
    asked = _request("full")
    for number in range(count):
        order, at = f"o{number:06}", now + timedelta(microseconds=number)
        waiting = Waiting(
            order, "bench", "full", at, "held", amounts=amounts_of(asked), blocked=_BLOCKED, life=life_of(asked)
        )
        docs.all["waiting"][order] = waiting
        index.changed("waiting", order, None, waiting)
    ctx = Context(now + timedelta(seconds=1), docs, index)
    assert settle(ctx) == []
    start = time.perf_counter() - began
    return {"start": start * 1e6} | {
        "idle": _timed(lambda: settle(ctx)),
        "other": _timed(lambda: _moved(ctx, "bench/free", free, 6)),
        "woken": _timed(lambda: _moved(ctx, "bench/full", full, 11)),
    }


_BLOCKED = (("bench/full", "cards", 10), ("bench/full", "concurrent_orders", 10))


def _moved(ctx: Context, name: str, scope: Scope, cards: int) -> None:
    """Claim and refund, so that something is given back and the limit still stands in the way."""
    _post(ctx.docs, ctx.index, name, Scope(scope.limits, {**scope.used, "cards": cards}))
    _post(ctx.docs, ctx.index, name, scope)
    assert settle(ctx) == []


def _post(docs: Any, index: AdmissionIndex, name: str, scope: Scope) -> None:
    old = docs.all["scopes"].get(name)
    docs.all["scopes"][name] = scope
    index.changed("scopes", name, old, scope)


def _timed(act: Any) -> float:
    began = time.perf_counter()
    for _ in range(WALKS):
        act()
    return (time.perf_counter() - began) / WALKS * 1e6
