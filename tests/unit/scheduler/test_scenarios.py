"""The 22 situations in which a peer was asked why an order waits (docs/scheduling.md), and what is said here.

Those about quota are answered by admission before an order reaches the queue: `tests/unit/admission`, test_gates and
test_quota (1a, 1b, 1d, 1e: every violated scope and dimension with its figures; what never fits is rejected; a typed
limit counts whatever types are accepted). 1c and 1f: no limit of this release is for a person or for card-minutes.
"""

from datetime import timedelta
from typing import Any

import pytest

from qm_events.scheduler import AllocationPreempted
from qm_events.specs import WaitCode
from qm_scheduler.estimate import estimate
from tests.unit.scheduler.yard import Yard, request

SPEC = WaitCode.SPECIFICATION_UNAVAILABLE
AHEAD = WaitCode.HIGHER_PRIORITY_AHEAD
SICK = WaitCode.HEALTHY_CAPACITY_INSUFFICIENT
TOPOLOGY = WaitCode.TOPOLOGY_UNSATISFIABLE
FRAGMENTED = WaitCode.CAPACITY_FRAGMENTED
IN_USE = WaitCode.CAPACITY_IN_USE
HOUR = 3600


def cluster(h100: int = 4, a100: int = 2) -> Yard:
    """Nodes of eight, two in a rack."""
    yard = Yard()
    for kind, count in (("h100", h100), ("a100", a100)):
        for n in range(count):
            yard.node(f"{kind}-{n}", {kind: 8}, rack=f"{kind}-r{n // 2}")
    return yard


def busy(yard: Yard, kind: str, *, cards: int = 8, hours: float | None = None) -> list[str]:
    """Let orders of so many cards take all that is free of a type."""
    orders = []
    while True:
        order = f"busy-{kind}-{len(orders)}"
        asked = request((kind,), cards, duration_seconds=int(hours * HOUR) if hours else None, project="others")
        yard.order(order, asked)
        if not yard.placed(order):
            yard.cancel(order)
            return orders
        yard.ready(order)
        orders.append(order)


def figures(yard: Yard, code: WaitCode, order: str = "it") -> dict[str, Any]:
    return next(reason.figures for reason in yard.why(order) if reason.code is code)


@pytest.mark.parametrize(
    ("asked", "lacks"),
    [
        (request(("b200",)), "accelerators"),
        (request(cards=16), "cards_per_unit"),
        (request(("a100",), cards=2, count=100), "units"),
        (request(count=16, cards=8), "units"),
        (request(cpu=1_000_000), "cpu_milli"),
        (request(card_memory=90_000), "accelerator_memory_mib"),
        (request(traits=("infiniband",)), "traits"),
        (request(cards=16, cpu=1_000_000), "several"),
    ],
    ids=["2a-type", "2a-cards", "2a-nodes", "2b", "cpu", "memory", "traits", "several"],
)
def test_2a_2b_what_the_fleet_can_never_hold_is_named_part_by_part(asked: Any, lacks: str) -> None:
    yard = cluster()
    yard.order("it", asked)
    assert yard.codes("it") == [SPEC]
    assert figures(yard, SPEC)["lacks"] == lacks
    assert yard.told("it") == [SPEC]


def test_2c_an_order_for_a_free_type_starts_at_once_behind_one_for_a_busy_type() -> None:
    yard = cluster()
    busy(yard, "a100", hours=2)
    yard.order("it", request(("a100",)))
    yard.order("other", request(("h100",)))
    assert yard.placed("other")
    assert yard.codes("it") == [IN_USE]
    assert estimate(yard.board, yard.docs.resident("allocations"), "it", yard.now) is not None


@pytest.mark.parametrize("health", ["failed", "suspect", "unknown"], ids=["3a", "3b", "unknown"])
def test_3a_3b_sick_cards_are_counted_by_cause_and_no_server_is_named(health: str) -> None:
    yard = cluster()
    for n in range(4):
        yard.health(f"h100-{n}", None, health)
    yard.order("it", request())
    assert yard.codes("it") == [SICK]
    assert figures(yard, SICK)["isolated"] == {health: 32}
    assert "h100-0" not in str(yard.why("it"))


def test_3c_sick_cards_are_seen_beside_busy_ones() -> None:
    yard = cluster()
    for n in range(1, 4):
        yard.cordon(f"h100-{n}")
    busy(yard, "h100")
    yard.order("it", request())
    assert yard.codes("it") == [SICK, IN_USE]
    assert figures(yard, SICK)["isolated"] == {"cordoned": 24}


def test_3d_one_missing_card_costs_one_card() -> None:
    yard = cluster(h100=1)
    yard.node("h100-0", {"h100": 7}, rack="h100-r0")
    yard.order("it", request())
    assert yard.placed("it")
    yard.order("eight", request(cards=8))
    assert figures(yard, SPEC, "eight")["largest_node_cards"] == 7


