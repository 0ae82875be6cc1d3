"""Who has to leave for whom, what that costs, and what each side is told."""

from datetime import timedelta
from typing import Any

from qm_events.scheduler import AllocationPreempted, AllocationPromised
from qm_events.specs import WaitCode
from tests.unit.scheduler.yard import Yard, request

LATER = timedelta(minutes=30)


def yard(*nodes: str, cards: int = 4, **more: Any) -> Yard:
    made = Yard()
    for name in nodes or ("n1",):
        made.node(name, {"h100": cards}, **more)
    return made


def low(cards: int = 4, **more: Any) -> Any:
    return request(cards=cards, preemptible=True, **more)


def preempted(made: Yard) -> dict[str, AllocationPreempted]:
    return {event.data.order: event.data for event in made.facts if isinstance(event.data, AllocationPreempted)}


def promises(made: Yard, order: str) -> list[AllocationPromised]:
    told = (event.data for event in made.facts if isinstance(event.data, AllocationPromised))
    return [fact for fact in told if fact.order == order]


def pass_time(made: Yard, by: timedelta = LATER) -> None:
    made.now += by
    made.settle()


def test_a_higher_priority_takes_the_place_of_a_preemptible_order_in_one_step() -> None:
    made = yard()
    made.order("low", low())
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    fact = preempted(made)["low"]
    assert fact.cause == "preempted"
    (promise,) = promises(made, "high")
    assert promise.victims == (made.doc("low").allocation,)
    assert [place.node for place in promise.places] == ["n1"]
    kinds = [event.type for event in made.facts[-3:]]
    assert kinds == ["allocation.promised.v1", "allocation.preempted.v1", "allocation.waiting.v1"]
    (reason,) = [each for each in made.why("high") if each.code is WaitCode.WAITING_FOR_PREEMPTION]
    assert reason.figures["cards_awaited"] == 4
    assert reason.figures["expected_at"] is not None
    made.give_back("low")
    assert made.placed("high")
    assert made.codes("low") == [WaitCode.CAPACITY_IN_USE]
    assert not made.doc("low").units


def test_who_is_not_preemptible_or_not_lower_stays() -> None:
    made = yard("n1", "n2")
    made.order("fixed", request(cards=4))
    made.order("peer", low(priority=10))
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    assert preempted(made) == {}
    assert made.codes("high") == [WaitCode.CAPACITY_IN_USE]


def test_nobody_is_a_victim_before_its_minimum_run_time_and_the_clock_alone_brings_it_about() -> None:
    made = yard()
    made.order("low", low())
    made.order("high", request(cards=4, priority=10))
    assert preempted(made) == {}
    due = made.board.due
    assert due is not None
    made.now = due
    made.settle()
    assert list(preempted(made)) == ["low"]
    assert (due - made.doc("low").allocated_at) >= timedelta(seconds=made.board.laws.min_run_seconds)  # type: ignore[operator]


def test_the_cheapest_victims_are_chosen() -> None:
    made = yard("n1", "n2")
    made.order("old", low(cards=4))
    pass_time(made, timedelta(hours=5))
    made.order("young", low(cards=4))
    pass_time(made)
    made.order("high", request(cards=2, priority=10))
    assert list(preempted(made)) == ["young"]


def test_one_large_victim_is_cheaper_than_many_small_ones_of_as_many_cards() -> None:
    made = yard("n1", "n2")
    made.order("whole", low(cards=4))
    for n in range(4):
        made.order(f"part{n}", low(cards=1))
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    assert list(preempted(made)) == ["whole"]


def test_no_more_leave_than_the_place_needs() -> None:
    made = yard("n1", cards=8)
    for n in range(8):
        made.order(f"low{n}", low(cards=1))
    pass_time(made)
    made.order("high", request(cards=3, priority=10))
    assert len(preempted(made)) == 3


def test_a_gang_leaves_as_a_whole_and_makes_room_on_each_of_its_nodes() -> None:
    made = yard("n1", "n2", "n3")
    made.order("gang", low(cards=4, count=2))
    made.order("fixed", request(cards=4))
    pass_time(made)
    made.order("high", request(cards=4, count=2, priority=10))
    assert list(preempted(made)) == ["gang"]
    made.give_back("gang")
    assert sorted(made.nodes_of("high")) == sorted({"n1", "n2", "n3"} - set(made.nodes_of("fixed")))


