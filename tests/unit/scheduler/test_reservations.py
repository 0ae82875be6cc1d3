"""Cards that are kept for a window of time: for whom, from whom, and what is said of it."""

from datetime import datetime, timedelta
from typing import Any

from qm_events.envelope import utc_text
from qm_events.specs import WaitCode
from qm_scheduler.reservations import EndReservation, Maintain, Reserve
from qm_scheduler.view import Shape
from qm_service.model import Rejected
from tests.unit.scheduler.test_preemption import pass_time, yard
from tests.unit.scheduler.yard import START, Yard, request

HOUR = timedelta(hours=1)


def at(hours: float) -> datetime:
    return START + hours * HOUR


def reserve(made: Yard, name: str, start: float, end: float, cards: int = 4, units: int = 1, **more: Any) -> Any:
    shape = Shape(("h100",), 0, cards, more.get("cpu", 0), 0, units, None, False)
    command = Reserve(name, "acme", more.get("project"), shape, at(start), at(end), "training")
    return made.ask(f"reservation/{name}", command)


def maintain(made: Yard, name: str, node: str, start: float, end: float) -> Any:
    return made.ask(f"reservation/{name}", Maintain(name, (node,), at(start), at(end), "firmware"))


def test_others_use_a_reserved_place_only_if_they_end_before_it_begins() -> None:
    made = yard("n1")
    reserve(made, "r1", 2, 4)
    made.order("long", request(cards=4))
    made.order("two_hours", request(cards=4, duration_seconds=7_200))
    made.order("hour", request(cards=4, duration_seconds=3_600))
    assert [made.placed(order) for order in ("long", "two_hours", "hour")] == [False, False, True]
    assert made.codes("long")[0] is WaitCode.HIGHER_PRIORITY_AHEAD or made.codes("long") == [WaitCode.CAPACITY_IN_USE]


def test_not_even_the_highest_priority_takes_it() -> None:
    made = yard("n1")
    reserve(made, "r1", 2, 4)
    made.order("high", request(cards=1, priority=1000))
    assert not made.placed("high")
    (reason,) = made.why("high")
    assert reason.code is WaitCode.CAPACITY_IN_USE
    assert reason.figures["reserved"] == 4
    assert made.told("high") == [WaitCode.CAPACITY_IN_USE]


def test_an_order_that_names_it_waits_for_its_start_and_runs_on_it() -> None:
    made = yard("n1", "n2")
    reserve(made, "r1", 2, 4)
    made.order("mine", request(cards=2, reservation="r1"))
    assert made.told("mine") == [WaitCode.RESERVATION_NOT_STARTED]
    assert made.board.due == at(2)
    made.order("other", request(cards=4))
    made.order("next", request(cards=1))
    assert made.placed("other")
    assert not made.placed("next")
    made.now = at(2)
    made.settle()
    assert made.placed("mine")
    assert not made.placed("next")
    made.order("mine2", request(cards=2, reservation="r1"))
    assert made.placed("mine2")
    made.give_back("mine2")
    assert not made.placed("next")


def test_who_does_not_belong_to_the_project_cannot_use_it_by_naming_it() -> None:
    made = yard("n1")
    reserve(made, "r1", 2, 4, project="vision")
    made.order("alien", request(cards=2, reservation="r1", project="speech"))
    made.now = at(3)
    made.settle()
    assert not made.placed("alien")
    assert WaitCode.RESERVATION_NOT_STARTED not in made.told("alien")


def test_it_is_over_when_its_time_is_and_by_the_clock_alone() -> None:
    made = yard("n1")
    reserve(made, "r1", 2, 4)
    made.order("long", request(cards=4))
    made.now = at(4)
    made.settle()
    assert made.placed("long")
    assert made.board.reservations == {}
    assert made.board.due is None or made.board.due > at(4)


