"""Budgets: each threshold at its very instant, once for ever."""

from datetime import timedelta

import pytest

from qm_metering.consumers import METERING
from qm_service.replay import verify
from tests.unit.metering.test_periods import call, world  # noqa: F401 - a fixture
from tests.unit.metering.test_prices import priced  # noqa: F401 - a fixture
from tests.unit.metering.test_service import Story, minute

BODY = {"tenant": "acme", "project": "vision", "budget": "june", "amount": "6", "currency": "EUR"}


async def said(world):  # noqa: F811
    facts = [it for it in await world.facts("usage") if it.wire_type == "budget.threshold_reached.v1"]
    return [(it.percent, it.reached_at, it.spent) for it in facts]


@pytest.fixture
async def watched(priced):  # noqa: F811
    """Two cards at 1.5 from the tenth minute on: three an hour, and six is the budget."""
    assert (await call(priced, "ada", "POST", "/budgets", BODY)).status_code == 201
    await Story(priced).run("o-1", ready=10)
    return priced


async def test_a_threshold_is_said_at_the_instant_at_which_what_runs_reaches_it(watched):
    runtime = watched.runtimes["metering"]
    at = []
    for _ in range(20):
        await watched.settle()
        due = METERING.due(runtime.context())
        if due > minute(200):
            break
        watched.clock.set(max(due, watched.clock.now()))
        at.append(due)
    await watched.settle()
    assert await said(watched) == [
        (50, minute(70), "3.000000000"),
        (80, minute(106), "4.800000000"),
        (100, minute(130), "6.000000000"),
    ]


async def test_what_was_said_is_not_said_again_by_a_look_a_rebuild_or_a_change_of_the_amount(watched):
    watched.clock.set(minute(80))
    await watched.settle()
    assert [percent for percent, _, _ in await said(watched)] == [50]
    for amount in ("60", "6"):
        assert (await call(watched, "ada", "POST", "/budgets", BODY | {"amount": amount})).status_code == 201
    await watched.settle()
    assert [percent for percent, _, _ in await said(watched)] == [50]
    live = watched.runtimes["metering"].database
    assert (await verify(METERING, live, watched.database("fresh"), watched.log)).differing == []


async def test_what_is_recorded_counts_like_what_ran_and_a_new_month_begins_at_nothing(watched):
    story = Story(watched)
    await story.run("o-2", ready=10, end=70, back=90)
    # Eighty minutes run, sixty are recorded.
    assert [percent for percent, _, _ in await said(watched)] == [50, 80, 100]
    watched.clock.set(minute(0) + timedelta(days=30))
    await watched.settle()
    shown = (await call(watched, "ada", "GET", "/budgets")).json()["items"][0]
    assert {it["month"] for it in shown["reached"]} == {"2026-06", "2026-07"}


async def test_other_projects_and_currencies_do_not_count(priced):  # noqa: F811
    await call(priced, "ada", "POST", "/budgets", BODY | {"budget": "usd", "currency": "USD", "amount": "0.01"})
    await Story(priced).run("o-1", ready=10, end=70, back=90)
    assert await said(priced) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"project": "none"}, "not-found"),
        ({"tenant": "none"}, "not-found"),
        ({"amount": -1}, "validation-failed"),
        ({"thresholds": []}, "validation-failed"),
        ({"thresholds": [0]}, "validation-failed"),
        ({"currency": "euro"}, "validation-failed"),
    ],
)
async def test_a_budget_that_makes_no_sense_is_refused(priced, change, code):  # noqa: F811
    assert (await call(priced, "ada", "POST", "/budgets", BODY | change)).json()["code"] == code
