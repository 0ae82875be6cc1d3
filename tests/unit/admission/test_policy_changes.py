"""When the policies change while orders wait, each order ends where the new ones put it."""

from typing import Any

from qm_admission.book import SetLimits
from qm_events.approval import ApprovalPolicy
from qm_events.specs import Role
from qm_service.model import Rejected
from tests.unit.admission.desk import TENANT, Desk, names, request, submit, vote
from tests.unit.admission.panel import asked_of, assembled, level, policy, put


def opened(*levels: Any, **more: Any) -> Desk:
    desk = assembled()
    put(desk, policy(*levels, **more))
    submit(desk, "o1", request("vision", cards=2))
    return desk


def test_an_order_that_no_policy_asks_about_any_more_goes_on() -> None:
    desk = opened(level("n_of_m", 2))
    vote(desk, "o1", "eva")
    _, withdrawn, *after = put(desk)
    assert withdrawn.wire_type == "approval.withdrawn.v1"
    assert names(after) == ["quota.claimed", "order.admitted"]
    late = vote(desk, "o1", "fay")
    assert isinstance(late, Rejected)
    assert late.code == "approval-void"


def test_an_order_that_another_policy_asks_about_is_asked_anew() -> None:
    desk = opened(level())
    before = asked_of(desk).approval
    _, withdrawn, asked = put(desk, policy(level(manager=True), name="other"))
    assert (withdrawn.approval, withdrawn.cause) == (before, "policy other asks now")
    assert (asked.policy, asked.level, asked.approvers) == ("other", 1, ("mia",))
    assert asked.approval != before
    assert names(vote(desk, "o1", "mia"))[0] == "approval.granted"


def test_a_level_that_stays_the_same_keeps_its_votes_and_its_times() -> None:
    desk = opened(level("n_of_m", 2, lapses_after_seconds=3_600))
    vote(desk, "o1", "eva")
    before = asked_of(desk)
    desk.advance(minutes=10)
    _, told = put(desk, policy(level("n_of_m", 2, lapses_after_seconds=3_600), level(manager=True), cards_at_least=2))
    assert (told.cause, told.joined) == ("policy_changed", ())
    after = asked_of(desk)
    assert (after.approval, after.votes, after.lapses_at, after.levels) == (
        before.approval, before.votes, before.lapses_at, 2,
    )  # fmt: skip
    assert names(vote(desk, "o1", "fay")) == ["approval.granted", "approval.requested"]


def test_levels_that_were_passed_stay_passed() -> None:
    desk = opened(level(), level(manager=True))
    vote(desk, "o1", "eva")
    _, withdrawn, asked = put(desk, policy(level(), level(role=Role.APPROVER), name="other"))
    assert (withdrawn.level, asked.level, asked.approvers) == (2, 2, ("ann", "bob"))
    assert names(put(desk, policy(level())))[1:] == ["approval.withdrawn", "quota.claimed", "order.admitted"]


def test_a_passed_level_with_another_rule_is_asked_again() -> None:
    desk = opened(level(), level(manager=True))
    vote(desk, "o1", "eva")
    _, _, asked = put(desk, policy(level("all"), level(manager=True)))
    assert (asked.level, asked.approvers) == (1, ("eva", "fay", "gus"))


def test_allowing_self_approval_does_not_keep_what_was_passed_without_it() -> None:
    desk = opened(level(), level(manager=True))
    vote(desk, "o1", "eva")
    _, _, asked = put(desk, policy(level(), level(manager=True), self_approval=True))
    assert asked.level == 1


def test_an_order_held_for_quota_is_asked_about_and_keeps_its_place() -> None:
    desk = assembled()
    desk.command("quota/acme", SetLimits(TENANT, "vision", {"cards": 2}))
    for order, cards in (("o0", 2), ("o1", 2), ("o2", 1)):
        submit(desk, order, request("vision", cards=cards))
    said = put(desk, policy(level(), cards_at_least=2))
    assert [getattr(fact, "order", None) for fact in said] == [None, "o1"]
    assert desk.docs.get("waiting", "o1").status == "pending_approval"
    assert names(vote(desk, "o1", "eva")) == ["approval.granted", "order.held"]
    assert names(put(desk, policy(level(), cards_at_least=2, priority_at_least=0))) == ["approval_policy.set"], (
        "what was agreed stays agreed"
    )
    said = desk.command("quota/acme", SetLimits(TENANT, "vision", {"cards": 4}))
    assert not isinstance(said, Rejected)
    assert [fact.order for fact in said if fact.wire_type == "order.admitted.v1"] == ["o1"]


def test_a_policy_of_the_first_release_that_is_set_anew_keeps_the_open_question() -> None:
    desk = assembled()
    old = ApprovalPolicy(name="big", approver_role=Role.APPROVER, lapses_after_seconds=3_600)
    put(desk, old)
    submit(desk, "o1", request("vision", cards=2))
    assert names(put(desk, old.model_copy(update={"cards_at_least": 2}))) == [
        "approval_policy.set",
        "approval.rerouted",
    ]
    assert names(vote(desk, "o1", "ann"))[0] == "approval.granted"


def test_many_waiting_orders_end_in_one_step() -> None:
    desk = assembled()
    put(desk, policy(level(), cards_at_least=2))
    for number in range(50):
        submit(desk, f"o{number}", request("vision", cards=2))
    said = put(desk)
    assert names(said).count("order.admitted") == 50
    assert desk.index.questions.inbox("eva") == []
