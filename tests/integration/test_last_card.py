"""Five hundred at once at the last free card, on PostgreSQL: it is given once, given back once, and nobody is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from qm_admission.book import SetLimits
from qm_admission.consumers import ADMISSION
from qm_admission.domain import Admit, End
from qm_events.admission import Submission
from qm_events.registry import TOPICS
from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log_memory import MemoryLog
from qm_service.model import Act
from qm_service.runtime import Runtime
from tests.unit.admission.desk import START, TENANT, request
from tests.unit.chassis.support import until

pytestmark = pytest.mark.integration

CROWD, CARDS = 500, 8


@pytest.fixture
async def runtime(database_url: str) -> AsyncIterator[Runtime]:
    log, database = MemoryLog(), Database(database_url)
    await log.ensure_topics(TOPICS.values())
    runtime = Runtime(ADMISSION, database, log, WallClock())
    await runtime.start()
    await until(lambda: runtime.status().leader)
    yield runtime
    await runtime.stop()
    await database.close()
    await log.close()


def admit(number: int, project: str) -> Act:
    order = f"o{number:03}"
    at = START + timedelta(seconds=number)
    submission = Submission(request=request(project, duration_seconds=3_600), digest="d", submitted_at=at)
    return Act(f"admission/{order}", Admit(order, submission), TENANT, project, order)


def end(order: str) -> Act:
    return Act(f"admission/{order}", End(order, "cancelled", START), TENANT, "vision", order)


async def facts(runtime: Runtime) -> list[Any]:
    async with runtime.database.read() as tx:
        rows = list(await tx.execute(runtime.schema.events.select()))
    return [row for row in rows if row.stream.startswith("admission/")]


@pytest.mark.parametrize("go", range(10))
async def test_exactly_what_fits_is_admitted_and_given_back_once(runtime: Runtime, go: int) -> None:
    await runtime.execute(Act("quota/acme", SetLimits(TENANT, None, {"cards": CARDS}), TENANT))
    for number in range(CARDS - 1):
        await runtime.execute(admit(number, "vision"))
    crowd = [admit(CARDS + number, ("vision", "speech")[number % 2]) for number in range(CROWD)]
    outcomes = await asyncio.gather(*(runtime.execute(act) for act in crowd))
    said = Counter(event.data.wire_type for outcome in outcomes for event in outcome.events)
    assert said == {"quota.claimed.v1": 1, "order.admitted.v1": 1, "order.held.v1": CROWD - 1}
    scopes = runtime.context().docs.resident("scopes")
    assert scopes["acme"].used["cards"] == CARDS
    waiting = len(runtime.context().docs.resident("waiting"))
    # Each end is told three times, all at once; each gives back once and lets exactly one in.
    await asyncio.gather(*(runtime.execute(end(f"o{number:03}")) for number in range(CARDS - 1) for _ in range(3)))
    await until(lambda: len(runtime.context().docs.resident("waiting")) == waiting - CARDS + 1)
    assert scopes_used(runtime) == CARDS
    told = Counter(row.type for row in await facts(runtime))
    assert told["quota.refunded.v1"] == CARDS - 1
    assert told["quota.claimed.v1"] == told["order.admitted.v1"] == 2 * CARDS - 1


def scopes_used(runtime: Runtime) -> int:
    used: int = runtime.context().docs.resident("scopes")["acme"].used["cards"]
    return used
