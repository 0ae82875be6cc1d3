"""The documents of admission, folds of its own facts: policies, who waits, approvals; `ledger_docs` has more.

Those that decisions look at are in memory, of approvals the open ones; the others are read from SQL. Those that an
index follows come after what it needs of them: scopes before waiting orders.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from qm_admission.catalogue import SPECIFICATIONS
from qm_admission.delegations import AWAY
from qm_admission.hours import Life, life_of
from qm_admission.index import Waiting
from qm_admission.ledger_docs import LEDGER
from qm_admission.prices import OFFERED
from qm_admission.question import CHANGES, Approval, changed, opened
from qm_admission.quota import amounts_of, blocks, scope_name
from qm_events import Event
from qm_events.admission import (
    ApprovalPolicySet,
    ApprovalRequested,
    OrderAdmitted,
    OrderHeld,
    OrderRejected,
    OrderResumed,
    OrderWithdrawn,
)
from qm_events.approval import ApprovalPolicy
from qm_events.specs import OrderRequest
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


def _life(event: Event[Any], request: OrderRequest) -> Life:
    """Return how long it will take cards: of an order that was suspended, the end stands."""
    ends_at = getattr(event.data, "ends_at", None)
    return life_of(request) if ends_at is None else Life(request.cards, None, ends_at)


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
        life=_life(event, request),
        priority=request.priority,
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
        version=3,
        model=Waiting,
        folds={
            ApprovalRequested: Fold(_asked),
            OrderHeld: Fold(_held),
            OrderAdmitted: Fold(_answered),
            OrderResumed: Fold(_answered),
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
