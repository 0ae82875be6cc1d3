"""Each waiting reason with its figures, alone and beside others, and when it is told."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from qm_events.envelope import utc_text
from qm_events.scheduler import AllocationWaiting
from qm_events.specs import OrderRequest, WaitCode
from qm_scheduler.estimate import estimate
from qm_scheduler.reasons import RULES
from tests.unit.scheduler.yard import START, Yard, request

SPEC = WaitCode.SPECIFICATION_UNAVAILABLE
AHEAD = WaitCode.HIGHER_PRIORITY_AHEAD
SICK = WaitCode.HEALTHY_CAPACITY_INSUFFICIENT
TOPOLOGY = WaitCode.TOPOLOGY_UNSATISFIABLE
FRAGMENTED = WaitCode.CAPACITY_FRAGMENTED
IN_USE = WaitCode.CAPACITY_IN_USE


def fleet(*sizes: int, **more: Any) -> Yard:
    yard = Yard()
    for n, size in enumerate(sizes):
        yard.node(f"n{n}", {"h100": size}, **more)
    return yard


def busy(*sizes: int, held: int = 1) -> Yard:
    """Return a fleet in which `held` cards of every node are in use."""
    yard = fleet(*sizes)
    for n, size in enumerate(sizes):
        for other in range(len(sizes)):
            if other != n:
                yard.cordon(f"n{other}")
        yard.order(f"on-n{n}", request(cards=min(held, size)))
        for other in range(len(sizes)):
            yard.uncordon(f"n{other}")
    return yard


def sick(yard: Yard, health: str, *cards: str) -> Yard:
    for card in cards:
        yard.health(card.split("-")[0], card, health)
    return yard


def quarantined(yard: Yard) -> Yard:
    yard.order("dirty", request(cards=2))
    yard.give_back_dirty("dirty")
    return yard


def cleaning(yard: Yard) -> Yard:
    yard.order("ending", request(cards=2))
    yard.release_started("ending")
    return yard


def failing_in_use(yard: Yard) -> Yard:
    yard.order("holder", request(cards=2))
    return sick(yard, "failed", "n0-h100-0")


def cordoned(yard: Yard) -> Yard:
    yard.cordon("n0")
    return yard


def racks() -> Yard:
    yard = Yard()
    for node, rack in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        yard.node(node, {"h100": 2}, rack=rack)
    return yard


def racks_in_use() -> Yard:
    yard = racks()
    yard.order("r-1", request(cards=2, count=2, within="rack"))
    yard.order("r-2", request(cards=2))
    yard.order("r-3", request(cards=2))
    yard.give_back("r-1")
    yard.order("r-4", request(cards=2))
    yard.give_back("r-2")
    return yard


Row = tuple[Callable[[], Yard], OrderRequest, list[WaitCode], dict[str, Any]]

TABLE: dict[str, Row] = {
    "no such card": (
        lambda: fleet(2),
        request(("b200",)),
        [SPEC],
        {"cards_in_fleet": 0, "units_possible": 0, "largest_node_cards": 0},
    ),
    "more cards than any node has": (
        lambda: fleet(4, 4),
        request(cards=8),
        [SPEC],
        {"cards_in_fleet": 8, "largest_node_cards": 4, "cards_per_unit": 8},
    ),
    "more units than the fleet has": (
        lambda: fleet(2),
        request(count=3),
        [SPEC],
        {"requested_units": 3, "units_possible": 2},
    ),
    "more memory than any node has": (lambda: fleet(2), request(memory=10**6), [SPEC], {"units_possible": 0}),
    "all in use": (lambda: busy(1, 1), request(), [IN_USE], {"requested": 1, "free": 0, "short": ["cards"]}),
    "cards free and CPU in use": (
        lambda: (yard := fleet(4), yard.order("eater", request(cpu=90_000)), yard)[2],
        request(cpu=10_000),
        [IN_USE],
        {"free": 3, "short": ["cpu_milli"]},
    ),
    "all sick": (
        lambda: sick(fleet(2), "suspect", "n0-h100-0", "n0-h100-1"),
        request(),
        [SICK],
        {"requested": 1, "healthy_free": 0, "isolated": {"suspect": 2}},
    ),
    "sick in several ways": (
        lambda: sick(sick(fleet(4), "failed", "n0-h100-0"), "unknown", "n0-h100-1"),
        request(cards=4),
        [SICK],
        {"healthy_free": 2, "isolated": {"failed": 1, "unknown": 1}},
    ),
    "quarantined": (lambda: quarantined(fleet(2)), request(cards=2), [SICK], {"isolated": {"quarantined": 2}}),
    "cordoned": (lambda: cordoned(fleet(2)), request(cards=2), [SICK], {"isolated": {"cordoned": 2}}),
    "being cleaned": (lambda: cleaning(fleet(2)), request(cards=2), [SICK, IN_USE], {"isolated": {"cleaning": 2}}),
    "sick under a lease": (
        lambda: failing_in_use(fleet(2)),
        request(cards=2),
        [SICK, IN_USE],
        {"isolated": {"in_use": 1}, "healthy_free": 0},
    ),
    "one repair or one end would do": (
        lambda: sick(busy(2, 2), "failed", "n0-h100-1"),
        request(cards=1, count=2),
        [SICK, IN_USE],
        {"requested": 2, "healthy_free": 1},
    ),
    "free cards in pieces": (
        lambda: busy(4, 4, held=2),
        request(cards=4),
        [FRAGMENTED, IN_USE],
        {"free_total": 4, "largest_free_on_one_node": 2},
    ),
    "no rack has them now": (
        racks_in_use,
        request(cards=2, within="rack", count=2),
        [TOPOLOGY, IN_USE],
        {"within": "rack", "largest_domain": 1, "largest_domain_when_idle": 2},
    ),
    "no rack can ever have them": (
        racks,
        request(cards=2, count=3, within="rack"),
        [TOPOLOGY],
        {"requested_units": 3, "largest_domain": 2, "largest_domain_when_idle": 2},
    ),
    "no node can ever have them": (
        racks,
        request(cards=2, count=2, within="node"),
        [TOPOLOGY],
        {"within": "node", "largest_domain_when_idle": 1},
    ),
    "behind another": (
        lambda: (yard := busy(2), yard.order("head", request(cards=2)), yard)[2],
        request(cards=2),
        [AHEAD, IN_USE],
        {"count": 1, "position": 2},
    ),
    "behind another and it would fit": (
        lambda: (yard := busy(2), yard.order("head", request(cards=2)), yard)[2],
        request(),
        [AHEAD],
        {"count": 1, "position": 2},
    ),
    "never possible, whoever is ahead": (
        lambda: (yard := busy(2), yard.order("head", request(cards=2)), yard)[2],
        request(cards=3),
        [SPEC],
        {},
    ),
}


def waiting(row: Row) -> Yard:
    make, asked, _, _ = row
    yard = make()
    yard.order("it", asked)
    return yard


@pytest.mark.parametrize("name", TABLE)
def test_all_reasons_that_hold_are_given_by_rank_with_their_figures(name: str) -> None:
    yard = waiting(TABLE[name])
    _, _, codes, figures = TABLE[name]
    reasons = yard.why("it")
    assert [reason.code for reason in reasons] == codes
    assert {key: reasons[0].figures[key] for key in figures} == figures
    assert yard.doc("it").reasons == reasons


@pytest.mark.parametrize("name", TABLE)
def test_every_reason_says_what_would_change_it_and_what_to_do_and_names_nobody(name: str) -> None:
    yard = waiting(TABLE[name])
    strangers = {"acme", "vision", "ada", *yard.docs.all["nodes"], *yard.docs.all["allocations"]} - {"it"}
    for reason in yard.why("it"):
        assert reason.counterfactual
        assert reason.remedy
        said = json.dumps(reason.model_dump(mode="json")).replace('"', " ").split()
        assert strangers.isdisjoint(said)


def test_the_rules_are_in_the_order_of_the_codes() -> None:
    ranks = [list(WaitCode).index(WaitCode(_code(rule.__name__))) for rule in RULES]
    assert ranks == sorted(ranks)


def _code(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def test_a_reason_is_told_when_its_code_changes_and_at_no_other_time() -> None:
    yard = fleet(2)
    yard.order("head", request(cards=2))
    yard.order("it", request(cards=2))
    since = yard.doc("it").since
    yard.order("behind", request(cards=2))
    yard.health("n0", "n0-h100-0", "failed")
    assert yard.told("it") == [IN_USE, SICK]
    assert yard.doc("it").since != since
    # It cannot be served by ends of leases now, so it is in nobody's way; the one behind waits for the same.
    assert yard.told("behind") == [AHEAD, SICK]
    yard.health("n0", "n0-h100-0", "healthy")
    assert yard.told("it") == [IN_USE, SICK, IN_USE]
    assert yard.told("behind") == [AHEAD, SICK, AHEAD]


def test_when_the_last_node_of_a_type_goes_all_are_told_at_once_and_when_it_comes_the_best_is_placed() -> None:
    yard = busy(1)
    for n in range(5):
        yard.order(f"o{n}", request(cards=1 + n % 2), at=n)
    yard.give_back("on-n0")
    yard.give_back("o0")
    yard.node("n0", {})
    assert {tuple(yard.codes(f"o{n}")) for n in (1, 3, 4) if not yard.placed(f"o{n}")} == {(SPEC,)}
    yard.node("n1", {"h100": 2})
    assert yard.placed("o1")


def test_after_the_blocker_is_placed_the_next_one_is_told_its_own_reason() -> None:
    yard = busy(2)
    yard.order("head", request(cards=2))
    yard.order("it", request(cards=2))
    yard.give_back("on-n0")
    assert yard.placed("head")
    assert yard.told("it") == [AHEAD, IN_USE]


def test_a_better_ranked_newcomer_takes_the_front_and_the_old_front_is_told() -> None:
    yard = busy(2)
    yard.order("it", request(cards=2))
    yard.order("urgent", request(cards=2, priority=5))
    assert yard.told("it") == [IN_USE, AHEAD]
    yard.cancel("urgent")
    assert yard.told("it") == [IN_USE, AHEAD, IN_USE]


def test_the_figures_of_a_position_count_all_who_wait_for_the_same_cards() -> None:
    yard = busy(2)
    yard.node("m0", {"a100": 1})
    yard.order("x", request(("a100",)))
    for n in range(4):
        yard.order(f"o{n}", request(cards=2))
    yard.order("other", request(("a100",)))
    assert [yard.board.queue.ahead(f"o{n}")[0] for n in range(4)] == [0, 1, 2, 3]
    assert yard.board.queue.ahead("other") == (0, 0)


def test_one_change_explains_a_queue_of_thousands_without_a_fact_for_each() -> None:
    yard = busy(2)
    for n in range(2_000):
        yard.order(f"o{n:04}", request(cards=2), at=100 + n)
    count = len(yard.facts)
    yard.give_back("on-n0")
    waits = [event.data for event in yard.facts[count:] if isinstance(event.data, AllocationWaiting)]
    assert [fact.order for fact in waits] == ["o0001"]


def test_the_next_end_and_the_estimate_come_from_the_ends_of_leases() -> None:
    yard = fleet(2)
    yard.order("first", request(duration_seconds=3600))
    yard.order("second", request(expires_at=START + timedelta(hours=5)))
    yard.order("it", request(cards=2))
    allocated_at = yard.doc("first").allocated_at
    assert allocated_at is not None
    # Until it is READY, that is taken to be ten minutes after its allocation.
    assert yard.why("it")[0].figures["next_end"] == utc_text(allocated_at + timedelta(minutes=70))
    docs = yard.docs.resident("allocations")
    assert estimate(yard.board, docs, "it", yard.now) == START + timedelta(hours=5)
    yard.ready("first")
    ready = yard.now
    assert yard.why("it")[0].figures["next_end"] == utc_text(ready + timedelta(hours=1))
    assert estimate(yard.board, docs, "it", yard.now) == START + timedelta(hours=5)
    assert yard.codes("it") == [IN_USE]
    yard.order("behind", request())
    assert estimate(yard.board, docs, "behind", yard.now) is None
