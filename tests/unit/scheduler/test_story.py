"""Orders, cards and nodes through the whole scheduler, without a database."""

import pytest

from qm_events.scheduler import AllocationReturned, AllocationWithdrawn, CardHealthChanged, CardSpec, CardsReturned
from qm_events.specs import WaitCode
from qm_scheduler.inventory import Describe, HoldCards
from qm_service.model import Rejected
from tests.unit.scheduler.yard import MIB, Yard, node_fact, request


def yard_of(**cards: int) -> Yard:
    yard = Yard()
    for node, count in cards.items():
        yard.node(node, {"h100": count})
    return yard


def test_an_order_that_fits_is_placed_and_its_cards_are_held_in_the_same_step() -> None:
    yard = yard_of(n1=8)
    yard.order("o1", request(cards=2, count=2, cpu=1_000))
    kinds = [event.type for event in yard.facts[-3:]]
    assert kinds == ["allocation.queued.v1", "allocation.allocated.v1", "cards.held.v1"]
    holding = yard.state("n1").holdings[yard.doc("o1").allocation]
    assert (holding.order, holding.cpu_milli) == ("o1", 2_000)
    assert len(set(yard.cards("o1"))) == 4


def test_the_node_with_the_least_left_over_is_taken() -> None:
    yard = yard_of(a=8, b=2, c=4)
    yard.order("o1", request(cards=2))
    yard.order("o2", request(cards=2))
    assert [yard.nodes_of(order) for order in ("o1", "o2")] == [["b"], ["c"]]


def test_the_preferred_type_is_taken_first_and_types_are_mixed_only_when_none_has_all() -> None:
    yard = Yard()
    yard.node("n1", {"h100": 1})
    yard.node("n2", {"a100": 2})
    yard.order("o1", request(("h100", "a100"), count=2))
    assert yard.nodes_of("o1") == ["n2", "n2"]
    yard.give_back("o1")
    yard.order("o2", request(("h100", "a100"), count=3))
    assert [unit.accelerator for unit in yard.doc("o2").units] == ["h100", "a100", "a100"]


def test_a_card_with_less_memory_than_the_specification_says_is_not_given() -> None:
    yard = Yard()
    yard.node("n1", [CardSpec(card="small", accelerator="h100", memory_mib=40 * MIB)])
    yard.order("o1", request())
    assert yard.codes("o1") == [WaitCode.SPECIFICATION_UNAVAILABLE]


@pytest.mark.parametrize("order", [request(cpu=50_000, count=2), request(memory=300 * MIB, count=2)])
def test_cpu_and_memory_of_a_node_are_respected(order) -> None:  # type: ignore[no-untyped-def]  # parametrized
    yard = yard_of(n1=8)
    yard.order("o1", order)
    assert not yard.placed("o1")
    yard.node("n2", {"h100": 8})
    assert sorted(yard.nodes_of("o1")) == ["n1", "n2"]


def test_higher_priority_then_earlier_submission_then_the_smaller_id_goes_first() -> None:
    yard = yard_of(n1=1)
    yard.order("first", request())
    for order, asked, at in (("c", 0, 9), ("b", 0, 9), ("late", 5, 10), ("early", 0, 8)):
        yard.order(order, request(priority=asked), at=at)
    for order in ("first", "late", "early", "b"):
        yard.give_back(order)
    assert [grant.order for grant in yard.grants()] == ["first", "late", "early", "b", "c"]


def test_a_small_order_does_not_overtake_a_large_one_that_ends_of_leases_will_serve() -> None:
    yard = yard_of(n1=4)
    yard.order("running", request(cards=2))
    yard.order("large", request(cards=4))
    yard.order("small", request(cards=1))
    assert not yard.placed("small")
    assert yard.codes("small") == [WaitCode.HIGHER_PRIORITY_AHEAD]
    assert yard.why("small")[0].figures == {
        "count": 1,
        "position": 2,
        "cards": 4,
        "because": "kept_place",
    }
    yard.give_back("running")
    assert yard.placed("large")
    assert yard.codes("small") == [WaitCode.CAPACITY_IN_USE]


def test_an_order_that_no_end_of_a_lease_can_serve_holds_nobody_back() -> None:
    yard = yard_of(n1=4)
    yard.health("n1", "n1-h100-0", "suspect")
    yard.order("large", request(cards=4))
    yard.order("small", request(cards=1))
    assert yard.placed("small")
    yard.health("n1", "n1-h100-0", "healthy")
    yard.order("smaller", request(cards=1))
    assert yard.codes("smaller") == [WaitCode.HIGHER_PRIORITY_AHEAD]


