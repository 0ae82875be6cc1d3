"""The documents of admission, folds of its own facts: policies, who waits, approvals; `ledger_docs` has more.

The first two are wholly in memory, for decisions; approvals are read from SQL. Those that an index follows come after
what it needs of them: scopes before waiting orders.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from qm_admission.catalogue import SPECIFICATIONS
from qm_admission.hours import life_of
from qm_admission.index import Waiting
from qm_admission.ledger_docs import LEDGER
from qm_admission.quota import amounts_of, blocks, scope_name
from qm_events import Event
from qm_events.admission import (
    ApprovalDenied,
    ApprovalGranted,
    ApprovalLapsed,
    ApprovalPolicy,
    ApprovalPolicySet,
    ApprovalRequested,
    OrderAdmitted,
    OrderHeld,
    OrderRejected,
    OrderWithdrawn,
)
from qm_events.specs import OrderRequest, Role
from qm_service.model import Column, Fold, Projection

# ---- policies: key tenant


def _policies_set(_: Any, event: Event[ApprovalPolicySet]) -> tuple[ApprovalPolicy, ...]:
    return event.data.policies


# ---- waiting: key order; gone once the order has an answer


def _asked(_: Waiting | None, event: Event[ApprovalRequested]) -> Waiting | None:
    return _waiting(event, "pending_approval", lapses_at=event.data.lapses_at)


def _held(_: Waiting | None, event: Event[OrderHeld]) -> Waiting | None:
    renewals = [it.renews_at for it in event.data.violations if it.renews_at]
    wakes_at = min(renewals, default=None)
    return _waiting(event, "held", blocked=blocks(event.data.violations), wakes_at=wakes_at)


def _waiting(event: Event[Any], status: Literal["pending_approval", "held"], **more: Any) -> Waiting | None:
    submission = event.data.submission
    if submission is None:
        return None
    request = submission.request
    return Waiting(
        order=event.data.order,
        tenant=request.tenant,
        project=request.project,
        submitted_at=submission.submitted_at,
        status=status,
        amounts=amounts_of(request),
        life=life_of(request),
        **more,
    )


def _answered(_: Any, __: Event[Any]) -> None:
    return None


# ---- approvals: key approval

ApprovalStatus = Literal["pending", "granted", "denied", "lapsed", "void"]


@dataclass(frozen=True, slots=True)
class Approval:
    """A question to people, and what came of it. `void`: the order ended before anybody decided."""

    order: str
    tenant: str
    project: str
    policy: str
    level: int
    request: OrderRequest
    digest: str
    approvers: tuple[str, ...]
    """At the time of asking; empty = nobody could have decided then."""
    approver_role: Role | None
    approver_subjects: tuple[str, ...]
    self_approval: bool
    status: ApprovalStatus
    requested_at: datetime
    lapses_at: datetime | None
    decided_by: str | None = None
    decided_at: datetime | None = None
    comment: str = ""


def _opened(_: Approval | None, event: Event[ApprovalRequested]) -> Approval | None:
    data = event.data
    if data.submission is None:
        return None
    request = data.submission.request
    return Approval(
        order=data.order,
        tenant=request.tenant,
        project=request.project,
        policy=data.policy,
        level=data.level,
        request=request,
        digest=data.digest,
        approvers=data.approvers,
        approver_role=data.approver_role,
        approver_subjects=data.approver_subjects,
        self_approval=data.self_approval,
        status="pending",
        requested_at=data.requested_at,
        lapses_at=data.lapses_at,
    )


def _voted(status: ApprovalStatus) -> Callable[[Approval | None, Event[Any]], Approval | None]:
    def apply(doc: Approval | None, event: Event[Any]) -> Approval | None:
        data = event.data
        return doc and replace(
            doc, status=status, decided_by=data.approver, decided_at=data.decided_at, comment=data.comment
        )

    return apply


def _lapsed(doc: Approval | None, event: Event[ApprovalLapsed]) -> Approval | None:
    return doc and replace(doc, status="lapsed", decided_at=event.data.lapsed_at)


def _voided(doc: Approval | None, event: Event[OrderWithdrawn]) -> Approval | None:
    return doc and replace(doc, status="void", decided_at=event.data.withdrawn_at)


def _approval(event: Event[Any]) -> Sequence[str]:
    return (event.data.approval,) if event.data.approval else ()


def _always(_: Any) -> bool:
    return True


PROJECTIONS: tuple[Projection[Any], ...] = (
    *LEDGER,
    SPECIFICATIONS,
    Projection(
        name="policies",
        version=1,
        model=tuple[ApprovalPolicy, ...],
        folds={ApprovalPolicySet: Fold(_policies_set)},
        resident=_always,
    ),
    Projection(
        name="waiting",
        version=2,
        model=Waiting,
        folds={
            ApprovalRequested: Fold(_asked),
            OrderHeld: Fold(_held),
            OrderAdmitted: Fold(_answered),
            OrderRejected: Fold(_answered),
            OrderWithdrawn: Fold(_answered),
        },
        resident=_always,
    ),
    Projection(
        name="approvals",
        version=1,
        model=Approval,
        folds={
            ApprovalRequested: Fold(_opened, _approval),
            ApprovalGranted: Fold(_voted("granted"), _approval),
            ApprovalDenied: Fold(_voted("denied"), _approval),
            ApprovalLapsed: Fold(_lapsed, _approval),
            OrderWithdrawn: Fold(_voided, _approval),
        },
        columns={
            "status": Column(str, lambda doc: doc.status),
            "tenant": Column(str, lambda doc: doc.tenant),
            "scope": Column(str, lambda doc: scope_name(doc.tenant, doc.project)),
            "requested_at": Column(datetime, lambda doc: doc.requested_at),
        },
    ),
)