def test_a_cancelled_one_is_open_to_all() -> None:
    made = yard("n1")
    reserve(made, "r1", 2, 4)
    made.order("long", request(cards=4))
    made.ask("reservation/r1", EndReservation("r1", "cancelled", made.now))
    assert made.placed("long")


def test_more_than_there_is_is_refused_with_figures_and_the_next_window_that_fits() -> None:
    made = yard("n1", "n2")
    made.order("until5", request(cards=4, expires_at=at(5)))
    assert not isinstance(reserve(made, "r1", 1, 3), Rejected)
    refused = reserve(made, "r2", 2, 4)
    assert isinstance(refused, Rejected)
    assert refused.code == "reservation-overbooked"
    (figures,) = refused.violations
    assert (figures.limit, figures.used, figures.requested, figures.short_by) == (8, 8, 4, 4)
    assert f"{utc_text(at(3))} to {utc_text(at(5))}" in refused.remedy
    assert not isinstance(reserve(made, "r3", 3, 5), Rejected)
    assert isinstance(reserve(made, "r4", 4, 6), Rejected)
    assert not isinstance(reserve(made, "r5", 5, 6, units=2), Rejected)


def test_a_lease_without_an_end_and_a_place_that_is_promised_are_in_the_way() -> None:
    made = yard("n1", "n2")
    made.order("endless", request(cards=4))
    made.order("lease", request(cards=3, expires_at=at(1)))
    made.order("big", request(cards=4))
    made.order("small", request(cards=1, expires_at=at(9)))
    assert made.doc("big").promise is not None
    refused = reserve(made, "r1", 2, 3, cards=1)
    assert isinstance(refused, Rejected)
    assert "next window" not in refused.remedy


def test_a_sick_node_moves_it() -> None:
    made = yard("n1", "n2")
    reserve(made, "r1", 2, 4)
    (place,) = made.board.reservations["r1"].places
    made.cordon(place.node)
    (moved,) = made.board.reservations["r1"].places
    assert moved.node != place.node
    assert moved.units == 4


def test_maintenance_keeps_a_node_for_nobody_and_says_so() -> None:
    made = yard("n1")
    maintain(made, "m1", "n1", 2, 4)
    made.order("long", request(cards=4))
    assert made.codes("long") == [WaitCode.MAINTENANCE_WINDOW]
    assert made.told("long") == [WaitCode.MAINTENANCE_WINDOW]
    made.order("hour", request(cards=4, duration_seconds=3_600))
    assert made.placed("hour")
    made.give_back("hour")
    made.now = at(4)
    made.settle()
    assert made.placed("long")


def test_a_reservation_is_made_once_and_ends_once() -> None:
    made = yard("n1")
    assert len(reserve(made, "r1", 2, 4)) == 1
    assert reserve(made, "r1", 2, 4) == []
    end = EndReservation("r1", "cancelled", made.now)
    assert len(made.ask("reservation/r1", end)) == 1  # type: ignore[arg-type]
    assert made.ask("reservation/r1", end) == []
    assert isinstance(made.ask("reservation/r9", EndReservation("r9", "cancelled", made.now)), Rejected)


def test_nobody_is_evicted_on_a_reserved_node_for_a_place_that_he_could_not_keep() -> None:
    made = yard("n1")
    made.order("low", request(cards=4, preemptible=True, expires_at=at(1.5)))
    pass_time(made)
    reserve(made, "r1", 2, 4)
    made.order("high", request(cards=4, priority=10))
    assert made.doc("low").may_give_up


def test_the_index_of_a_restart_keeps_the_same() -> None:
    made = yard("n1", "n2")
    reserve(made, "r1", 2, 4)
    made.order("mine", request(cards=2, reservation="r1"))
    made.now = at(2)
    made.settle()
    for nodes_first in (True, False):
        fresh = made.fresh_board(nodes_first=nodes_first)
        assert fresh.pool.holds == made.board.pool.holds
        assert fresh.due == made.board.due
