"""Thresholds of a month's card-hours, and limits that only report."""

from typing import Any

import pytest

from qm_admission.book import SetLimits
from tests.unit.admission.desk import TENANT, Desk, furnished, names, request, submit
from tests.unit.admission.test_hours import HOUR, limit, ready


@pytest.fixture
def desk() -> Desk:
    return furnished()


def run(desk: Desk, order: str, *, hours: int) -> list[Any]:
    asked = request(duration_seconds=hours * 3_600)
    return submit(desk, order, asked) + ready(desk, order, asked)


class TestThresholds:
    """80, 95 and 100 % of a month, each said once."""

    def test_each_step_is_said_once_for_a_limit(self, desk: Desk) -> None:
        limit(desk, 100)
        said = []
        for number in range(10):
            said += submit(desk, f"o{number}", request(duration_seconds=10 * 3_600))
        reached = [it for it in said if it.wire_type == "quota_threshold.reached.v1"]
        assert [(it.percent, it.used // HOUR) for it in reached] == [(80, 80), (100, 100)]
        facts = len(desk.facts)
        desk.restart()
        desk.settle()
        assert len(desk.facts) == facts
        assert names(limit(desk, 104)) == ["quota_limit.set", "quota_threshold.reached"]

    def test_a_restart_repeats_nothing_of_the_months_before(self, desk: Desk) -> None:
        limit(desk, 100)
        said = run(desk, "o1", hours=86)
        said += desk.advance(days=30)
        said += run(desk, "o2", hours=86)
        assert names(said).count("quota_threshold.reached") == 2
        facts = len(desk.facts)
        desk.restart()
        desk.settle()
        assert len(desk.facts) == facts

    def test_nothing_is_said_of_a_month_that_is_over(self, desk: Desk) -> None:
        limit(desk, 100)
        run(desk, "o1", hours=50)
        desk.advance(days=40)
        assert names(limit(desk, 51)) == ["quota_limit.set"]

    def test_the_tenant_has_its_own(self, desk: Desk) -> None:
        limit(desk, 10, None)
        said = submit(desk, "o1", request(duration_seconds=36_000))
        assert [it.scope for it in said if it.wire_type == "quota_threshold.reached.v1"] == ["acme"]


def test_a_limit_that_reports_only_tells_and_lets_pass(desk: Desk) -> None:
    desk.command("quota/acme", SetLimits(TENANT, "vision", {"cards": 2}, report_only=("cards",)))
    claimed, _ = submit(desk, "o1", request(cards=3))
    assert [(it.dimension, it.short_by) for it in claimed.reported] == [("cards", 1)]
    desk.command("quota/acme", SetLimits(TENANT, "vision", {"cards": 2}))
    assert names(submit(desk, "o2", request(cards=1))) == ["order.held"]