def test_4a_an_order_that_may_pass_is_never_told_that_it_waits() -> None:
    yard = cluster(h100=2)
    running = busy(yard, "h100", hours=2)
    yard.give_back(running[0])
    yard.order("head", request(cards=8, count=2))
    yard.order("it", request(duration_seconds=HOUR))
    assert yard.placed("it")
    assert yard.told("it") == []


def test_4b_thousands_behind_one_blocked_order_know_their_positions() -> None:
    yard = cluster()
    busy(yard, "h100")
    yard.order("head", request(cards=8))
    for n in range(2_000):
        yard.order(f"o{n:04}", request(cards=8), at=10_000 + n)
    assert figures(yard, AHEAD, "o1999") == {"count": 2_000, "position": 2_001, "cards": 16_000, "because": "submitted"}


def test_4c_the_victim_of_a_preemption_knows_why_and_what_follows() -> None:
    yard = cluster(h100=1)
    yard.order("it", request(cards=8, preemptible=True))
    yard.now += timedelta(minutes=20)
    yard.order("high", request(cards=8, priority=10))
    (told,) = (event.data for event in yard.facts if isinstance(event.data, AllocationPreempted))
    assert (told.order, told.cause) == ("it", "preempted")
    assert "priority 10" in told.why
    assert "in the queue again, in its old place" in told.why
    assert figures(yard, WaitCode.WAITING_FOR_PREEMPTION, "high")["cards_awaited"] == 8
    yard.give_back("it")
    assert yard.codes("it") == [IN_USE]


def test_5a_a_required_rack_is_named_and_not_given_up() -> None:
    yard = cluster()
    running = busy(yard, "h100")
    for order in running:
        if yard.nodes_of(order)[0] in ("h100-0", "h100-2"):
            yard.give_back(order)
    yard.order("it", request(cards=8, count=2, within="rack"))
    assert yard.codes("it") == [TOPOLOGY, IN_USE]
    assert figures(yard, TOPOLOGY)["largest_domain"] == 1


def test_5b_a_preferred_rack_is_a_preference() -> None:
    yard = cluster()
    running = busy(yard, "h100")
    for order in running:
        if yard.nodes_of(order)[0] in ("h100-0", "h100-2"):
            yard.give_back(order)
    yard.order("it", request(cards=8, count=2, within="rack", required=False))
    assert yard.placed("it")


def test_5c_what_no_rack_can_ever_hold_is_said() -> None:
    yard = cluster()
    yard.order("it", request(cards=8, count=3, within="rack"))
    assert yard.codes("it") == [TOPOLOGY]
    assert figures(yard, TOPOLOGY)["largest_domain_when_idle"] == 2
    assert "at most 2 units" in yard.why("it")[0].remedy


def test_6a_free_cards_in_pieces_are_fragmentation() -> None:
    yard = cluster()
    for order in busy(yard, "h100", cards=4)[::2]:
        yard.give_back(order)
    yard.order("it", request(cards=8))
    assert yard.codes("it") == [FRAGMENTED, IN_USE]
    assert figures(yard, FRAGMENTED) == {
        "requested": 8,
        "cards_per_unit": 8,
        "free_total": 16,
        "largest_free_on_one_node": 4,
    }


def test_6b_free_cards_without_cpu_say_that_cpu_is_short() -> None:
    yard = cluster()
    for n in range(4):
        yard.order(f"eater-{n}", request(cpu=96_000))
    yard.order("it", request(cpu=1_000))
    assert figures(yard, IN_USE) == {"requested": 1, "free": 28, "short": ["cpu_milli"], "next_end": None}


def test_7_reasons_are_right_again_when_their_cause_changes() -> None:
    yard = cluster(h100=1)
    (running,) = busy(yard, "h100")
    yard.order("it", request(cards=8))
    yard.cordon("h100-0")
    assert yard.told("it") == [IN_USE, SICK]
    yard.uncordon("h100-0")
    assert yard.told("it") == [IN_USE, SICK, IN_USE]
    yard.give_back(running)
    assert yard.placed("it")


@pytest.mark.parametrize(
    ("because", "before", "after"),
    [
        ("priority", {"priority": 1}, {}),
        ("submitted", {}, {}),
        ("share", {"project": "poor"}, {"project": "others"}),
    ],
)
def test_who_is_ahead_is_told_by_its_rank_and_never_by_its_name(because: str, before: Any, after: Any) -> None:
    yard = cluster()
    busy(yard, "h100")
    yard.order("first", request(cards=8, **before))
    yard.order("it", request(cards=8, **after))
    assert figures(yard, AHEAD)["because"] == because
    assert "poor" not in str(yard.why("it"))


def test_a_remedy_promises_only_what_would_be_placed() -> None:
    yard = cluster(h100=1)
    yard.health("h100-0", "h100-0-h100-7", "failed")
    yard.order("it", request(cards=2, count=4))
    assert figures(yard, SICK)["units_now"] == 3
    assert yard.why("it")[0].remedy.endswith("An order of 3 units would be placed now.")
    yard.order("less", request(cards=2, count=3))
    assert yard.placed("less")
    assert yard.why("it")[0].remedy.endswith("Not one unit would be placed now; another accelerator type may be free.")
