"""The sums of metering on PostgreSQL equal those on SQLite."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from qm_metering.closing import digest_of
from qm_metering.consumers import METERING
from qm_metering.intervals import Span
from qm_metering.projections import LedgerLine
from qm_service.clock import ManualClock
from qm_service.database import Database
from qm_service.log_memory import MemoryLog
from qm_service.runtime import Runtime
from qm_service.schema import create
from tests.unit.metering import facts
from tests.unit.metering.test_fleet import END, played, report
from tests.unit.metering.test_queries import SCHEMA, ask, store

pytestmark = pytest.mark.integration

CORRECTED = [facts.allocated(10, cards={"h100": 3, "h200": 2}), facts.ready(20), facts.released(50), facts.failed(40)]
YEAR_US = 366 * 86_400 * 10**6


@pytest.fixture
async def databases(database_url: str) -> AsyncIterator[list[Database]]:
    databases = [Database("sqlite+aiosqlite:///:memory:"), Database(database_url)]
    for database in databases:
        await create(database, SCHEMA)
    yield databases
    for database in databases:
        await database.close()


@pytest.mark.parametrize("window", [Span(0, 100), Span(25, 45), Span(39, 10**16)])
@pytest.mark.parametrize("groups", [(), ("accelerator",), ("tenant", "project", "order", "service_model")])
async def test_both_databases_give_the_same_sums(databases, window, groups):
    service = facts.Metering().feed(CORRECTED)
    answers = []
    for database in databases:
        await store(database, service)
        answers.append(await ask(database, groups, window, now=90, scopes=["acme/vision"]))
    assert answers[0] == answers[1]
    assert all(type(value) is int for value in answers[1].values())


async def test_a_sum_beyond_64_bits_is_exact_on_both(databases):
    base = {name: "x" for name in ("tenant", "project", "order", "allocation", "accelerator", "service_model")}
    service = facts.Metering()
    for number in range(5):
        told = {**base, "record": f"r{number}", "meter": "held", "cards": 100_000, "from_us": 1, "to_us": 1 + YEAR_US}
        service.ledger[f"r{number}"] = LedgerLine.model_validate(told)
    for database in databases:
        await store(database, service)
        assert (await ask(database))[(), "held"] == 5 * 100_000 * YEAR_US


STORY = [
    *(("order", "c0", 3), ("ready", "c0", 4), ("isolate", "c2", 2), ("failed", "c0", 2), ("sick", "c1", 1)),
    *(("back", "c0", 5), ("clear", "c2", 0), ("order", "c0", 3), ("cordon", "c0", 2), ("describe", "c2", 2)),
]


@pytest.mark.parametrize("window", [Span(0, END), Span(5, 17), Span(9, 10)])
async def test_both_databases_conserve_every_card_and_instant(databases, window):
    fleet = played(STORY)
    wanted = sum(fleet.counted[window.start_us : window.end_us], Counter())
    for database in databases:
        assert dict((await report(database, fleet, window)).classes) == dict(sorted(wanted.items()))


async def test_the_digest_of_a_month_is_the_same_on_both(databases):
    service = facts.Metering().feed(CORRECTED)
    digests = []
    for database in databases:
        await store(database, service)
        runtime = Runtime(METERING, database, MemoryLog(), ManualClock())
        digests.append(await digest_of(runtime, "acme", "1970-01"))
    assert digests[0] == digests[1]
    assert digests[0][0] == len(service.ledger) > 2
