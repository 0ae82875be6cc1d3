"""Monthly card-hours: held ahead, moved, renewed, noticed, used up, settled. On a clock that the test moves."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from qm_admission.book import SetLimits
from qm_events.catalog import OrderExtensionRequested, TenantRegistered
from qm_events.metering import UsageCorrected, UsageRecorded
from qm_events.provisioner import EnvironmentReady
from qm_events.scheduler import AllocationReturned
from qm_events.specs import OrderRequest
from qm_service.model import Rejected
from tests.unit.admission.desk import TENANT, Desk, allocate, furnished, names, request, submit
from tests.unit.admission.test_gates import ends

HOUR = 3_600_000_000
JUNE, JULY = "card_hours_month@2026-06", "card_hours_month@2026-07"


@pytest.fixture
def desk() -> Desk:
    return furnished()


def limit(desk: Desk, hours: int, project: str | None = "vision", **more: Any) -> list[Any]:
    said = desk.command("quota/acme", SetLimits(TENANT, project, {"card_hours_month": hours}, **more))
    assert not isinstance(said, Rejected), said
    return said


def used(desk: Desk, dimension: str = JUNE, scope: str = "acme/vision") -> int:
    doc = desk.docs.get("scopes", scope)
    return doc.used.get(dimension, 0) if doc else 0


def at(desk: Desk, when: str) -> None:
    desk.now = datetime.fromisoformat(when).replace(tzinfo=UTC)
    desk.settle()


def ready(desk: Desk, order: str, asked: OrderRequest) -> list[Any]:
    allocate(desk, order, asked)
    ready = EnvironmentReady(order=order, allocation=f"al-{order}", endpoint={"host": "h"}, ready_at=desk.now)
    return desk.tell(ready, f"environment/{order}")


def line(desk: Desk, order: str, since: datetime, cards: int = 1, *, meter: str = "billable", **more: Any) -> list[Any]:
    fields = {
        "record": f"{order}-{meter}-{since.isoformat()}",
        "allocation": f"al-{order}",
        "order": order,
        "meter": meter,
        "accelerator": "a100",
        "service_model": "vm",
        "cards": cards,
        "from_at": since,
        "to_at": desk.now,
        "card_us": cards * ((desk.now - since) // timedelta(microseconds=1)),
    } | more
    cls = UsageCorrected if "reverses" in fields else UsageRecorded
    return desk.tell(cls(**fields), f"usage/al-{order}")


def test_an_order_holds_its_hours_in_each_month_that_it_crosses(desk: Desk) -> None:
    at(desk, "2026-06-30T20:00")
    (claimed, _) = submit(desk, "o1", request(cards=2, duration_seconds=86_400))
    seconds = 4 * 3_600 - 1
    assert claimed.amounts.values[JUNE] == 2 * seconds * 1_000_000
    assert claimed.amounts.values[JULY] == 2 * (86_400 - seconds) * 1_000_000
    assert claimed.covered_until is None


def test_what_fits_one_month_and_not_the_next_is_held_with_the_month_named(desk: Desk) -> None:
    at(desk, "2026-06-30T23:00")
    limit(desk, 24)
    submit(desk, "o1", request(duration_seconds=24 * 3_600))
    (held,) = submit(desk, "o2", request(duration_seconds=3 * 3_600))
    (violation,) = held.violations
    assert (violation.dimension, violation.unit) == (JULY, "card_us")
    assert violation.renews_at == datetime(2026, 8, 1, tzinfo=UTC)
    assert violation.short_by == violation.used + violation.requested - 24 * HOUR


def test_more_than_a_month_allows_at_all_never_fits(desk: Desk) -> None:
    limit(desk, 24)
    (rejected,) = submit(desk, "o1", request(cards=2, duration_seconds=13 * 3_600))
    assert rejected.code == "quota-never-fits"
    assert rejected.violations[0].short_by == 2 * HOUR
    assert [it.kind for it in rejected.remedies] == ["other_project", "ask_for_quota"][1:]
    assert rejected.remedies[-1].limits.values == {"card_hours_month": 26}


@pytest.mark.parametrize(
    ("zone", "before", "after"),
    [
        ("UTC", "2026-06-30T23:59:59", "2026-07-01T00:00:00"),
        ("Asia/Tokyo", "2026-06-30T14:59:59", "2026-06-30T15:00:00"),
        ("America/New_York", "2026-07-01T03:59:59", "2026-07-01T04:00:00"),
    ],
)
def test_who_waits_for_hours_is_admitted_when_they_renew_in_the_zone_of_the_tenant(
    desk: Desk, zone: str, before: str, after: str
) -> None:
    desk.tell(TenantRegistered(tenant=TENANT, display_name="Acme", timezone=zone), "tenant/acme")
    limit(desk, 10)
    asked = request(duration_seconds=10 * 3_600)
    submit(desk, "o1", asked)
    ready(desk, "o1", asked)
    (held,) = submit(desk, "o2", request(duration_seconds=3_600))
    assert held.remedies[-1].kind == "wait"
    (wait,) = (it for it in held.remedies if it.kind == "wait_until")
    assert wait.at == datetime.fromisoformat(after).replace(tzinfo=UTC)
    facts = len(desk.facts)
    at(desk, before)
    assert "order.admitted" not in names(it.data for it in desk.facts[facts:])
    at(desk, after)
    assert "order.admitted" in names(it.data for it in desk.facts[facts:])


def test_an_order_without_end_gets_what_the_month_allows_and_says_so(desk: Desk) -> None:
    limit(desk, 10)
    claimed, admitted = submit(desk, "o1", request(cards=2))[:2]
    assert claimed.amounts.values[JUNE] == 10 * HOUR
    assert admitted.covered_until == claimed.covered_until == desk.now + timedelta(hours=5)
    (held,) = submit(desk, "o2", request())
    assert held.violations[0].requested == HOUR
    free = submit(desk, "o3", request("speech", cards=1))
    assert free[0].covered_until == datetime(2026, 7, 1, tzinfo=UTC)


def test_a_running_order_without_end_is_noticed_then_told_and_its_hours_are_renewed(desk: Desk) -> None:
    limit(desk, 10, notice_seconds=7_200, hours_exhausted="end")
    asked = request(cards=2)
    submit(desk, "o1", asked)
    ready(desk, "o1", asked)
    end = desk.now + timedelta(hours=5)
    assert names(desk.advance(hours=2, minutes=59)) == []
    (noticed,) = desk.advance(minutes=1)
    assert (noticed.covered_until, noticed.action) == (end, "end")
    (exhausted,) = desk.advance(hours=3)
    assert (exhausted.wire_type, exhausted.exhausted_at) == ("quota.hours_exhausted.v1", end)
    assert desk.advance(hours=1) == []


def test_hours_that_become_free_before_the_end_prolong_the_cover(desk: Desk) -> None:
    limit(desk, 10)
    asked = request()
    submit(desk, "o0", request(duration_seconds=4 * 3_600))
    submit(desk, "o1", asked)
    ready(desk, "o1", asked)
    start = desk.now
    desk.tell(*ends(desk, "o0")[2])
    (renewed,) = desk.advance(hours=5)
    assert (renewed.cause, renewed.covered_until) == ("renewed", start + timedelta(hours=10))
    assert used(desk) == 10 * HOUR


def test_at_the_turn_of_the_month_what_runs_is_renewed_before_who_waits(desk: Desk) -> None:
    limit(desk, 2_000)
    asked = request(cards=2)
    submit(desk, "o1", asked)
    ready(desk, "o1", asked)
    limit(desk, 600)
    assert names(submit(desk, "o2", request())) == ["order.held"]
    at(desk, "2026-06-30T23:00")
    (renewed,) = (it.data for it in desk.facts if getattr(it.data, "cause", "") == "renewed")
    assert used(desk, JULY) == 600 * HOUR
    assert renewed.covered_until == datetime(2026, 7, 13, 12, tzinfo=UTC)


def test_a_running_order_that_only_warns_runs_on_and_what_it_uses_counts(desk: Desk) -> None:
    limit(desk, 10)
    asked = request()
    submit(desk, "o1", asked)
    ready(desk, "o1", asked)
    start = desk.now
    assert "quota.hours_exhausted" in names(desk.advance(hours=9)) + names(desk.advance(hours=1))
    desk.now += timedelta(hours=2)
    (settled, *_) = line(desk, "o1", start)
    assert settled.taken.values == {JUNE: 12 * HOUR}
    desk.tell(*ends(desk, "o1")[0])
    assert used(desk) == 12 * HOUR


class TestSettling:
    """What metering says replaces what was held."""

    def test_use_is_booked_and_the_rest_is_free_at_the_end(self, desk: Desk) -> None:
        asked = request(cards=2, duration_seconds=10 * 3_600)
        submit(desk, "o1", asked)
        ready(desk, "o1", asked)
        start = desk.now
        desk.now += timedelta(hours=3)
        (used_,) = line(desk, "o1", start, 2)
        assert (used_.cause, used_.taken.values, used_.returned.values) == ("used", {JUNE: 6 * HOUR}, {JUNE: 6 * HOUR})
        (refunded,) = desk.tell(*ends(desk, "o1")[0])
        assert refunded.amounts.values[JUNE] == 14 * HOUR
        assert used(desk) == 6 * HOUR
        assert line(desk, "o1", start, 2) == []
        assert line(desk, "o1", start, 2, meter="held") == []

    def test_hours_of_an_order_that_ran_stay_held_until_metering_has_said(self, desk: Desk) -> None:
        asked = request(cards=2, duration_seconds=10 * 3_600)
        submit(desk, "o1", asked)
        ready(desk, "o1", asked)
        start = desk.now
        desk.now += timedelta(hours=3)
        desk.tell(*ends(desk, "o1")[0])
        assert (used(desk), used(desk, "cards")) == (20 * HOUR, 0)
        line(desk, "o1", start, 2)
        assert used(desk) == 6 * HOUR

    def test_an_order_that_never_ran_gives_everything_back_at_once(self, desk: Desk) -> None:
        submit(desk, "o1", request(duration_seconds=3_600))
        desk.tell(*ends(desk, "o1")[2])
        assert desk.docs.get("scopes", "acme/vision").used == {}

    def test_an_order_that_ended_before_it_was_ready_is_closed_by_the_line_of_what_was_held(self, desk: Desk) -> None:
        asked = request(duration_seconds=3_600)
        submit(desk, "o1", asked)
        ready(desk, "o1", asked)
        desk.tell(*ends(desk, "o1")[0])
        start = desk.now
        desk.now += timedelta(minutes=5)
        assert names(line(desk, "o1", start, meter="held")) == ["quota.adjusted"]
        assert desk.docs.get("scopes", "acme/vision").used == {}

    def test_an_order_that_was_over_in_no_time_leaves_nothing_held(self, desk: Desk) -> None:
        asked = request(duration_seconds=3_600)
        submit(desk, "o1", asked)
        ready(desk, "o1", asked)
        desk.tell(*ends(desk, "o1")[0])
        returned = AllocationReturned(
            order="o1", allocation="al-o1", pooled=("c",), quarantined=(), returned_at=desk.now
        )
        assert names(desk.tell(returned, "allocation/o1")) == ["quota.adjusted"]
        assert desk.docs.get("scopes", "acme/vision").used == {}

    def test_a_correction_takes_back_exactly_and_a_stranger_nothing(self, desk: Desk) -> None:
        asked = request(duration_seconds=10 * 3_600)
        submit(desk, "o1", asked)
        ready(desk, "o1", asked)
        start = desk.now
        desk.now += timedelta(hours=3)
        line(desk, "o1", start, record="r1")
        desk.tell(*ends(desk, "o1")[0])
        assert line(desk, "o1", start, record="r9", reverses="r8") == []
        line(desk, "o1", start, record="r2", reverses="r1")
        assert used(desk) == 0
        line(desk, "o1", start, record="r3", to_at=start + timedelta(hours=1))
        assert used(desk) == HOUR == desk.docs.get("scopes", "acme").settled[JUNE]

    def test_a_line_of_an_order_that_is_not_known_changes_nothing(self, desk: Desk) -> None:
        start = desk.now
        desk.now += timedelta(hours=3)
        assert line(desk, "o9", start) == []

    def test_a_settled_order_lets_the_next_in(self, desk: Desk) -> None:
        limit(desk, 10)
        asked = request(duration_seconds=10 * 3_600)
        submit(desk, "o1", asked)
        ready(desk, "o1", asked)
        submit(desk, "o2", request(duration_seconds=5 * 3_600))
        start = desk.now
        desk.now += timedelta(hours=1)
        line(desk, "o1", start)
        assert "order.admitted" in names(desk.tell(*ends(desk, "o1")[0]))
        assert used(desk) == 6 * HOUR


class TestMoving:
    """What is held follows the order in time."""

    def test_ready_late_moves_hours_into_the_next_month(self, desk: Desk) -> None:
        at(desk, "2026-06-30T23:00")
        asked = request(duration_seconds=7_200)
        submit(desk, "o1", asked)
        at(desk, "2026-07-01T00:00")
        assert (used(desk), used(desk, JULY)) == (0, 2 * HOUR)
        desk.now += timedelta(hours=1)
        (begun,) = [it for it in ready(desk, "o1", asked) if it.wire_type == "quota.adjusted.v1"]
        assert (begun.cause, begun.starts_at, begun.looks_at) == ("ready", desk.now, None)
        assert (used(desk), used(desk, JULY)) == (0, 2 * HOUR)

    def test_an_extension_holds_as_far_as_the_limits_allow(self, desk: Desk) -> None:
        limit(desk, 10)
        asked = request(duration_seconds=4 * 3_600)
        submit(desk, "o1", asked)
        ready(desk, "o1", asked)
        later = desk.now + timedelta(hours=24)
        extended = OrderExtensionRequested(order="o1", expires_at=later, requested_at=desk.now)
        adjusted = desk.tell(extended, "order/o1")[0]
        assert (adjusted.cause, adjusted.covered_until) == ("extended", desk.now + timedelta(hours=10))
        assert used(desk) == 10 * HOUR
        limit(desk, 100)
        desk.advance(hours=9)
        assert used(desk) == 24 * HOUR
        assert desk.states["admission/o1"].hold.covered_until is None


def test_a_line_that_ends_with_a_month_is_booked_and_the_order_goes_on_holding(desk: Desk) -> None:
    asked = request(duration_seconds=4 * 3_600)
    at(desk, "2026-06-30T22:00")
    submit(desk, "o1", asked)
    ready(desk, "o1", asked)
    held_in_july = used(desk, JULY)
    at(desk, "2026-07-01T00:00")
    since = datetime(2026, 6, 30, 22, tzinfo=UTC)
    line(desk, "o1", since, goes_on=True)
    line(desk, "o1", since, goes_on=True, meter="held")
    assert (used(desk), used(desk, JULY)) == (2 * HOUR, held_in_july)
    at(desk, "2026-07-01T01:00")
    line(desk, "o1", datetime(2026, 7, 1, tzinfo=UTC))
    line(desk, "o1", datetime(2026, 7, 1, tzinfo=UTC), meter="held")
    assert (used(desk), used(desk, JULY)) == (2 * HOUR, HOUR)
