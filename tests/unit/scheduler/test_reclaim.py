"""What was lent goes back to its owner: whose turn it is to give back, how much, and when a borrower may come again."""

from datetime import timedelta
from typing import Any

from qm_events.specs import WaitCode
from tests.unit.scheduler.test_preemption import LATER, pass_time, preempted, promises, yard
from tests.unit.scheduler.yard import Yard, request


def lent(*borrowers: tuple[str, int], cards: int = 4, nodes: int = 1, **more: Any) -> Yard:
    """Return a full yard; each borrower is a project with so many orders of one node each."""
    made = yard(*(f"n{n}" for n in range(nodes)), cards=cards)
    for project, count in borrowers:
        for n in range(count):
            made.order(f"{project}{n}", request(cards=cards, project=project, **more), borrowed=cards)
    pass_time(made)
    return made


def test_an_owner_gets_back_what_it_lent_whatever_the_priority_of_the_borrower() -> None:
    made = lent(("speech", 1), priority=50)
    made.order("own", request(cards=4, project="vision"), reclaims=4)
    fact = preempted(made)["speech0"]
    assert fact.cause == "reclaimed"
    assert "acme" not in fact.why
    assert "vision" not in fact.why
    assert made.codes("own")[0] is WaitCode.WAITING_FOR_PREEMPTION
    made.give_back("speech0")
    assert made.placed("own")


def test_who_reclaims_nothing_and_who_is_of_another_tenant_takes_nothing_back() -> None:
    made = lent(("speech", 1))
    made.order("own", request(cards=4, project="vision"))
    made.order("other", request(cards=4, project="vision").model_copy(update={"tenant": "umbrella"}), reclaims=4)
    assert preempted(made) == {}


def test_the_largest_borrower_gives_back_first() -> None:
    made = lent(("maps", 1), ("speech", 2), nodes=3)
    made.order("own", request(cards=4, project="vision"), reclaims=12)
    (victim,) = preempted(made)
    assert victim.startswith("speech")


def test_no_more_is_taken_back_than_is_owed_but_for_the_last_who_leaves_as_a_whole() -> None:
    made = lent(("speech", 3), nodes=3)
    made.order("own", request(cards=4, count=2, project="vision"), reclaims=4)
    assert preempted(made) == {}
    made.cancel("own")
    made.order("own2", request(cards=4, count=2, project="vision"), reclaims=6)
    assert len(preempted(made)) == 2


def test_a_borrower_stays_out_longer_each_time_and_says_so() -> None:
    made = lent(("speech", 1))
    for n, seconds in ((1, 300), (2, 600)):
        made.order(f"own{n}", request(cards=4, project="vision"), reclaims=4)
        fact = preempted(made)["speech0"]
        assert fact.not_before == fact.preempted_at + timedelta(seconds=seconds)
        made.give_back("speech0")
        made.give_back(f"own{n}")
        assert not made.placed("speech0")
        assert made.codes("speech0") == [WaitCode.RECENTLY_RECLAIMED]
        assert made.told("speech0")[-1] is WaitCode.RECENTLY_RECLAIMED
        assert made.board.due == fact.not_before
        pass_time(made)
        assert made.placed("speech0")
        pass_time(made)


def test_a_borrower_holds_nobody_back_while_it_stays_out() -> None:
    made = lent(("speech", 1))
    made.order("own", request(cards=4, project="vision"), reclaims=4)
    made.give_back("speech0")
    made.give_back("own")
    made.order("small", request(cards=1, project="maps"))
    assert made.placed("small")


def test_what_was_taken_back_is_kept_from_every_priority_of_those_who_gave_it_back() -> None:
    made = yard("n1", cards=4)
    for n in range(2):
        made.order(f"speech{n}", request(cards=2, project="speech", priority=50), borrowed=2)
    pass_time(made)
    made.order("own", request(cards=4, project="vision"), reclaims=4)
    assert len(promises(made, "own")[-1].victims or ()) == 2
    made.give_back("speech0")
    made.order("also", request(cards=1, project="speech", priority=50), borrowed=1)
    assert not made.placed("also")
    assert made.codes("also") == [WaitCode.HIGHER_PRIORITY_AHEAD]
    made.order("above", request(cards=1, project="maps", priority=51))
    assert made.placed("above")


def test_a_borrower_evicts_nobody_who_is_within_quota() -> None:
    made = yard("n1")
    made.order("low", request(cards=4, preemptible=True, project="maps"))
    pass_time(made, LATER)
    made.order("high", request(cards=4, project="speech", priority=10), borrowed=4)
    assert preempted(made) == {}
    made.order("plain", request(cards=4, project="vision", priority=10))
    assert preempted(made) == {}
    made.order("above", request(cards=4, project="vision", priority=11))
    assert list(preempted(made)) == ["low"]


def test_a_place_that_is_kept_for_a_borrower_is_not_kept_from_the_owner() -> None:
    made = lent(("speech", 1))
    made.order("more", request(cards=4, project="speech", priority=10), borrowed=4)
    made.order("small", request(cards=1, project="maps"))
    made.order("own", request(cards=4, project="vision", priority=10), reclaims=4)
    assert list(preempted(made)) == ["speech0"]
    made.give_back("speech0")
    assert made.placed("own")
    assert not made.placed("more")
