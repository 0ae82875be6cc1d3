"""Nodes with traits, nodes that leave, cards that flap, and orders that are told of their sick cards."""

from typing import Any

import pytest

from qm_events.scheduler import AllocationImpaired, CardQuarantined, CardSpec, NodeRetired
from qm_events.specs import Health, WaitCode
from qm_scheduler.drain import drain_view
from qm_scheduler.fleet import Observation
from qm_scheduler.heads import Heads
from qm_scheduler.inventory import Describe, Observe, Seen
from qm_service.model import Rejected
from tests.unit.scheduler.test_service import Stage, description, stage
from tests.unit.scheduler.yard import MIB, Yard, node_fact, request

__all__ = ["stage"]


def facts(yard: Yard, kind: type[Any]) -> list[Any]:
    return [event.data for event in yard.facts if isinstance(event.data, kind)]


# ---- traits


def test_an_order_goes_where_the_traits_are_and_others_leave_such_nodes_alone_while_they_can() -> None:
    yard = Yard()
    yard.node("plain", {"h100": 2})
    yard.node("ib", {"h100": 2}, traits=("nvme", "infiniband"))
    yard.order("any", request(cards=1))
    yard.order("needs", request(cards=2, traits=("infiniband",)))
    assert yard.nodes_of("any") == ["plain"]
    assert yard.nodes_of("needs") == ["ib"]
    yard.order("more", request(traits=("infiniband",)))
    assert yard.codes("more") == [WaitCode.CAPACITY_IN_USE]
    assert yard.why("more")[0].figures["free"] == 0


def test_a_node_that_loses_a_trait_serves_nobody_who_asks_for_it() -> None:
    yard = Yard()
    yard.node("n1", {"h100": 2}, traits=("infiniband",))
    yard.node("n1", {"h100": 2})
    yard.order("it", request(traits=("infiniband",)))
    assert yard.codes("it") == [WaitCode.SPECIFICATION_UNAVAILABLE]
    yard.node("n1", {"h100": 2}, traits=("infiniband",))
    assert yard.placed("it")


# ---- leaving


def test_a_node_is_retired_when_nothing_is_held_on_it_and_its_cards_may_serve_elsewhere() -> None:
    yard = Yard()
    yard.node("n1", {"h100": 2})
    yard.order("o1", request())
    answer = yard.retire("n1")
    assert isinstance(answer, Rejected)
    assert answer.code == "node-in-use"
    yard.give_back("o1")
    yard.retire("n1")
    assert len(facts(yard, NodeRetired)) == 1
    assert +yard.board.pool.counts["h100"] == {}
    assert yard.board.home_of("n1-h100-0") is None
    yard.order("o2", request())
    assert yard.codes("o2") == [WaitCode.SPECIFICATION_UNAVAILABLE]
    yard.node("n2", [CardSpec(card="n1-h100-0", accelerator="h100", memory_mib=80 * MIB)])
    assert yard.nodes_of("o2") == ["n2"]


def test_a_node_that_comes_back_with_other_cards_is_reconciled_card_by_card() -> None:
    yard = Yard()
    yard.node("n1", {"h100": 8})
    yard.order("o1", request(cards=4))
    held = yard.cards("o1")
    kept = [CardSpec(card=card, accelerator="h100", memory_mib=80 * MIB) for card in held[:3]]
    new = [CardSpec(card=f"new-{n}", accelerator="h100", memory_mib=80 * MIB) for n in range(4)]
    yard.node("n1", [*kept, *new])
    assert +yard.board.pool.counts["h100"] == {"held": 4, "free": 4}
    yard.order("o2", request(cards=4))
    assert set(yard.cards("o2")) == {f"new-{n}" for n in range(4)}
    yard.give_back("o1")
    assert +yard.board.pool.counts["h100"] == {"held": 4, "free": 3}


@pytest.mark.parametrize("trouble", ["isolated", "failed", "unknown"])
def test_a_card_does_not_come_back_clean_and_well_because_it_was_away(trouble: str) -> None:
    yard = Yard()
    yard.node("n1", {"h100": 1})
    card = "n1-h100-0"
    if trouble == "isolated":
        yard.order("first", request())
        yard.give_back_dirty("first")
    else:
        yard.health("n1", card, trouble)
    yard.node("n1", {"h200": 1})
    yard.health("n1", "n1-h200-0", "failed")
    yard.clear("n1", "n1-h200-0")
    elsewhere = [CardSpec(card=card, accelerator="h100", memory_mib=80 * MIB)]
    refused = yard.ask("node/n2", Describe(node_fact("n2", elsewhere)))
    assert isinstance(refused, Rejected)
    assert "clear it" in refused.remedy
    yard.node("n1", {"h100": 1})
    yard.order("next", request())
    assert not yard.placed("next")
    yard.node("n1", {"h200": 1})
    yard.clear("n1", card)
    assert list(yard.state("n1").cards) == ["n1-h200-0"]
    yard.node("n2", elsewhere)
    assert yard.nodes_of("next") == ["n2"]


def test_a_card_that_is_away_may_be_told_well_by_all_its_sources_at_once() -> None:
    yard = Yard()
    yard.node("n1", {"h100": 1})
    card = "n1-h100-0"
    for source in ("a", "b"):
        yard.health("n1", card, "failed", source=source)
    yard.node("n1", {"h200": 1})
    well = Observation(Health.HEALTHY, "", "", yard.tick())
    yard.ask("node/n1", Observe(tuple(Seen(card, source, well) for source in ("a", "b", "c"))))
    yard.order("next", request())
    assert not yard.placed("next")
    yard.node("n1", {"h100": 1})
    assert yard.placed("next")


