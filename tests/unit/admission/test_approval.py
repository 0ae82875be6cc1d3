"""Who is asked, who may answer, and what a vote does."""

from typing import Any

import pytest

from qm_admission.book import SetLimits, SetPolicies
from qm_events import Event
from qm_events.approval import ApprovalPolicy
from qm_events.catalog import MemberGranted, MemberRevoked
from qm_events.specs import Role
from qm_service.model import Rejected
from tests.unit.admission.desk import TENANT, Desk, cancel, furnished, names, request, submit, vote


def policy(**more: Any) -> ApprovalPolicy:
    return ApprovalPolicy(**{"name": "big", "approver_role": Role.APPROVER} | more)


def desk_with(*policies: ApprovalPolicy) -> Desk:
    desk = furnished()
    said = desk.command("quota/acme", SetPolicies(TENANT, policies))
    assert names(said) == ["approval_policy.set"]
    return desk


def test_the_first_policy_that_matches_asks_those_who_have_the_role() -> None:
    desk = desk_with(policy(name="huge", cards_at_least=100), policy(cards_at_least=2), policy(name="any"))
    (asked,) = submit(desk, "o1", request(cards=2))
    assert (asked.policy, asked.approvers, asked.digest) == ("big", ("ann", "bob"), "digest-o1")
    assert names(submit(desk, "o2", request("speech", cards=2))) == ["approval.requested"]
    assert desk.facts[-1].data.approvers == ("bob",)
    assert desk.docs.get("scopes", "acme") is None, "nobody holds quota while people think"


def test_an_order_below_every_policy_passes_untouched() -> None:
    desk = desk_with(policy(cards_at_least=2))
    assert names(submit(desk, "o1", request(cards=1))) == ["quota.claimed", "order.admitted"]


def test_a_granted_order_is_admitted_with_exactly_its_parameters() -> None:
    desk = desk_with(policy())
    asked = request(cards=2)
    submit(desk, "o1", asked)
    said = vote(desk, "o1", "ann", digest="digest-o1", comment="go")
    assert names(said) == ["approval.granted", "quota.claimed", "order.admitted"]
    assert (said[0].approver, said[0].comment, said[2].request, said[2].digest) == ("ann", "go", asked, "digest-o1")


def test_a_granted_order_that_does_not_fit_is_held_at_the_place_of_its_submission() -> None:
    desk = desk_with(policy(cards_at_least=2))
    desk.command("quota/acme", SetLimits(TENANT, "vision", {"cards": 2}))
    submit(desk, "o1", request(cards=1))
    submit(desk, "old", request(cards=2))
    submit(desk, "o2", request(cards=1))
    assert names(vote(desk, "old", "bob")) == ["approval.granted", "order.held"]
    assert names(submit(desk, "o3", request(cards=1))) == ["order.held"]


def test_a_granted_order_that_never_fits_any_more_is_rejected() -> None:
    desk = desk_with(policy())
    submit(desk, "o1", request(cards=2))
    desk.command("quota/acme", SetLimits(TENANT, None, {"cards": 1}))
    assert names(vote(desk, "o1", "ann")) == ["approval.granted", "order.rejected"]


def test_a_denied_order_is_rejected_in_the_same_step() -> None:
    desk = desk_with(policy())
    submit(desk, "o1", request())
    said = vote(desk, "o1", "ann", "deny", comment="too dear")
    assert names(said) == ["approval.denied", "order.rejected"]
    assert said[1].code == "approval-denied"


