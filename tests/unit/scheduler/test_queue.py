"""Who is next, who may pass whom, and what is promised to those who are passed."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_events.scheduler import AllocationPromised
from qm_events.specs import WaitCode
from qm_scheduler.estimate import estimate
from tests.unit.scheduler import oracle
from tests.unit.scheduler.yard import START, Yard, request

HOUR = 3600


def yard_of(**cards: int) -> Yard:
    yard = Yard()
    for node, count in cards.items():
        yard.node(node, {"h100": count})
    return yard


def promises(yard: Yard, order: str) -> list[AllocationPromised]:
    facts = (event.data for event in yard.facts if isinstance(event.data, AllocationPromised))
    return [fact for fact in facts if fact.order == order]


def running(yard: Yard, order: str, cards: int, hours: float | None = None) -> None:
    """Let an order hold cards for so many hours from now."""
    yard.order(order, request(cards=cards, duration_seconds=int(hours * HOUR) if hours else None, project="runs"))
    yard.ready(order)


# ---- turns


def test_projects_take_turns_and_each_is_served_first_come_first_served() -> None:
    yard = yard_of(n1=3)
    running(yard, "r", 3)
    for n in range(4):
        yard.order(f"a{n}", request(project="a"))
    for n in range(2):
        yard.order(f"b{n}", request(project="b"))
    assert [yard.board.queue.ahead(f"{name}")[0] for name in ("a0", "b0", "a1", "b1", "a2", "a3")] == [0, 1, 2, 3, 4, 5]
    yard.give_back("r")
    assert [grant.order for grant in yard.grants()] == ["r", "a0", "b0", "a1"]
    yard.give_back("a0")
    assert yard.grants()[-1].order == "a2"


def test_a_project_that_holds_less_is_served_before_one_that_came_first() -> None:
    yard = yard_of(n1=4)
    for n in range(4):
        yard.order(f"a{n}", request(project="a"))
    yard.order("a4", request(project="a"))
    yard.order("b0", request(project="b"))
    assert yard.codes("a4") == [WaitCode.HIGHER_PRIORITY_AHEAD, WaitCode.CAPACITY_IN_USE]
    yard.give_back("a0")
    assert yard.placed("b0")
    assert not yard.placed("a4")


def test_a_higher_priority_goes_before_every_share() -> None:
    yard = yard_of(n1=2)
    for n in range(2):
        yard.order(f"a{n}", request(project="a"))
    yard.order("b", request(project="b"))
    yard.order("urgent", request(project="a", priority=1))
    yard.give_back("a0")
    assert yard.placed("urgent")


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=12),
    st.integers(0, 3),
)
def test_a_position_is_the_turn_in_which_an_order_is_served(orders: list[tuple[str, int, int]], held: int) -> None:
    yard = yard_of(n1=8, n2=8)
    running(yard, "r", 8)
    for n in range(held):
        yard.order(f"h{n}", request(project="a", cards=2))
    yard.order("rest", request(project="rest", cards=8 - 2 * held) if held < 4 else request())
    for n, (project, cards, priority) in enumerate(orders):
        yard.order(f"o{n:02}", request(project=project, cards=cards, priority=priority))
    docs = list(yard.docs.all["allocations"].values())
    waiting = [doc.order for doc in docs if doc.is_waiting]
    for order in waiting:
        assert yard.board.queue.ahead(order)[0] + 1 == oracle.position(docs, order)
    assert yard.board.queue.places() == {order: yard.board.queue.ahead(order) for order in waiting}


# ---- passing


def test_a_small_order_passes_where_it_does_not_delay_the_one_before_it() -> None:
    yard = yard_of(n1=4, n2=1)
    running(yard, "r1", 3, hours=2)
    yard.order("large", request(cards=4, project="big"))
    yard.order("endless", request(project="small"))
    assert yard.nodes_of("endless") == ["n2"]
    (promise,) = promises(yard, "large")
    assert [(at.node, at.units) for at in promise.places] == [("n1", 1)]
    assert promise.until == yard.doc("r1").ends_at
    yard.order("too-long", request(project="small", duration_seconds=3 * HOUR))
    yard.order("short", request(project="small", duration_seconds=HOUR))
    assert not yard.placed("too-long")
    assert yard.nodes_of("short") == ["n1"]


def test_what_is_more_than_enough_at_the_promised_time_is_open_to_all() -> None:
    yard = yard_of(n1=8)
    running(yard, "r", 5, hours=1)
    yard.order("large", request(cards=4, project="big"))
    yard.order("endless", request(cards=3, project="small"))
    assert yard.placed("endless")
    yard.give_back("r")
    assert yard.placed("large")


@dataclass
class Flow:
    """Leases end at their ends; an order is READY a minute after it was placed."""

    yard: Yard
    due: list[tuple[datetime, str, str]] = field(default_factory=list)
    placed: set[str] = field(default_factory=set)
    promised: dict[str, datetime] = field(default_factory=dict)
    """By when, as was said first."""

    def look(self) -> None:
        for grant in self.yard.grants():
            if grant.order not in self.placed:
                self.placed.add(grant.order)
                heappush(self.due, (self.yard.now + timedelta(minutes=1), "ready", grant.order))
        for order, doc in self.yard.docs.all["allocations"].items():
            if doc.promise and doc.promise.until:
                self.promised.setdefault(order, doc.promise.until)

    def run(self, until: datetime) -> None:
        while self.due and self.due[0][0] <= until:
            at, kind, order = heappop(self.due)
            self.yard.now = max(at - timedelta(seconds=1), self.yard.now)
            if kind == "ready":
                self.yard.ready(order)
                heappush(self.due, (self.yard.doc(order).ends_at or until, "end", order))
            else:
                self.yard.give_back(order)
            self.look()
        self.yard.now = max(until, self.yard.now)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 2), st.integers(1, 8), st.sampled_from("abc"), st.integers(0, 3)),
        min_size=4,
        max_size=40,
    )
)
def test_a_promise_is_kept_when_leases_end_as_promised(orders: list[tuple[int, int, int, str, int]]) -> None:
    flow, clock = Flow(yard_of(n1=4, n2=4, n3=2)), START
    for n, (cards, units, hours, project, pause) in enumerate(orders):
        clock += timedelta(minutes=20 * pause)
        flow.run(clock)
        flow.yard.order(f"o{n:02}", request(cards=cards, count=units, duration_seconds=hours * HOUR, project=project))
        flow.look()
    flow.run(clock + timedelta(days=30))
    assert len(flow.placed) == len(orders)
    for order, until in flow.promised.items():
        ready_at = flow.yard.doc(order).ready_at
        assert ready_at is not None
        # It is READY a minute after it was placed, and each input of the yard takes a second.
        assert ready_at <= until + timedelta(minutes=2), order


def test_a_stream_of_small_orders_does_not_starve_a_large_one() -> None:
    yard = yard_of(n1=4)
    for n in range(4):
        running(yard, f"s{n}", 1, hours=1)
    yard.order("large", request(cards=4, project="big"))
    for n in range(4):
        yard.order(f"t{n}", request(project=f"p{n}", duration_seconds=2 * HOUR))
        yard.give_back(f"s{n}")
    assert yard.placed("large")


def test_a_promise_moves_when_its_node_falls_ill_and_is_taken_back_when_nothing_can_keep_it() -> None:
    yard = yard_of(n1=4, n2=4)
    running(yard, "r1", 3, hours=1)
    running(yard, "r2", 4, hours=2)
    yard.order("large", request(cards=4, project="big"))
    yard.order("short", request(project="small", duration_seconds=60))
    first, second = yard.nodes_of("r1") + yard.nodes_of("r2")
    assert [at.node for at in promises(yard, "large")[-1].places] == [first]
    yard.health(first, f"{first}-h100-3", "failed")
    assert [at.node for at in promises(yard, "large")[-1].places] == [second]
    yard.health(second, f"{second}-h100-3", "failed")
    assert promises(yard, "large")[-1].places == ()
    assert yard.board.pool.holds == {}
    assert yard.codes("large")[0] is WaitCode.HEALTHY_CAPACITY_INSUFFICIENT


def test_a_place_that_is_kept_does_not_bind_a_higher_priority() -> None:
    yard = yard_of(n1=4)
    running(yard, "r", 2, hours=1)
    yard.order("large", request(cards=4, project="big"))
    yard.order("short", request(project="small", duration_seconds=60))
    assert yard.doc("large").promise is not None
    yard.order("urgent", request(project="small", priority=1))
    assert yard.placed("urgent")


def test_who_was_promised_a_place_stays_first_of_its_band_when_shares_move() -> None:
    yard = yard_of(n1=4)
    running(yard, "r", 2, hours=1)
    yard.order("large", request(cards=4, project="big"))
    yard.order("short", request(project="small", duration_seconds=60))
    yard.order("poor", request(cards=4, project="poor"))
    assert yard.board.queue.ahead("large") == (0, 0)
    yard.give_back("short")
    yard.give_back("r")
    assert yard.placed("large")


def test_units_in_one_rack_are_kept_a_rack() -> None:
    yard = Yard()
    for node, rack in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        yard.node(node, {"h100": 2}, rack=rack)
    for n, hours in enumerate((1, 1, 3, 3)):
        running(yard, f"r{n}", 2, hours=hours)
    yard.give_back("r0")
    yard.order("gang", request(cards=2, count=2, within="rack", project="big"))
    yard.order("long", request(cards=1, project="small"))
    place = {at.node for at in promises(yard, "gang")[-1].places}
    assert place in ({"a1", "a2"}, {"b1", "b2"})
    assert not yard.placed("long")


# ---- estimates


def test_an_estimate_is_the_promise_or_the_end_by_which_all_before_it_have_cards() -> None:
    yard = yard_of(n1=2)
    running(yard, "r1", 1, hours=1)
    running(yard, "r2", 1, hours=2)
    yard.order("first", request(project="a"))
    yard.order("second", request(project="b"))
    docs: Any = yard.docs.resident("allocations")
    assert estimate(yard.board, docs, "first", yard.now) == yard.doc("r1").ends_at
    assert estimate(yard.board, docs, "second", yard.now) == yard.doc("r2").ends_at
    yard.order("third", request(project="c"))
    assert estimate(yard.board, docs, "third", yard.now) is None


def test_an_order_with_an_absolute_end_passes_if_that_is_before_the_promise() -> None:
    yard = yard_of(n1=2)
    running(yard, "r", 1, hours=2)
    yard.order("large", request(cards=2, project="big"))
    yard.order("late", request(project="small", expires_at=START + timedelta(hours=5)))
    yard.order("early", request(project="small", expires_at=START + timedelta(hours=1)))
    assert [yard.placed(order) for order in ("late", "early")] == [False, True]
