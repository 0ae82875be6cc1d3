"""An order that gives its cards up keeps its claim; one that is suspended gives it back and stands in line for it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from qm_admission.book import SetLimits
from qm_events.catalog import OrderExpired
from qm_events.provisioner import EnvironmentQuarantined, EnvironmentReady
from qm_events.scheduler import AllocationAllocated
from qm_events.specs import OrderRequest, PlacedUnit
from tests.unit.admission.desk import TENANT, Desk, allocate, furnished, names, request, submit
from tests.unit.admission.test_hours import JULY, JUNE, at, limit, line, ready, used
from tests.unit.admission.test_hours_ledger import preempted, released, returned


@pytest.fixture
def desk() -> Desk:
    return furnished()


def scope(desk: Desk, dimension: str) -> int:
    return used(desk, dimension)


def give_up(desk: Desk, order: str = "o1") -> list[Any]:
    """The scheduler says so, and the cards come back."""
    al = f"al-{order}"
    said = desk.tell(preempted(order, al, desk.now), f"allocation/{order}")
    said += desk.tell(released(order, al, desk.now, lives_on=True), f"environment/{order}")
    return said + desk.tell(returned(order, al, desk.now, lives_on=True), f"allocation/{order}")


def again(desk: Desk, asked: OrderRequest, accelerator: str = "a100") -> list[Any]:
    cards = tuple(f"x-{number}" for number in range(asked.cards))
    units = (PlacedUnit(node="n2", accelerator=accelerator, cards=cards),)
    fact = AllocationAllocated(order="o1", allocation="al2", request=asked, units=units, allocated_at=desk.now)
    return desk.tell(fact, "allocation/o1")


def served(desk: Desk, **asked: Any) -> OrderRequest:
    wanted = request(cards=2, **asked)
    submit(desk, "o1", wanted)
    ready(desk, "o1", wanted)
    return wanted


def test_the_claim_stays_while_the_order_lives_and_is_refunded_once_at_its_end(desk: Desk) -> None:
    asked = served(desk, duration_seconds=7_200)
    assert names(give_up(desk)) == ["quota.adjusted"]
    assert scope(desk, "cards") == 2
    again(desk, asked)
    said = desk.tell(released("o1", "al2", desk.now), "environment/o1")
    said += desk.tell(returned("o1", "al2", desk.now), "allocation/o1")
    assert names(said).count("quota.refunded") == 1
    assert scope(desk, "cards") == 0


def test_cards_that_could_not_be_cleaned_end_no_order_that_lives_on(desk: Desk) -> None:
    served(desk)
    said = EnvironmentQuarantined(
        order="o1", allocation="al-o1", cards=(), step="s", error="e", lives_on=True, quarantined_at=desk.now
    )
    assert desk.tell(said, "environment/o1") == []


def test_an_order_that_ended_while_it_gave_its_cards_up_is_refunded_when_they_are_back(desk: Desk) -> None:
    served(desk)
    desk.tell(preempted("o1", "al-o1", desk.now), "allocation/o1")
    desk.tell(released("o1", "al-o1", desk.now, lives_on=True), "environment/o1")
    assert "quota.refunded" in names(desk.tell(returned("o1", "al-o1", desk.now), "allocation/o1"))


def test_other_cards_than_before_count_on_their_own_type(desk: Desk) -> None:
    asked = request(cards=2, types=("a100", "h100"))
    submit(desk, "o1", asked)
    allocate(desk, "o1", asked)
    give_up(desk)
    assert names(again(desk, asked, "h100")) == ["quota.adjusted"]
    assert (scope(desk, "cards/a100"), scope(desk, "cards/h100"), scope(desk, "cards")) == (0, 2, 2)


def test_its_promised_end_stands_and_what_was_used_counts_once(desk: Desk) -> None:
    limit(desk, 100)
    asked = served(desk, duration_seconds=10 * 3_600)
    began = desk.now
    desk.advance(hours=4)
    give_up(desk)
    assert scope(desk, JUNE) == 2 * 10 * 3_600_000_000
    line(desk, "o1", began, 2)
    desk.advance(hours=3)
    again(desk, asked)
    desk.tell(EnvironmentReady(order="o1", allocation="al2", endpoint={}, ready_at=desk.now), "environment/o1")
    # Four hours were used, and three are left to the promised end.
    assert scope(desk, JUNE) == 2 * 7 * 3_600_000_000


class TestSuspension:
    """`hours_exhausted: suspend`, at the end of June."""

    @pytest.fixture
    def desk(self) -> Desk:
        desk = furnished()
        limit(desk, 20, hours_exhausted="suspend")
        served(desk)
        assert scope(desk, "cards") == 2
        return desk

    def test_hours_that_are_used_up_suspend_after_a_notice(self, desk: Desk) -> None:
        assert names(desk.advance(hours=9)) == ["quota.hours_ending"]
        exhausted, suspended = desk.advance(hours=2)
        assert (exhausted.action, suspended.renews_at) == ("suspend", datetime(2026, 7, 1, tzinfo=UTC))
        assert desk.advance(hours=2) == []

    def test_its_claim_is_free_when_its_cards_are_back_and_the_wait_says_when_hours_renew(self, desk: Desk) -> None:
        desk.advance(hours=11)
        held = give_up(desk)[-1]
        (short,) = held.violations
        assert (short.dimension, short.renews_at) == (JUNE, datetime(2026, 7, 1, tzinfo=UTC))
        assert (scope(desk, "cards"), scope(desk, "concurrent_orders")) == (0, 0)

    def test_it_comes_back_when_the_month_turns_and_has_hours_of_the_next(self, desk: Desk) -> None:
        began = desk.now
        desk.advance(hours=11)
        give_up(desk)
        line(desk, "o1", began, 2)
        before = len(desk.facts)
        at(desk, "2026-06-30 23:59:59")
        assert names(event.data for event in desk.facts[before:]) == []
        at(desk, "2026-07-01 00:00:00")
        assert names(event.data for event in desk.facts[before:])[:2] == ["quota.claimed", "order.resumed"]
        assert (scope(desk, "cards"), scope(desk, JULY)) == (2, 20 * 3_600_000_000)

    def test_it_comes_back_when_the_limit_is_raised(self, desk: Desk) -> None:
        desk.advance(hours=11)
        give_up(desk)
        assert "order.resumed" in names(limit(desk, 60, hours_exhausted="suspend"))

    def test_a_bound_of_the_priority_that_was_lowered_since_does_not_keep_it_out(self) -> None:
        desk = furnished()
        desk.command("quota/acme", SetLimits(TENANT, None, {}, priority_at_most=5))
        limit(desk, 20, hours_exhausted="suspend")
        served(desk, priority=5)
        desk.advance(hours=11)
        give_up(desk)
        assert names(desk.command("quota/acme", SetLimits(TENANT, None, {}))) == ["quota_limit.set"]
        assert "order.resumed" in names(limit(desk, 60, hours_exhausted="suspend"))

    def test_it_stands_in_line_where_its_submission_puts_it(self, desk: Desk) -> None:
        desk.advance(hours=11)
        give_up(desk)
        submit(desk, "o2", request(cards=2))
        said = [event.data for event in desk.facts]
        limit(desk, 42, hours_exhausted="suspend")
        resumed = [event.data for event in desk.facts][len(said) :]
        assert next(it.order for it in resumed if hasattr(it, "order")) == "o1"

    def test_it_can_end_while_it_waits(self, desk: Desk) -> None:
        desk.advance(hours=11)
        give_up(desk)
        ended = OrderExpired(order="o1", expired_at=desk.now)
        assert names(desk.tell(ended, "order/o1")) == ["order.withdrawn"]

    def test_it_runs_and_is_suspended_again(self, desk: Desk) -> None:
        desk.advance(hours=11)
        give_up(desk)
        at(desk, "2026-07-01 00:00:00")
        again(desk, request(cards=2))
        desk.tell(EnvironmentReady(order="o1", allocation="al2", endpoint={}, ready_at=desk.now), "environment/o1")
        said = names([*desk.advance(hours=9, minutes=30), *desk.advance(hours=2)])
        assert said == ["quota.hours_ending", "quota.hours_exhausted", "order.suspended"]
