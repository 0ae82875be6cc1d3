"""Rows of `test_faults` that no other test is about."""

from qm_events.units import SHARES_OF_A_CARD
from qm_scheduler.consumers import SCHEDULER
from tests.unit.scheduler.yard import Yard, request


def yard_of(**nodes: int) -> Yard:
    yard = Yard()
    for node, cards in nodes.items():
        yard.node(node, {"h100": cards})
    return yard


def test_nothing_is_sent_to_a_node_that_fell_sick_until_it_is_well() -> None:
    yard = yard_of(a=2, b=4)
    yard.order("o1", request(cards=2))
    assert yard.nodes_of("o1") == ["a"]
    yard.health("a", None, "suspect")
    yard.give_back("o1", yard.cards("o1"))
    yard.order("o2", request(cards=2))
    assert yard.nodes_of("o2") == ["b"]
    yard.health("a", None, "healthy")
    yard.order("o3", request(cards=2))
    assert yard.nodes_of("o3") == ["b"]
    for card in yard.state("a").cards:
        yard.clear("a", card)
    yard.order("o4", request(cards=2))
    assert yard.nodes_of("o4") == ["a"]


def test_a_sick_card_in_use_keeps_no_free_node_from_serving() -> None:
    yard = yard_of(a=2, b=8)
    yard.order("o1", request(cards=2))
    yard.health("a", "a-h100-0", "failed")
    yard.order("whole", request(cards=8))
    assert yard.nodes_of("whole") == ["b"]
    assert yard.board.queue.projects["acme/vision"].held == 10 * SHARES_OF_A_CARD


def test_single_cards_fill_one_node_before_they_open_another() -> None:
    yard = yard_of(a=8, b=8, c=8, d=8)
    for n in range(16):
        yard.order(f"o{n:02}", request(), at=n)
    assert len({node for n in range(8) for node in yard.nodes_of(f"o{n:02}")}) == 1
    assert len({node for n in range(16) for node in yard.nodes_of(f"o{n:02}")}) == 2
    yard.order("whole", request(cards=8, count=2))
    assert yard.placed("whole")


def test_what_waits_was_withdrawn_or_was_given_back_counts_for_nothing() -> None:
    yard = yard_of(a=2)
    yard.order("o1", request(cards=2))
    yard.order("o2", request(cards=2))
    project = yard.board.queue.projects["acme/vision"]
    assert project.held == 2 * SHARES_OF_A_CARD
    yard.cancel("o2")
    yard.give_back("o1")
    assert project.held == 0
    assert not yard.board.queue.scopes
    assert yard.board.pool.counts["h100"]["free"] == 2
    assert SCHEDULER.settle(yard.context()) == ()