def test_nobody_leaves_for_a_place_that_would_not_be_there() -> None:
    """8 cards on 4 nodes for an order of 8 on one node."""
    made = yard("n1", "n2", "n3", "n4")
    for n in range(4):
        made.order(f"low{n}", low(cards=2))
        made.order(f"fixed{n}", request(cards=2))
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    assert preempted(made) == {} or made.codes("high") == [WaitCode.WAITING_FOR_PREEMPTION]
    before = len(preempted(made))
    made.order("huge", request(cards=8, priority=20))
    made.order("rack", request(cards=4, count=3, priority=20, within="rack"))
    assert len(preempted(made)) == before


def test_cpu_and_topology_are_respected() -> None:
    made = yard("n1", "n2", rack="a", cpu=8)
    made.node("n3", {"h100": 4}, rack="b", cpu=8)
    made.order("cpu", request(cards=1, cpu=8))
    home = made.nodes_of("cpu")
    made.order("low1", low(cards=3))
    made.order("low2", low(cards=4))
    made.order("low3", low(cards=4))
    pass_time(made)
    made.order("high", request(cards=3, cpu=4, priority=10))
    (victim,) = preempted(made)
    assert made.nodes_of(victim) != home


def test_freed_cards_go_to_nobody_else_and_victims_do_not_come_back_before() -> None:
    """Two victims end at different times; the first is not let in again on what it left."""
    made = yard("n1", cards=4)
    made.order("low1", low(cards=2))
    made.order("low2", low(cards=2))
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    assert sorted(preempted(made)) == ["low1", "low2"]
    made.give_back("low1")
    made.order("other", request(cards=1, priority=10))
    assert not made.placed("low1")
    assert not made.placed("other")
    made.give_back("low2")
    assert made.placed("high")


def test_a_strictly_higher_order_may_take_the_place_over() -> None:
    made = yard("n1")
    made.order("low", low())
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    made.order("higher", request(cards=4, priority=20))
    made.give_back("low")
    assert made.placed("higher")
    assert not made.placed("high")


def test_a_cancelled_preemptor_gives_its_place_up_and_who_was_told_goes() -> None:
    made = yard("n1")
    made.order("low", low())
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    made.cancel("high")
    assert made.board.pool.holds == {}
    made.give_back("low")
    assert made.placed("low")


def test_a_lease_that_ends_soon_is_waited_for() -> None:
    made = yard("n1", "n2")
    made.order("low", low())
    made.order("lease", request(cards=4, expires_at=made.now + LATER + timedelta(minutes=12)))
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    assert preempted(made) == {}


def test_no_order_is_evicted_more_often_than_a_day_allows() -> None:
    made = yard("n1")
    made.order("low", low())
    for n in range(3):
        pass_time(made)
        made.order(f"high{n}", request(cards=4, priority=10))
        evicted = not made.doc("low").may_give_up
        assert evicted == (n < 2)
        if evicted:
            made.give_back("low")
            made.give_back(f"high{n}")
    assert made.doc("low").may_give_up
    made.now += timedelta(hours=24)
    made.settle()
    assert not made.doc("low").may_give_up


def test_a_type_bears_only_so_many_evictions_at_a_time() -> None:
    made = yard(*(f"n{n}" for n in range(40)))
    for n in range(40):
        made.order(f"low{n}", low())
    pass_time(made)
    for n in range(40):
        made.order(f"high{n}", request(cards=4, priority=10))
    assert len(preempted(made)) == made.board.laws.window_evictions
    pass_time(made, timedelta(seconds=made.board.laws.window_seconds))
    assert len(preempted(made)) == 40


def test_the_victim_reads_why_and_nothing_of_who() -> None:
    made = yard("n1")
    made.order("low", low(project="speech"))
    pass_time(made)
    made.order("high", request(cards=4, priority=10))
    why = preempted(made)["low"].why
    assert "priority 10" in why
    assert "in its old place" in why
    assert not any(word in why for word in ("acme", "vision", "high"))


def test_the_better_ranked_are_served_first_by_what_is_freed() -> None:
    made = yard("n1")
    made.order("low", low())
    pass_time(made)
    made.order("second", request(cards=4, priority=10), settle=False)
    made.order("first", request(cards=4, priority=20))
    made.give_back("low")
    assert made.placed("first")
