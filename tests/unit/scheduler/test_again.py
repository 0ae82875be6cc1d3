"""One order, several allocations: it gives its cards up and lives on."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qm_events.catalog import OrderReplacementRequested
from qm_events.scheduler import AllocationPreempted, AllocationQueued, AllocationReturned
from qm_scheduler.allocation import Phase
from qm_scheduler.domain import Preempt, Return
from tests.unit.scheduler.yard import Yard, request


def yard_of(cards: int = 1) -> Yard:
    yard = Yard()
    yard.node("n1", {"h100": cards})
    return yard


def said(yard: Yard, kind: type[Any], order: str = "o1") -> list[Any]:
    return [event.data for event in yard.facts if isinstance(event.data, kind) and event.data.order == order]


def allocations(yard: Yard, order: str = "o1") -> list[str]:
    return [fact.allocation for fact in yard.grants() if fact.order == order]


def test_an_order_that_gives_its_cards_up_holds_them_until_they_are_clean_and_then_has_its_old_place() -> None:
    yard = yard_of()
    yard.order("o1", request(), at=5)
    yard.order("o2", request(), at=9)
    yard.preempt("o1")
    (preempted,) = said(yard, AllocationPreempted)
    assert (preempted.cause, preempted.preempted_at) == ("preempted", yard.now)
    assert yard.board.pool.count(("h100",), "cleaning") == 1
    yard.give_back("o1")
    first, again = said(yard, AllocationQueued)
    assert again.submitted_at == first.submitted_at
    assert said(yard, AllocationReturned)[0].lives_on is True
    assert len(allocations(yard)) == len(set(allocations(yard))) == 2
    assert not yard.placed("o2")


def test_what_is_said_twice_or_of_another_allocation_changes_nothing() -> None:
    yard = yard_of()
    yard.order("o1", request())
    yard.preempt("o1")
    assert yard.preempt("o1") == []
    yard.give_back("o1")
    before = len(yard.facts)
    yard.gone("o1", allocations(yard)[0])
    yard.ask("allocation/o1", Return("o1", allocations(yard)[0], (), "late", yard.now))
    yard.ask("allocation/o1", Preempt("o1", allocations(yard)[0], "preempted", "late"))
    assert len(yard.facts) == before


def test_an_order_that_ended_meanwhile_is_over_when_its_cards_are_back() -> None:
    yard = yard_of()
    yard.order("o1", request())
    yard.preempt("o1")
    yard.cancel("o1")
    yard.give_back("o1")
    assert yard.doc("o1").phase is Phase.RETURNED
    assert (len(said(yard, AllocationQueued)), said(yard, AllocationReturned)[0].lives_on) == (1, None)


def test_an_order_that_is_over_or_failed_is_not_asked_for_its_cards() -> None:
    yard = yard_of(2)
    yard.order("o1", request())
    yard.order("o2", request())
    yard.cancel("o1")
    yard.broken("o2")
    assert yard.preempt("o1") == yard.preempt("o2") == []


def test_an_order_is_not_queued_again_while_something_of_its_environment_is_left() -> None:
    yard = yard_of(2)
    yard.order("o1", request())
    yard.preempt("o1")
    yard.give_back_dirty("o1")
    assert yard.doc("o1").phase is Phase.ASIDE
    yard.gone("o1", allocations(yard)[0])
    assert len(allocations(yard)) == 2


def test_an_order_that_is_set_aside_can_end() -> None:
    yard = yard_of(2)
    yard.order("o1", request())
    yard.preempt("o1")
    yard.give_back_dirty("o1")
    yard.cancel("o1")
    yard.gone("o1", allocations(yard)[0])
    assert yard.doc("o1").phase is Phase.WITHDRAWN


def test_the_promised_end_counts_from_the_first_ready() -> None:
    yard = yard_of()
    yard.order("o1", request(duration_seconds=3600))
    yard.ready("o1")
    promised = yard.doc("o1").ends_at
    yard.preempt("o1")
    yard.give_back("o1")
    assert yard.doc("o1").ready_at is None
    yard.ready("o1")
    assert yard.doc("o1").ends_at == promised


def test_a_suspended_order_is_queued_again_when_it_is_resumed() -> None:
    yard = yard_of()
    yard.order("o1", request())
    yard.suspend("o1")
    assert said(yard, AllocationPreempted)[0].cause == "suspended"
    yard.give_back("o1")
    assert yard.doc("o1").phase is Phase.ASIDE
    yard.order("o2", request())
    assert yard.placed("o2")
    yard.resume("o1")
    assert yard.doc("o1").phase is Phase.WAITING


def test_an_order_that_is_resumed_before_its_cards_are_clean_is_queued_when_they_are() -> None:
    yard = yard_of()
    yard.order("o1", request())
    yard.suspend("o1")
    yard.resume("o1")
    assert len(said(yard, AllocationQueued)) == 1
    yard.give_back("o1")
    assert len(allocations(yard)) == 2


def test_an_order_that_is_suspended_in_the_queue_gets_no_cards_until_it_is_resumed() -> None:
    yard = yard_of()
    yard.order("o0", request())
    yard.order("o1", request())
    yard.suspend("o1")
    yard.cancel("o0")
    yard.give_back("o0")
    assert not yard.placed("o1")
    yard.resume("o1")
    assert yard.placed("o1")


def test_only_the_types_for_which_quota_is_held_serve_an_order_that_gave_its_cards_up() -> None:
    yard = yard_of()
    yard.node("n2", {"a100": 1})
    yard.order("o1", request(("h100", "a100")))
    yard.order("o2", request(priority=1))
    yard.preempt("o1")
    yard.give_back("o1")
    assert (yard.placed("o1"), yard.placed("o2")) == (False, True)
    assert said(yard, AllocationQueued)[1].request.specification.accelerators == ("h100",)


def test_a_failed_card_is_replaced_in_the_same_order_where_that_was_asked_for() -> None:
    yard = yard_of(3)
    yard.order("o1", request(on_card_failure="replace"))
    yard.order("o2", request())
    for order in ("o1", "o2"):
        yard.ready(order)
        yard.health("n1", yard.cards(order)[0], "failed")
    assert [fact.cause for fact in said(yard, AllocationPreempted)] == ["replaced"]
    assert said(yard, AllocationPreempted, "o2") == []
    sick = yard.cards("o1")
    yard.give_back("o1")
    assert yard.placed("o1")
    assert yard.cards("o1") != sick
    assert yard.state("n1").cards[sick[0]].quarantine


def test_a_card_that_its_owner_speaks_against_is_isolated_when_it_comes_back() -> None:
    yard = yard_of(2)
    yard.order("o1", request())
    (card,) = yard.cards("o1")
    fact = OrderReplacementRequested(
        order="o1", allocation=yard.doc("o1").allocation, cards=(card,), reason="it is slow", requested_at=yard.tick()
    )
    yard.hear("order/o1", fact)
    yard.give_back("o1")
    assert yard.cards("o1") not in ((), (card,))
    assert yard.state("n1").cards[card].quarantine


def test_an_order_whose_environment_could_not_be_proven_on_its_cards_moves_to_others() -> None:
    yard = yard_of(2)
    yard.order("o1", request())
    (card,) = yard.cards("o1")
    yard.broken("o1", elsewhere=True)
    yard.give_back("o1", suspect=(card,))
    assert yard.cards("o1") not in ((), (card,))


WHAT = ("preempt", "back", "dirty", "gone", "cancel", "broken", "ready", "other", "suspend", "resume")


@given(st.lists(st.sampled_from(WHAT), max_size=14))
def test_whatever_happens_no_card_is_held_twice_and_the_order_comes_to_an_end_or_back(steps: Sequence[str]) -> None:
    yard = yard_of(2)
    yard.order("o1", request())
    for number, step in enumerate(steps):
        _take(yard, step, number)
        live = [a for node in yard.docs.all["nodes"].values() for a in node.holdings]
        assert len(live) == len(set(live)) <= 2
        assert yard.board.pool.counts == yard.fresh_board().pool.counts
    yard.resume("o1")
    doc = yard.doc("o1")
    if doc.phase is Phase.PREEMPTED:
        yard.give_back("o1")
    if yard.doc("o1").phase is Phase.ASIDE:
        yard.gone("o1", yard.doc("o1").allocation)
    lives, ends = (Phase.WAITING, Phase.ALLOCATED), (Phase.RETURNED, Phase.WITHDRAWN, Phase.ALLOCATED)
    assert yard.doc("o1").phase in (ends if doc.ended_at else lives)
    assert len({fact.submitted_at for fact in said(yard, AllocationQueued)}) == 1


def _take(yard: Yard, step: str, number: int) -> None:
    doc = yard.doc("o1")
    if step == "other":
        yard.order(f"x{number}", request(priority=1))
    elif step == "cancel":
        yard.cancel("o1")
    elif step in ("suspend", "resume"):
        (yard.suspend if step == "suspend" else yard.resume)("o1")
    elif step == "gone":
        if doc.phase is Phase.ASIDE:
            yard.gone("o1", doc.allocation)
    elif doc.is_holding and step in ("back", "dirty") and doc.phase is Phase.ALLOCATED and not doc.ended_at:
        yard.ready("o1")
    elif doc.is_holding:
        acts = {"back": yard.give_back, "dirty": yard.give_back_dirty, "broken": yard.broken, "ready": yard.ready}
        acts.get(step, yard.preempt)("o1")
