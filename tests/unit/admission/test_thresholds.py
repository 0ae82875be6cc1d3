"""Thresholds of a month's card-hours, and limits that only report."""

from datetime import UTC, datetime
from typing import Any

import pytest

from qm_admission.book import SetLimits
from qm_admission.months import month_end
from qm_events.catalog import TenantRegistered
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

    def test_a_step_of_this_month_is_not_said_again_after_one_of_the_next(self, desk: Desk) -> None:
        limit(desk, 200)
        long = request(cards=2, duration_seconds=80 * 3_600)
        submit(desk, "o1", long)
        ready(desk, "o1", long)
        desk.now = datetime(2026, 6, 30, 23, 29, 59, tzinfo=UTC)
        said = submit(desk, "o2", request(cards=64, duration_seconds=3 * 3_600))
        reached = [it for it in said if it.wire_type == "quota_threshold.reached.v1"]
        assert [(it.dimension[-7:], it.percent) for it in reached] == [("2026-06", 95), ("2026-07", 80)]
        facts = len(desk.facts)
        for _ in range(3):
            desk.restart()
            desk.settle()
        assert len(desk.facts) == facts

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/Los_Angeles"])
    def test_a_step_is_not_said_again_after_the_month_in_any_zone(self, desk: Desk, zone: str) -> None:
        desk.tell(TenantRegistered(tenant=TENANT, display_name="Acme", timezone=zone), "tenant/acme")
        limit(desk, 100)
        long = request(duration_seconds=80 * 3_600)
        assert "quota_threshold.reached" in names(submit(desk, "o1", long))
        ready(desk, "o1", long)
        desk.now = month_end(desk.now, zone)
        said = submit(desk, "o2", request(duration_seconds=80 * 3_600))
        reached = [it for it in said if it.wire_type == "quota_threshold.reached.v1"]
        assert [(it.dimension[-7:], it.percent) for it in reached] == [("2026-07", 80)]
        facts = len(desk.facts)
        for _ in range(3):
            desk.restart()
            desk.settle()
        assert len(desk.facts) == facts

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
