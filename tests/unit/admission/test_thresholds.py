"""Thresholds of a month's card-hours, and limits that only report."""

import pytest

from qm_admission.book import SetLimits
from tests.unit.admission.desk import TENANT, Desk, furnished, names, request, submit
from tests.unit.admission.test_hours import HOUR, limit


@pytest.fixture
def desk() -> Desk:
    return furnished()


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
