"""The documents of admission, all folds of its own facts: the ledger, the policies, who waits, and the approvals.

Those that decisions look at are in memory, of approvals the open ones; the others are read from SQL. Those that an
index follows come after what it needs of them: scopes before waiting orders.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from qm_admission.delegations import AWAY
from qm_admission.index import Waiting
from qm_admission.prices import OFFERED
from qm_admission.question import CHANGES, Approval, changed, opened
from qm_admission.quota import Scope, amounts_of, blocks, post, scope_name
from qm_events import Event
from qm_events.admission import (
    ApprovalPolicySet,
    ApprovalRequested,
    OrderAdmitted,
    OrderHeld,
    OrderRejected,
    OrderWithdrawn,
    QuotaClaimed,
    QuotaCommitted,
    QuotaLimitSet,
    QuotaRefunded,
)
from qm_events.approval import ApprovalPolicy
from qm_service.model import Column, Fold, Projection

# ---- scopes: key `tenant` or `tenant/project`


def _claimed(scope: Scope | None, event: Event[QuotaClaimed]) -> Scope:
    return post(scope, event.data.amounts.values, 1)


def _committed(scope: Scope | None, event: Event[QuotaCommitted]) -> Scope:
    return post(scope, event.data.returned.values, -1)


def _refunded(scope: Scope | None, event: Event[QuotaRefunded]) -> Scope:
    return post(scope, event.data.amounts.values, -1)


def _limited(scope: Scope | None, event: Event[QuotaLimitSet]) -> Scope:
    return replace(scope or Scope(), limits=event.data.limits.values, over_quota=event.data.over_quota)


def _scopes(event: Event[Any]) -> Sequence[str]:
    scopes: Sequence[str] = event.data.scopes
    return scopes


def _limited_scope(event: Event[QuotaLimitSet]) -> Sequence[str]:
    return (scope_name(event.data.tenant, event.data.project),)


# ---- policies: key tenant


def _policies_set(_: Any, event: Event[ApprovalPolicySet]) -> tuple[ApprovalPolicy, ...]:
    return event.data.policies


# ---- waiting: key order; gone once the order has an answer


def _asked(_: Waiting | None, event: Event[ApprovalRequested]) -> Waiting | None:
    return _waiting(event, "pending_approval", lapses_at=event.data.lapses_at)


def _held(_: Waiting | None, event: Event[OrderHeld]) -> Waiting | None:
    return _waiting(event, "held", blocked=blocks(event.data.violations))


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
        **more,
    )


def _answered(_: Any, __: Event[Any]) -> None:
    return None


# ---- approvals: key approval


def _opened(_: Approval | None, event: Event[ApprovalRequested]) -> Approval | None:
    return opened(event.data)


def _changed(doc: Approval | None, event: Event[Any]) -> Approval | None:
    return changed(doc, event.data)


def _approval(event: Event[Any]) -> Sequence[str]:
    return (event.data.approval,) if event.data.approval else ()


def _always(_: Any) -> bool:
    return True


PROJECTIONS: tuple[Projection[Any], ...] = (
    OFFERED,
    AWAY,
    Projection(
        name="scopes",
        version=1,
        model=Scope,
        folds={
            QuotaClaimed: Fold(_claimed, _scopes),
            QuotaCommitted: Fold(_committed, _scopes),
            QuotaRefunded: Fold(_refunded, _scopes),
            QuotaLimitSet: Fold(_limited, _limited_scope),
        },
        resident=_always,
    ),
    Projection(
        name="policies",
        version=1,
        model=tuple[ApprovalPolicy, ...],
        folds={ApprovalPolicySet: Fold(_policies_set)},
        resident=_always,
    ),
    Projection(
        name="waiting",
        version=1,
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
        version=2,
        model=Approval,
        folds={
            ApprovalRequested: Fold(_opened, _approval),
            **{fact: Fold(_changed, _approval) for fact in CHANGES},
        },
        columns={
            "status": Column(str, lambda doc: doc.status),
            "tenant": Column(str, lambda doc: doc.tenant),
            "scope": Column(str, lambda doc: scope_name(doc.tenant, doc.project)),
            "requested_at": Column(datetime, lambda doc: doc.requested_at),
        },
        resident=lambda doc: doc.status == "pending",
    ),
)
