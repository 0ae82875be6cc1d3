"""What each fact about an approval changes in the record: a part of the section of the topic `admissions`. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from qm_catalog.approval_record import Approval, ApprovalVote
from qm_catalog.request_record import Vetted
from qm_events import EventData, admission, admission_approval

Changes = dict[str, Any]
"""Fields of a section and their new values."""
Change = Callable[[Any, Any, datetime], Changes]
"""(section, data of the fact, time of its envelope) -> changes. The time serves facts without an instant."""


def _requested(s: Vetted, d: admission.ApprovalRequested, _: datetime) -> Changes:
    asked = Approval(
        approval=d.approval,
        policy=d.policy,
        level=d.level,
        approvers=d.approvers,
        requested_at=d.requested_at,
        lapses_at=d.lapses_at,
        levels=d.levels or d.level,
        needed=d.needed or 1,
        awaited=d.approvers if d.awaited is None else d.awaited,
        escalates_at=d.escalates_at,
    )
    return dict(gate="approval", approvals=(*s.approvals, asked))


def _about(change: Callable[[Approval, Any], Approval]) -> Change:
    """Return the change of the one approval that a fact is about; the gate is waited for while one is open."""

    def apply(s: Vetted, d: Any, _: datetime) -> Changes:
        approvals = tuple(change(a, d) if (a.approval, a.level) == (d.approval, d.level) else a for a in s.approvals)
        waits = any(a.status == "pending" for a in approvals)
        return dict(approvals=approvals, gate="approval" if waits else None)

    return apply


def _vote(a: Approval, d: Any, verdict: Literal["approve", "deny"], at: datetime) -> Approval:
    return replace(a, votes=(*a.votes, ApprovalVote(d.approver, d.on_behalf_of, verdict, d.comment, at)))


def _voted(a: Approval, d: admission_approval.ApprovalVoted) -> Approval:
    return replace(_vote(a, d, d.verdict, d.voted_at), awaited=d.awaited)


def _decided(status: Literal["granted", "denied"]) -> Callable[[Approval, Any], Approval]:
    verdict: Literal["approve", "deny"] = "approve" if status == "granted" else "deny"

    def change(a: Approval, d: Any) -> Approval:
        voted = _vote(a, d, verdict, d.decided_at)
        return _ended(replace(voted, approver=d.approver, comment=d.comment), status, d.decided_at)

    return change


def _ended(
    a: Approval, status: Literal["granted", "denied", "lapsed", "withdrawn", "escalated"], at: datetime
) -> Approval:
    return replace(a, status=status, decided_at=at, awaited=())


def _rerouted(a: Approval, d: admission_approval.ApprovalRerouted) -> Approval:
    policy, levels = a.policy, a.levels
    if d.by is not None:
        policy, levels = d.by.name, max(1, len(d.by.levels or ()))
    return replace(
        a,
        policy=policy,
        levels=levels,
        needed=d.needed,
        approvers=d.approvers,
        awaited=d.awaited,
        rerouted_at=d.rerouted_at,
        rerouted_because=d.cause,
    )


def _escalated(a: Approval, d: admission_approval.ApprovalEscalated) -> Approval:
    a = replace(a, escalated_at=d.escalated_at)
    if d.to == "next_level":
        return _ended(a, "escalated", d.escalated_at)
    return replace(a, approvers=d.approvers, awaited=d.awaited, escalates_at=None, lapses_at=d.lapses_at)


def _withdrawn(a: Approval, d: admission_approval.ApprovalWithdrawn) -> Approval:
    return replace(_ended(a, "withdrawn", d.withdrawn_at), comment=d.cause)


APPROVALS: Mapping[type[EventData], Change] = {
    admission.ApprovalRequested: _requested,
    admission_approval.ApprovalVoted: _about(_voted),
    admission_approval.ApprovalRerouted: _about(_rerouted),
    admission_approval.ApprovalEscalated: _about(_escalated),
    admission_approval.ApprovalReminded: _about(lambda a, d: replace(a, reminders=d.number)),
    admission_approval.ApprovalWithdrawn: _about(_withdrawn),
    admission.ApprovalGranted: _about(_decided("granted")),
    admission.ApprovalDenied: _about(_decided("denied")),
    admission.ApprovalLapsed: _about(lambda a, d: _ended(a, "lapsed", d.lapsed_at)),
}