@pytest.mark.parametrize(
    ("prepare", "ballot", "code"),
    [
        ([], {"approver": "dev"}, "approval-own-order"),
        ([], {"approver": "kim"}, "approval-not-yours"),
        ([], {"approver": "stranger"}, "approval-not-yours"),
        ([], {"approver": "ann", "digest": "another"}, "approval-digest-mismatch"),
        ([], {"approver": "ann", "verdict": "deny", "digest": "another"}, "approval-digest-mismatch"),
        ([], {"approver": "ann", "approval": "another"}, "approval-not-open"),
        ([("approve", "bob")], {"approver": "ann"}, "approval-already-decided"),
        ([("approve", "ann")], {"approver": "ann"}, "approval-already-decided"),
        ([("approve", "ann")], {"approver": "ann", "verdict": "deny"}, "approval-conflict"),
        ([("deny", "ann")], {"approver": "bob"}, "approval-conflict"),
        ([("deny", "ann")], {"approver": "bob", "verdict": "deny"}, "approval-already-decided"),
    ],
)
def test_a_vote_that_does_not_count_says_why_and_changes_nothing(
    prepare: list[tuple[str, str]], ballot: dict[str, Any], code: str
) -> None:
    desk = desk_with(policy())
    submit(desk, "o1", request())
    for verdict, approver in prepare:
        vote(desk, "o1", approver, verdict)
    before = len(desk.facts)
    refused = vote(desk, "o1", **ballot)
    assert isinstance(refused, Rejected)
    assert refused.code == code
    assert refused.remedy
    assert len(desk.facts) == before


def test_an_approval_lapses_at_the_promised_instant_however_late_it_is_noticed() -> None:
    desk = desk_with(policy(lapses_after_seconds=3_600))
    (asked,) = submit(desk, "o1", request())
    assert asked.lapses_at is not None
    assert desk.index is not None
    assert desk.advance(seconds=3_599) == []
    said = desk.advance(hours=5)
    assert names(said) == ["approval.lapsed", "order.rejected"]
    assert said[0].lapsed_at == asked.lapses_at
    refused = vote(desk, "o1", "ann")
    assert isinstance(refused, Rejected)
    assert refused.code == "approval-lapsed"


def test_a_vote_after_the_time_is_late_even_before_the_lapse_is_noticed() -> None:
    desk = desk_with(policy(lapses_after_seconds=60))
    (asked,) = submit(desk, "o1", request())
    desk.now = asked.lapses_at
    refused = vote(desk, "o1", "ann")
    assert isinstance(refused, Rejected)
    assert refused.code == "approval-lapsed"


def test_a_decided_approval_does_not_lapse() -> None:
    desk = desk_with(policy(lapses_after_seconds=60))
    submit(desk, "o1", request())
    vote(desk, "o1", "ann")
    assert desk.advance(hours=1) == []


def test_a_lapse_is_due_after_a_restart_too() -> None:
    desk = desk_with(policy(lapses_after_seconds=60), policy(name="never-lapses"))
    (asked,) = submit(desk, "o1", request())
    desk.restart()
    assert desk.index is not None
    assert desk.index.questions.next_at() == asked.lapses_at
    assert names(desk.advance(hours=1)) == ["approval.lapsed", "order.rejected"]
    assert desk.index.questions.next_at() is None


def test_a_withdrawn_order_makes_its_approval_void() -> None:
    desk = desk_with(policy())
    (asked,) = submit(desk, "o1", request())
    (withdrawn,) = cancel(desk, "o1")
    assert withdrawn.approval == asked.approval
    assert desk.docs.get("approvals", asked.approval).status == "void"
    refused = vote(desk, "o1", "ann")
    assert isinstance(refused, Rejected)
    assert refused.code == "approval-void"


def test_an_approver_who_lost_the_role_cannot_decide_and_a_new_one_can() -> None:
    desk = desk_with(policy())
    submit(desk, "o1", request())
    desk.tell(MemberRevoked(tenant=TENANT, project="vision", subject="ann", role=Role.APPROVER), "tenant/acme")
    desk.tell(MemberGranted(tenant=TENANT, project="vision", subject="eve", role=Role.APPROVER), "tenant/acme")
    assert isinstance(vote(desk, "o1", "ann"), Rejected)
    assert names(vote(desk, "o1", "eve"))[0] == "approval.granted"


def test_nobody_entitled_is_visible_and_no_consent() -> None:
    desk = desk_with(policy(approver_role=Role.AUDITOR))
    (asked,) = submit(desk, "o1", request())
    assert asked.approvers == ()
    assert desk.docs.get("waiting", "o1").status == "pending_approval"
    desk.tell(MemberGranted(tenant=TENANT, project=None, subject="eve", role=Role.AUDITOR), "tenant/acme")
    assert names(vote(desk, "o1", "eve"))[0] == "approval.granted"


