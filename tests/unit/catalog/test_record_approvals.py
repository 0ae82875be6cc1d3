"""What the record of an order shows of its approvals: levels, votes, who is awaited, and why it waits."""

from typing import Any

from qm_catalog.record_conditions import conditions
from qm_catalog.record_phase import Phase, phase, reasons
from qm_catalog.request_record import Record
from qm_events import EventData
from qm_events.admission import ApprovalGranted, ApprovalRequested
from qm_events.admission_approval import (
    ApprovalEscalated,
    ApprovalReminded,
    ApprovalRerouted,
    ApprovalVoted,
    ApprovalWithdrawn,
)
from qm_events.approval import ApprovalPolicy
from qm_events.reasons import REASONS
from qm_events.specs import WaitCode
from tests.unit.catalog.walk import ORDER, admitted, at, fold, in_order, submitted, tell

ASKED: dict[str, Any] = {"order": ORDER, "approval": "a1", "level": 1}


def requested(level: int = 1, approval: str = "a1", **more: Any) -> ApprovalRequested:
    given = {"approvers": ("ann", "bob", "cem"), "awaited": ("ann", "bob"), "levels": 2, "needed": 2} | more
    return ApprovalRequested(
        order=ORDER, approval=approval, policy="big", level=level, digest="d", requested_at=at(1), **given
    )


def voted(approver: str, minute: float, *awaited: str, **more: Any) -> ApprovalVoted:
    said = {"verdict": "approve", "digest": "d", "voted_at": at(minute), "awaited": awaited} | more
    return ApprovalVoted(**ASKED, approver=approver, **said)


def told(*facts: EventData) -> Record:
    return fold(in_order(tell(submitted(), *enumerate(facts, 1))))


def test_an_open_level_shows_how_far_it_is_and_who_is_awaited() -> None:
    record = told(requested(), voted("cem", 2, "ann", "bob", on_behalf_of="dan", comment="fine"))
    (asked,) = record.vetted.approvals
    assert (asked.status, asked.levels, asked.needed, asked.agreed) == ("pending", 2, 2, 1)
    (vote,) = asked.votes
    assert (vote.voter, vote.on_behalf_of, vote.comment, vote.voted_at) == ("cem", "dan", "fine", at(2))
    (why,) = reasons(record)
    assert why.code == WaitCode.APPROVAL_PENDING
    assert why.figures == {
        "level": 1, "levels": 2, "needed": 2, "agreed": 1, "policy": "big",
        "awaited": ("ann", "bob"), "approvers": ("ann", "bob", "cem"),
    }  # fmt: skip
    assert set(why.figures) == set(REASONS[WaitCode.APPROVAL_PENDING].figures)
    assert why.counterfactual == "one of the approvers agrees"
    told_condition = next(it for it in conditions(record) if it.type == "Approved")
    assert told_condition.message == "level 1 of 2, 1 of 2, policy big"


def test_the_next_level_is_shown_beside_the_first() -> None:
    granted = ApprovalGranted(**ASKED, approver="ann", digest="d", decided_at=at(3), on_behalf_of="dan")
    record = told(
        requested(), voted("bob", 2, "ann"), granted, requested(2, "a2", approvers=("mia",), awaited=("mia",))
    )
    first, second = record.vetted.approvals
    assert (first.status, first.approver, first.agreed, first.awaited) == ("granted", "ann", 2, ())
    assert (second.status, second.level) == ("pending", 2)
    assert phase(record) is Phase.PENDING_APPROVAL
    assert reasons(record)[0].figures["awaited"] == ("mia",)


def test_nobody_who_can_decide_is_shown_with_what_to_do() -> None:
    gone = ApprovalRerouted(
        **ASKED, cause="people_changed", approvers=(), awaited=(), joined=(), needed=2, rerouted_at=at(2)
    )
    record = told(requested(), gone)
    (asked,) = record.vetted.approvals
    assert (asked.approvers, asked.rerouted_at, asked.rerouted_because) == ((), at(2), "people_changed")
    assert "Nobody can decide now" in reasons(record)[0].remedy


def test_escalation_reminders_and_a_changed_policy_are_shown() -> None:
    record = told(
        requested(escalates_at=at(2), lapses_at=at(9)),
        ApprovalReminded(**ASKED, awaited=("ann",), number=1, reminded_at=at(2)),
        ApprovalEscalated(
            **ASKED, to="approvers", approvers=("ann", "sam"), awaited=("sam",), joined=("sam",),
            escalated_at=at(3), lapses_at=at(10),
        ),
        ApprovalRerouted(
            **ASKED, cause="policy_changed", approvers=("sam",), awaited=("sam",), joined=(), needed=1,
            rerouted_at=at(4), by=ApprovalPolicy(name="small"),
        ),
    )  # fmt: skip
    (asked,) = record.vetted.approvals
    assert (asked.reminders, asked.escalated_at, asked.escalates_at, asked.lapses_at) == (1, at(3), None, at(10))
    assert (asked.policy, asked.needed, asked.levels) == ("small", 1, 1)


def test_a_question_taken_back_or_passed_on_is_no_wait() -> None:
    withdrawn = ApprovalWithdrawn(**ASKED, cause="no policy asks", withdrawn_at=at(2))
    record = told(requested(), withdrawn, *(fact for _, fact in admitted()))
    assert record.vetted.approvals[0].status == "withdrawn"
    assert phase(record) is Phase.QUEUED
    assert next(it for it in conditions(record) if it.type == "Approved").reason == "NotRequired"
    passed = ApprovalEscalated(**ASKED, to="next_level", approvers=(), awaited=(), joined=(), escalated_at=at(2))
    record = told(requested(), passed, requested(2, "a2"))
    assert [it.status for it in record.vetted.approvals] == ["escalated", "pending"]
    assert len(reasons(record)) == 1
