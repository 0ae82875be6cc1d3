"""One question to people, from asking to its end, as a fold of its facts: the same in an order's state and in the
documents. Pure.

A fact that is told of another question than this one leaves it as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from qm_events import EventData
from qm_events.admission import (
    ApprovalDenied,
    ApprovalGranted,
    ApprovalLapsed,
    ApprovalRequested,
    OrderWithdrawn,
)
from qm_events.admission_approval import (
    ApprovalEscalated,
    ApprovalReminded,
    ApprovalRerouted,
    ApprovalVoted,
    ApprovalWithdrawn,
)
from qm_events.approval import ApprovalLevel, ApprovalPolicy, Approvers
from qm_events.specs import OrderRequest, Role

ApprovalStatus = Literal["pending", "granted", "denied", "lapsed", "void", "withdrawn", "escalated"]
"""`void`: the order ended first. `withdrawn`: the policies changed. `escalated`: the next level was asked instead."""
PASSED = ("granted", "escalated")


@dataclass(frozen=True, slots=True)
class CastVote:
    """What somebody said, for himself or for the one whose seat it is."""

    voter: str
    seat: str
    verdict: Literal["approve", "deny"]
    comment: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """A question to people, and what came of it."""

    order: str
    approval: str
    tenant: str
    project: str
    policy: str
    level: int
    levels: int
    needed: int
    request: OrderRequest
    digest: str
    by: ApprovalPolicy
    """The policy that asks."""
    approvers: tuple[str, ...]
    """Who may decide now, as last told; empty = nobody can."""
    awaited: tuple[str, ...]
    """Those of them who are counted on."""
    approver_role: Role | None
    approver_subjects: tuple[str, ...]
    self_approval: bool
    requested_at: datetime
    lapses_at: datetime | None
    escalates_at: datetime | None = None
    remind_at: datetime | None = None
    escalated_at: datetime | None = None
    rerouted_at: datetime | None = None
    reminders: int = 0
    votes: tuple[CastVote, ...] = ()
    status: ApprovalStatus = "pending"
    decided_by: str | None = None
    decided_for: str | None = None
    decided_at: datetime | None = None
    comment: str = ""

    @property
    def alarm_at(self) -> datetime | None:
        """When something is due without anybody's doing."""
        return min(filter(None, (self.escalates_at, self.remind_at, self.lapses_at)), default=None)

    @property
    def rule(self) -> ApprovalLevel:
        """The rule of its level."""
        return levels_of(self.by)[self.level - 1]


def levels_of(policy: ApprovalPolicy) -> tuple[ApprovalLevel, ...]:
    """Return the levels of a policy; the fields of the first release are one level where the first word decides."""
    if policy.levels is not None:
        return policy.levels
    approvers = Approvers(role=policy.approver_role, subjects=policy.approver_subjects or None)
    return (ApprovalLevel(approvers=approvers, lapses_after_seconds=policy.lapses_after_seconds),)


def opened(data: ApprovalRequested) -> Approval | None:
    """Return a question as it is asked; None for a fact that lacks the request."""
    if data.submission is None:
        return None
    request = data.submission.request
    return Approval(
        order=data.order,
        approval=data.approval,
        tenant=request.tenant,
        project=request.project,
        policy=data.policy,
        level=data.level,
        levels=data.levels or data.level,
        needed=data.needed or 1,
        request=request,
        digest=data.digest,
        by=data.by or _as_asked(data),
        approvers=data.approvers,
        awaited=data.approvers if data.awaited is None else data.awaited,
        approver_role=data.approver_role,
        approver_subjects=data.approver_subjects,
        self_approval=data.self_approval,
        requested_at=data.requested_at,
        lapses_at=data.lapses_at,
        escalates_at=data.escalates_at,
        remind_at=data.remind_at,
    )


def _as_asked(data: ApprovalRequested) -> ApprovalPolicy:
    """Return the policy of a fact of the first release, which named only its outcome."""
    lapses = None if data.lapses_at is None else max(1, int((data.lapses_at - data.requested_at).total_seconds()))
    return ApprovalPolicy(
        name=data.policy,
        approver_role=data.approver_role,
        approver_subjects=data.approver_subjects,
        self_approval=data.self_approval,
        lapses_after_seconds=lapses,
    )


def _voted(asked: Approval, d: ApprovalVoted) -> Approval:
    vote = CastVote(d.approver, d.on_behalf_of or d.approver, d.verdict, d.comment, d.voted_at)
    return replace(asked, votes=(*asked.votes, vote), awaited=d.awaited)


def _rerouted(asked: Approval, d: ApprovalRerouted) -> Approval:
    asked = replace(asked, approvers=d.approvers, awaited=d.awaited, needed=d.needed, rerouted_at=d.rerouted_at)
    if d.by is None:
        return asked
    return replace(asked, by=d.by, policy=d.by.name, levels=len(levels_of(d.by)))


def _escalated(asked: Approval, d: ApprovalEscalated) -> Approval:
    if d.to == "next_level":
        return replace(_closed(asked, "escalated", d.escalated_at), escalated_at=d.escalated_at)
    return replace(
        asked,
        approvers=d.approvers,
        awaited=d.awaited,
        escalated_at=d.escalated_at,
        escalates_at=None,
        lapses_at=d.lapses_at,
    )


def _reminded(asked: Approval, d: ApprovalReminded) -> Approval:
    return replace(asked, reminders=d.number, remind_at=d.remind_at)


def _decided(status: Literal["granted", "denied"]) -> Callable[[Approval, Any], Approval]:
    verdict: Literal["approve", "deny"] = "approve" if status == "granted" else "deny"

    def fold(asked: Approval, d: ApprovalGranted | ApprovalDenied) -> Approval:
        vote = CastVote(d.approver, d.on_behalf_of or d.approver, verdict, d.comment, d.decided_at)
        closed = _closed(asked, status, d.decided_at)
        return replace(
            closed,
            votes=(*asked.votes, vote),
            decided_by=d.approver,
            decided_for=d.on_behalf_of,
            comment=d.comment,
        )

    return fold


def _closed(asked: Approval, status: ApprovalStatus, at: datetime) -> Approval:
    return replace(asked, status=status, decided_at=at, awaited=(), escalates_at=None, remind_at=None)


CHANGES: Mapping[type[EventData], Callable[[Approval, Any], Approval]] = {
    ApprovalVoted: _voted,
    ApprovalRerouted: _rerouted,
    ApprovalEscalated: _escalated,
    ApprovalReminded: _reminded,
    ApprovalGranted: _decided("granted"),
    ApprovalDenied: _decided("denied"),
    ApprovalLapsed: lambda asked, d: _closed(asked, "lapsed", d.lapsed_at),
    ApprovalWithdrawn: lambda asked, d: replace(_closed(asked, "withdrawn", d.withdrawn_at), comment=d.cause),
    OrderWithdrawn: lambda asked, d: _closed(asked, "void", d.withdrawn_at),
}


def changed(asked: Approval | None, data: Any) -> Approval | None:
    """Return the question after a fact about it."""
    return asked and CHANGES[type(data)](asked, data)
