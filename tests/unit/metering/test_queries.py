"""The sums that SQL takes equal those that a person takes by hand."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qm_metering import queries
from qm_metering.consumers import METERING
from qm_metering.intervals import Span
from qm_metering.projections import LEDGER, ORDERS, LedgerLine
from qm_service.database import Database
from qm_service.schema import create, schema_of
from tests.unit.metering import facts

SCHEMA = schema_of(METERING)
EVER = Span(0, 10**18)


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    database = Database("sqlite+aiosqlite:///:memory:")
    await create(database, SCHEMA)
    yield database
    await database.close()


def row(projection, key, doc):
    columns = {name: column.of(doc) for name, column in projection.columns.items()}
    return {"key": key, "doc": doc.model_dump_json(), "resident": False, **columns}


async def store(database, service):
    async with database.write() as tx:
        for table in SCHEMA.documents.values():
            await tx.execute(table.delete())
        if service.ledger:
            lines = [row(LEDGER, key, line) for key, line in service.ledger.items()]
            await tx.execute(SCHEMA.documents[LEDGER.name].insert(), lines)
        if service.usage:
            await tx.execute(SCHEMA.documents[ORDERS.name].insert(), row(ORDERS, "o-1", service.usage))


async def ask(database, groups=(), window=EVER, now=100, scopes=None):
    async with database.read() as tx:
        sums, _ = await queries.usage(tx, SCHEMA, groups, window, now, scopes)
        return sums


async def test_what_runs_and_what_is_recorded_are_summed_by_group(database):
    cards = {"h100": 3, "h200": 2}
    await store(
        database, facts.Metering().feed([facts.allocated(10, cards=cards), facts.ready(20), facts.released(50)])
    )
    assert await ask(database, ("accelerator", "order")) == Counter(
        {
            (("h100", "o-1"), "held"): 270,
            (("h200", "o-1"), "held"): 180,
            (("h100", "o-1"), "billable"): 90,
            (("h200", "o-1"), "billable"): 60,
        }
    )


async def test_a_window_cuts_to_the_microsecond(database):
    await store(database, facts.Metering().feed([facts.allocated(10), facts.ready(20), facts.released(50)]))
    assert await ask(database, window=Span(49, 52)) == Counter({((), "held"): 8 * 3, ((), "billable"): 8})
    assert not await ask(database, window=Span(0, 10))


async def test_only_the_scopes_of_the_caller_are_counted(database):
    await store(database, facts.Metering().feed([facts.allocated(10), facts.ready(20), facts.released(50)]))
    assert await ask(database, ("tenant", "project"), scopes=["acme/vision", "acme/other"]) == await ask(
        database, ("tenant", "project")
    )
    assert not await ask(database, scopes=["acme/other"])
    assert not await ask(database, scopes=[])


async def test_a_sum_beyond_the_integers_of_sqlite_is_exact(database):
    year_us, line = 366 * 86_400 * 10**6, LedgerLine.model_validate
    base = {name: "x" for name in ("tenant", "project", "order", "allocation", "accelerator", "service_model")}
    service = facts.Metering()
    for number in range(5):
        told = {**base, "record": f"r{number}", "meter": "held", "cards": 100_000, "from_us": 1, "to_us": 1 + year_us}
        service.ledger[f"r{number}"] = line(told)
    await store(database, service)
    total = (await ask(database))[(), "held"]
    assert total == 5 * 100_000 * year_us > 2**63


END = {"released": facts.released, "expired": facts.expired, "failed": facts.failed, "returned": facts.returned}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.dictionaries(st.sampled_from(sorted(END)), st.integers(0, 9)),
    st.integers(0, 9),
    st.integers(0, 9),
)
async def test_the_sums_of_two_halves_are_the_sum_of_the_whole(database, start, ready, ends, cut, now):
    events = [facts.allocated(start), *(END[name](us) for name, us in ends.items())]
    events += [] if ready is None else [facts.ready(ready)]
    await store(database, facts.Metering().feed(events))
    halves = [await ask(database, window=Span(0, cut), now=now), await ask(database, window=Span(cut, 20), now=now)]
    whole = await ask(database, window=Span(0, 20), now=now)
    for meter in ("held", "billable"):
        assert sum(half[(), meter] for half in halves) == whole[(), meter]