def test_a_blocked_order_does_not_block_one_for_other_cards() -> None:
    yard = yard_of(n1=1)
    yard.node("n2", {"a100": 1})
    yard.order("running", request())
    yard.order("blocked", request())
    yard.order("other", request(("a100",)))
    assert yard.placed("other")


def test_an_order_takes_the_type_that_nobody_before_it_claims() -> None:
    yard = yard_of(n1=2)
    yard.node("n2", {"a100": 1})
    yard.order("running", request())
    yard.order("large", request(cards=2))
    yard.order("either", request(("h100", "a100")))
    assert yard.nodes_of("either") == ["n2"]


def test_an_end_before_the_beginning_leaves_a_tombstone() -> None:
    yard = yard_of(n1=1)
    yard.cancel("o1")
    yard.order("o1", request())
    assert [type(event.data) for event in yard.facts[1:]] == [AllocationWithdrawn]


def test_a_waiting_order_that_ends_leaves_the_queue_and_lets_the_next_go() -> None:
    yard = yard_of(n1=2)
    yard.order("running", request())
    yard.order("large", request(cards=2))
    yard.order("small", request())
    yard.cancel("large")
    assert yard.placed("small")
    assert list(yard.board.queue.listed()) == []


def test_the_end_of_an_order_that_holds_cards_is_left_to_the_provisioner() -> None:
    yard = yard_of(n1=1)
    yard.order("o1", request())
    count = len(yard.facts)
    yard.cancel("o1")
    assert len(yard.facts) == count


def test_clean_cards_return_to_the_pool_once_and_suspect_ones_are_isolated() -> None:
    yard = yard_of(n1=4)
    yard.order("o1", request(cards=4))
    bad = yard.cards("o1")[0]
    yard.give_back("o1", suspect=[bad])
    yard.give_back("o1")
    returned = [event.data for event in yard.facts if isinstance(event.data, AllocationReturned)]
    on_node = [event.data for event in yard.facts if isinstance(event.data, CardsReturned)]
    assert [fact.quarantined for fact in returned] == [fact.quarantined for fact in on_node] == [(bad,)]
    assert yard.board.pool.counts["h100"] == {"free": 3, "quarantined": 1, "held": 0}
    yard.clear("n1", bad)
    assert yard.board.pool.counts["h100"]["free"] == 4


def test_cards_of_a_failed_release_are_all_isolated_with_the_step_that_failed() -> None:
    yard = yard_of(n1=2)
    yard.order("o1", request(cards=2))
    yard.give_back_dirty("o1")
    assert {card.quarantine for card in yard.state("n1").cards.values()} == {"wipe: timed out"}


def test_a_card_that_fails_in_use_stays_held_and_is_isolated_when_it_comes_back() -> None:
    yard = yard_of(n1=2)
    yard.order("o1", request(cards=2))
    yard.health("n1", "n1-h100-1", "failed")
    assert yard.board.pool.counts["h100"]["held"] == 2
    yard.give_back("o1")
    assert {name: card.quarantine is None for name, card in yard.state("n1").cards.items()} == {
        "n1-h100-0": True,
        "n1-h100-1": False,
    }


def test_a_card_of_unknown_health_is_pooled_and_serves_when_it_is_seen_well() -> None:
    yard = yard_of(n1=1)
    yard.order("o1", request())
    yard.health("n1", "n1-h100-0", "unknown")
    yard.give_back("o1")
    yard.order("o2", request())
    assert not yard.placed("o2")
    yard.health("n1", "n1-h100-0", "healthy")
    assert yard.placed("o2")


def test_one_sick_card_costs_one_card() -> None:
    yard = yard_of(n1=8)
    yard.health("n1", "n1-h100-3", "suspect")
    yard.order("o1", request(cards=7))
    assert yard.placed("o1")
    assert "n1-h100-3" not in yard.cards("o1")


def test_the_worst_of_all_sources_is_the_health_and_each_source_takes_back_only_its_own() -> None:
    yard = yard_of(n1=1)
    yard.health("n1", None, "failed", source="bmc")
    yard.health("n1", "n1-h100-0", "healthy", source="dcgm")
    assert yard.state("n1").cards["n1-h100-0"].health == "failed"
    yard.health("n1", None, "healthy", source="bmc")
    assert yard.state("n1").cards["n1-h100-0"].health == "healthy"