async def test_clearing_a_card_that_is_away_shows_it_for_the_last_time(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    seen = {"card": "GPU-1", "source": "a", "status": "failed", "observed_at": "2026-01-01T00:00:00Z"}
    await stage.done("POST", "/fleet/health", [seen])
    await stage.done("PUT", "/fleet/nodes/n1", description())
    assert (await stage.done("POST", "/fleet/cards/GPU-1/clear"))["present"] is False
    assert await stage.code("POST", "/fleet/cards/GPU-1/clear") == (404, "card-unknown")


def test_a_drain_says_who_is_there_and_when_the_node_is_empty() -> None:
    yard = Yard()
    yard.node("n1", {"h100": 4})
    for order, hours in (("long", 5), ("short", 1)):
        yard.order(order, request(duration_seconds=hours * 3600))
        yard.ready(order)
    view = drain_view(yard.state("n1"), yard.docs.resident("allocations"))
    assert [each.order for each in view.orders] == ["short", "long"]
    assert view.empty_at == yard.doc("long").ends_at
    yard.order("endless", request())
    view = drain_view(yard.state("n1"), yard.docs.resident("allocations"))
    assert (view.empty_at, view.without_end, view.empty) == (None, 1, False)


async def test_an_operator_drains_and_retires_a_node(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2", traits=["nvme", "infiniband"]))
    await stage.order("o1")
    drain = await stage.done("POST", "/fleet/nodes/n1/drain", {"reason": "new firmware"})
    assert (drain["cordoned"], drain["empty"], [each["order"] for each in drain["orders"]]) == (True, False, ["o1"])
    assert await stage.code("POST", "/fleet/nodes/n1/retire", {"reason": "sold"}) == (409, "node-in-use")
    await stage.give_back("o1")
    assert (await stage.done("GET", "/fleet/nodes/n1/drain", by="ines"))["empty"] is True
    node = await stage.done("GET", "/fleet/nodes/n1")
    assert node["traits"] == ["infiniband", "nvme"]
    last = await stage.done("POST", "/fleet/nodes/n1/retire", {"reason": "sold"})
    assert [card["card"] for card in last["cards"]] == ["GPU-1", "GPU-2"]
    assert await stage.code("GET", "/fleet/nodes/n1") == (404, "node-unknown")
    assert (await stage.done("GET", "/fleet/capacity"))["items"] == []
    assert await stage.code("POST", "/fleet/nodes/n1/drain", {"reason": "x"}) == (404, "node-unknown")
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))


# ---- health


def test_a_card_that_falls_sick_time_and_again_is_isolated_with_figures_until_it_is_cleared() -> None:
    yard = Yard()
    yard.node("n1", {"h100": 2})
    for _ in range(3):
        yard.health("n1", "n1-h100-0", "suspect")
        yard.health("n1", "n1-h100-0", "healthy")
    (fact,) = facts(yard, CardQuarantined)
    assert (fact.card, fact.reason) == ("n1-h100-0", "flapping: fell sick 3 times within 60 minutes")
    assert +yard.board.pool.counts["h100"] == {"free": 1, "quarantined": 1}
    yard.clear("n1", "n1-h100-0")
    yard.health("n1", "n1-h100-0", "suspect")
    yard.health("n1", "n1-h100-0", "healthy")
    assert +yard.board.pool.counts["h100"] == {"free": 2}


@pytest.mark.parametrize(("health", "seconds"), [("unknown", 1), ("suspect", 3600)])
def test_unknown_is_no_relapse_and_old_relapses_do_not_count(health: str, seconds: int) -> None:
    yard = Yard()
    yard.node("n1", {"h100": 1})
    for n in range(4):
        yard.health("n1", "n1-h100-0", health, at=10 + n * seconds)
        yard.health("n1", "n1-h100-0", "healthy", at=11 + n * seconds if seconds > 1 else 10 + n)
    assert facts(yard, CardQuarantined) == []


def test_an_order_is_told_when_a_card_of_it_falls_sick_and_when_it_is_well_again() -> None:
    yard = Yard()
    yard.node("n1", {"h100": 4})
    yard.order("o1", request(cards=2))
    yard.health("n1", "n1-h100-0", "unknown")
    yard.health("n1", None, "failed")
    yard.health("n1", None, "failed", source="bmc")
    assert [(fact.card, fact.health) for fact in facts(yard, AllocationImpaired)] == [
        ("n1-h100-0", Health.FAILED),
        ("n1-h100-1", Health.FAILED),
    ]
    assert yard.board.pool.counts["h100"]["held"] == 2
    yard.health("n1", "n1-h100-0", "healthy")
    assert len(facts(yard, AllocationImpaired)) == 2
    yard.health("n1", "n1-h100-0", "healthy", source="bmc")
    assert [(fact.card, fact.health) for fact in facts(yard, AllocationImpaired)[2:]] == [("n1-h100-0", Health.HEALTHY)]


# ---- the heap of heads


def test_a_heap_of_heads_always_knows_its_best_and_does_not_grow() -> None:
    heads: Heads[int] = Heads()
    assert heads.top() is None
    known: dict[int, tuple[int, int]] = {}
    for n in range(2_000):
        key = n * 7919 % 23
        if n % 5 == 0:
            known.pop(key, None)
            heads.put(key, None)
        else:
            known[key] = (n * 104_729 % 997, key)
            heads.put(key, known[key])
        assert heads.top() == min(known.values(), default=None)
    assert len(heads._heap) <= 2 * len(heads) + 65