def test_the_approval_document_follows_the_decision() -> None:
    desk = desk_with(policy())
    (asked,) = submit(desk, "o1", request())
    doc = desk.docs.get("approvals", asked.approval)
    assert (doc.status, doc.order, doc.tenant, doc.approvers) == ("pending", "o1", TENANT, ("ann", "bob"))
    vote(desk, "o1", "bob", comment="fine")
    doc = desk.docs.get("approvals", asked.approval)
    assert (doc.status, doc.decided_by, doc.comment, doc.decided_at) == ("granted", "bob", "fine", desk.now)


@pytest.mark.parametrize(
    ("policies", "word"),
    [
        ((policy(), policy()), "twice"),
        ((policy(approver_role=None),), "nobody"),
        ((policy(approver_subjects=("ann", "nobody-knows")),), "nobody-knows"),
        ((policy(projects=("vision", "visoin")),), "visoin"),
    ],
)
def test_policies_that_cannot_work_are_refused(policies: tuple[ApprovalPolicy, ...], word: str) -> None:
    refused = furnished().command("quota/acme", SetPolicies(TENANT, policies))
    assert isinstance(refused, Rejected)
    assert refused.code == "approval-policy-invalid"
    assert word in refused.detail


def test_policies_that_are_so_already_are_no_fact() -> None:
    desk = desk_with(policy())
    assert desk.command("quota/acme", SetPolicies(TENANT, (policy(),))) == []


def test_what_waits_is_known_from_the_own_facts_alone() -> None:
    desk = desk_with(policy(cards_at_least=2))
    desk.command("quota/acme", SetLimits(TENANT, "vision", {"cards": 2}))
    for order, cards in (("o1", 1), ("asked", 2), ("o2", 1), ("held", 1)):
        submit(desk, order, request(cards=cards))
    own: list[Event[Any]] = list(desk.facts)
    desk.foreign = [event for event in desk.foreign if event.subject.startswith("tenant/")]
    desk.restart()
    assert desk.facts == own
    assert {doc.status for doc in desk.docs.resident("waiting").values()} == {"pending_approval", "held"}
    assert desk.states["admission/held"].submission.request == request(cards=1)
    assert names(vote(desk, "asked", "ann"))[0] == "approval.granted"


def test_a_question_of_the_first_release_goes_on_as_it_began() -> None:
    desk = desk_with(policy(lapses_after_seconds=3_600, cards_at_least=1))
    (asked,) = submit(desk, "o1", request())
    new = ("by", "levels", "needed", "awaited", "escalates_at", "remind_at")
    old = asked.model_copy(update=dict.fromkeys(new))
    desk.facts[-1] = desk.facts[-1].model_copy(update={"data": old})
    desk.restart()
    question = desk.states["admission/o1"].asked
    assert (question.level, question.levels, question.needed, question.awaited) == (1, 1, 1, ("ann", "bob"))
    assert desk.advance(seconds=1) == [], "nothing new is said about it"
    changed = policy(lapses_after_seconds=3_600, projects=("vision",))
    assert names(desk.command("quota/acme", SetPolicies(TENANT, (changed,)))) == [
        "approval_policy.set",
        "approval.rerouted",
    ]
    assert desk.states["admission/o1"].asked.lapses_at == asked.lapses_at
    assert names(vote(desk, "o1", "ann")) == ["approval.granted", "quota.claimed", "order.admitted"]


def test_a_question_of_the_first_release_without_anybody_stays_so() -> None:
    desk = desk_with(policy(approver_role=Role.AUDITOR))
    desk.tell(MemberGranted(tenant=TENANT, project=None, subject="tina", role=Role.TENANT_ADMIN), "tenant/acme")
    (asked,) = submit(desk, "o1", request())
    assert asked.approvers == (), "only policies with levels fall back to the admins"