def test_an_observation_that_is_older_or_says_nothing_new_changes_nothing() -> None:
    yard = yard_of(n1=1)
    yard.health("n1", "n1-h100-0", "suspect", at=10)
    for health, at in (("healthy", 9), ("healthy", 10), ("suspect", 11)):
        yard.health("n1", "n1-h100-0", health, at=at)
    assert sum(isinstance(event.data, CardHealthChanged) for event in yard.facts) == 1


def test_a_cordoned_node_takes_no_new_work_and_runs_what_it_runs() -> None:
    yard = yard_of(n1=2)
    yard.order("o1", request())
    yard.cordon("n1")
    yard.order("o2", request())
    assert not yard.placed("o2")
    assert yard.board.pool.counts["h100"] == {"free": 0, "held": 1, "cordoned": 1}
    yard.uncordon("n1")
    assert yard.placed("o2")


def test_a_node_that_comes_back_with_fewer_cards_loses_them_and_a_held_one_when_it_is_returned() -> None:
    yard = yard_of(n1=3)
    yard.order("o1", request(cards=2))
    yard.node("n1", [CardSpec(card="n1-h100-2", accelerator="h100", memory_mib=80 * MIB)])
    assert set(yard.state("n1").cards) == {"n1-h100-0", "n1-h100-1", "n1-h100-2"}
    yard.give_back("o1")
    assert set(yard.state("n1").cards) == {"n1-h100-2"}
    assert +yard.board.pool.counts["h100"] == {"free": 1}


def test_the_same_description_in_another_order_is_no_change() -> None:
    yard = yard_of(n1=3)
    fact = node_fact("n1", {"h100": 3})
    turned = fact.model_copy(update={"cards": tuple(reversed(fact.cards))})
    assert yard.ask("node/n1", Describe(turned)) == []


def test_a_card_id_on_two_nodes_is_refused() -> None:
    yard = yard_of(n1=1)
    cards = [CardSpec(card="n1-h100-0", accelerator="h100", memory_mib=80 * MIB)]
    answer = yard.ask("node/n2", Describe(node_fact("n2", cards)))
    assert isinstance(answer, Rejected)
    assert answer.code == "card-elsewhere"


def test_a_card_is_never_held_twice() -> None:
    yard = yard_of(n1=1)
    yard.order("o1", request())
    with pytest.raises(ValueError, match="is held by"):
        yard.ask("node/n1", HoldCards("o2", "other", ("n1-h100-0",), 0, 0))


@pytest.mark.parametrize(("within", "place"), [("node", "node"), ("rack", "rack"), ("domain", "domain")])
def test_all_units_are_kept_together_where_that_is_required(within: str, place: str) -> None:
    yard = Yard()
    for node, group in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        more = {} if within == "node" else {place: group}
        yard.node(node, {"h100": 4 if within == "node" and node == "b2" else 2}, **more)
    yard.order("o1", request(cards=2, count=2, within=within))
    assert sorted(set(yard.nodes_of("o1"))) == (["b2"] if within == "node" else ["b1", "b2"])


def test_a_preferred_topology_never_makes_an_order_wait() -> None:
    yard = Yard()
    yard.node("a1", {"h100": 1}, rack="a")
    yard.node("b1", {"h100": 1}, rack="b")
    yard.order("o1", request(count=2, within="rack", required=False))
    assert yard.placed("o1")


def test_duplicates_of_inputs_decide_nothing_new() -> None:
    yard = yard_of(n1=2)
    for _ in range(2):
        yard.order("o1", request(), at=1)
    yard.give_back("o1")
    count = len(yard.facts)
    yard.order("o1", request(), at=1)
    yard.give_back("o1")
    yard.cancel("o1")
    assert len(yard.facts) == count


def test_what_the_fleet_cannot_hold_is_out_of_the_way_until_the_inventory_changes() -> None:
    yard = yard_of(n1=2)
    for n in range(3):
        yard.order(f"big{n}", request(cards=3 + n, priority=9))
    assert yard.board.queue.front("h100") is None
    yard.order("small", request())
    assert yard.placed("small")
    yard.cancel("big2")
    yard.node("n2", {"h100": 4})
    assert [yard.placed(order) for order in ("big0", "big1")] == [True, False]
    assert yard.codes("big1") == [WaitCode.CAPACITY_IN_USE]
