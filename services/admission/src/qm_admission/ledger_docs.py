"""The documents of the ledger, of the clocks of running orders and of the requests for quota. Folds of own facts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from qm_admission.quota import NOTICE_SECONDS, Quantities, Scope, post, scope_name, settle
from qm_admission.timers import Clock
from qm_events import Event
from qm_events.admission import OrderSuspended, QuotaClaimed, QuotaCommitted, QuotaLimitSet, QuotaRefunded
from qm_events.admission_quota import (
    QuotaAdjusted,
    QuotaHoursEnding,
    QuotaHoursExhausted,
    QuotaRequestApproved,
    QuotaRequestDenied,
    QuotaRequestOpened,
    QuotaThresholdReached,
)
from qm_service.model import Column, Fold, Projection

# ---- scopes: key `tenant` or `tenant/project`


def _claimed(scope: Scope | None, event: Event[QuotaClaimed]) -> Scope:
    return post(scope, event.data.amounts.values, 1)


def _committed(scope: Scope | None, event: Event[QuotaCommitted]) -> Scope:
    return post(scope, event.data.returned.values, -1)


def _refunded(scope: Scope | None, event: Event[QuotaRefunded]) -> Scope:
    return post(scope, event.data.amounts.values, -1)


def _adjusted(scope: Scope | None, event: Event[QuotaAdjusted]) -> Scope:
    data = event.data
    scope = post(post(scope, data.taken.values, 1), data.returned.values, -1)
    if data.cause == "used":
        return settle(scope, data.taken.values, 1)
    return settle(scope, data.returned.values, -1) if data.cause == "corrected" else scope


def _limited(scope: Scope | None, event: Event[QuotaLimitSet]) -> Scope:
    data = event.data
    return replace(
        scope or Scope(),
        limits=data.limits.values,
        over_quota=data.over_quota,
        report_only=data.report_only or (),
        borrow=data.borrow.values if data.borrow else {},
        lend=data.lend.values if data.lend else {},
        exhausted=data.hours_exhausted or "warn",
        notice_seconds=NOTICE_SECONDS if data.notice_seconds is None else data.notice_seconds,
        priority_at_most=data.priority_at_most,
    )


def _reached(scope: Scope | None, event: Event[QuotaThresholdReached]) -> Scope:
    scope = scope or Scope()
    return replace(scope, reached=dict(sorted({**scope.reached, event.data.dimension: event.data.percent}.items())))


def _scope(event: Event[QuotaThresholdReached]) -> Sequence[str]:
    return (event.data.scope,)


def _scopes(event: Event[Any]) -> Sequence[str]:
    scopes: Sequence[str] = event.data.scopes
    return scopes


def _limited_scope(event: Event[QuotaLimitSet]) -> Sequence[str]:
    return (scope_name(event.data.tenant, event.data.project),)


# ---- clocks: key order; gone when nothing is to be looked at


def _clock(old: Clock | None, event: Event[Any]) -> Clock | None:
    data = event.data
    if getattr(data, "cause", None) in ("corrected", "placed"):
        return old
    # Where the bill is closed, or the cards are back, there is nothing to renew.
    if data.looks_at is None:
        return None
    tenant, project = data.scopes[0], data.scopes[-1].partition("/")[2]
    return Clock(tenant, project or None, data.looks_at)


def _no_clock(_: Clock | None, __: Event[Any]) -> None:
    return None


# ---- quota_requests: key request

RequestStatus = Literal["open", "approved", "denied"]


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """A request and what came of it."""

    request: str
    tenant: str
    project: str | None
    limits: Quantities
    reason: str
    requester: str
    requested_at: datetime
    status: RequestStatus = "open"
    granted: Quantities | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    comment: str = ""


def _opened(_: QuotaRequest | None, event: Event[QuotaRequestOpened]) -> QuotaRequest:
    data = event.data
    return QuotaRequest(
        data.request, data.tenant, data.project, data.limits.values, data.reason, data.requester, data.requested_at
    )


def _decided(status: RequestStatus) -> Callable[[QuotaRequest | None, Event[Any]], QuotaRequest | None]:
    def apply(doc: QuotaRequest | None, event: Event[Any]) -> QuotaRequest | None:
        data = event.data
        granted = data.granted.values if status == "approved" else None
        verdict = {"granted": granted, "decided_by": data.approver, "decided_at": data.decided_at}
        return doc and replace(doc, status=status, comment=data.comment, **verdict)

    return apply


def _request(event: Event[Any]) -> Sequence[str]:
    return (event.data.request,)


def _always(_: Any) -> bool:
    return True


SCOPES: Projection[Any] = Projection(
    name="scopes",
    version=3,
    model=Scope,
    folds={
        QuotaClaimed: Fold(_claimed, _scopes),
        QuotaCommitted: Fold(_committed, _scopes),
        QuotaRefunded: Fold(_refunded, _scopes),
        QuotaAdjusted: Fold(_adjusted, _scopes),
        QuotaLimitSet: Fold(_limited, _limited_scope),
        QuotaThresholdReached: Fold(_reached, _scope),
    },
    resident=_always,
)
CLOCKS: Projection[Any] = Projection(
    name="clocks",
    version=1,
    model=Clock,
    folds={
        QuotaClaimed: Fold(_clock),
        QuotaAdjusted: Fold(_clock),
        QuotaHoursEnding: Fold(_clock),
        QuotaHoursExhausted: Fold(_clock),
        QuotaRefunded: Fold(_no_clock),
        OrderSuspended: Fold(_no_clock),
    },
    resident=_always,
)
QUOTA_REQUESTS: Projection[Any] = Projection(
    name="quota_requests",
    version=1,
    model=QuotaRequest,
    folds={
        QuotaRequestOpened: Fold(_opened, _request),
        QuotaRequestApproved: Fold(_decided("approved"), _request),
        QuotaRequestDenied: Fold(_decided("denied"), _request),
    },
    columns={
        "status": Column(str, lambda doc: doc.status),
        "tenant": Column(str, lambda doc: doc.tenant),
        "scope": Column(str, lambda doc: scope_name(doc.tenant, doc.project)),
        "requested_at": Column(datetime, lambda doc: doc.requested_at),
    },
)
LEDGER = (SCOPES, CLOCKS, QUOTA_REQUESTS)
