"""Asking for quota: a project asks, somebody above decides, and the limit changes in the same step. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from qm_admission import dimensions
from qm_admission.quota import Quantities
from qm_events import EventData
from qm_events.admission import QuotaLimitSet
from qm_events.admission_quota import QuotaRequestApproved, QuotaRequestDenied, QuotaRequestOpened
from qm_events.envelope import utc_text
from qm_events.specs import Amounts
from qm_service.model import Rejected

OPEN_MOST = 20
"""Open requests of one scope: more would be noise to who decides."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the book keeps it."""

    opened: QuotaRequestOpened
    decided: QuotaRequestApproved | QuotaRequestDenied | None = None


@dataclass(frozen=True, slots=True)
class AskQuota:
    """Ask that the named limits become these; project None is the tenant itself."""

    request: str
    tenant: str
    project: str | None
    limits: Quantities
    reason: str
    requester: str


@dataclass(frozen=True, slots=True)
class DecideQuota:
    """Grant a request, as it was asked or with other limits, or refuse it."""

    request: str
    verdict: Literal["approve", "deny"]
    approver: str
    limits: Quantities | None = None
    comment: str = ""


def ask(limits: Quantities, asked: Mapping[str, Asked], command: AskQuota, now: Any) -> list[EventData] | Rejected:
    """Return the request; refused where it asks for nothing that is limited."""
    if refused := dimensions.refuse_limits(command.limits):
        return refused
    if not any(wanted > limits.get(dimension, wanted) for dimension, wanted in command.limits.items()):
        return Rejected(
            "quota-request-pointless",
            "none of these is more than the limit that holds now",
            "name a dimension that is limited, and more than its limit",
        )
    mine = [it for it in asked.values() if it.decided is None and it.opened.project == command.project]
    if len(mine) >= OPEN_MOST:
        return Rejected(
            "quota-requests-too-many", f"{len(mine)} requests are open here", "wait until some of them are decided"
        )
    return [
        QuotaRequestOpened(
            request=command.request,
            tenant=command.tenant,
            project=command.project,
            limits=Amounts(values=dict(sorted(command.limits.items()))),
            reason=command.reason,
            requester=command.requester,
            requested_at=now,
        )
    ]


def decided(
    held: QuotaLimitSet | None, asked: Asked | None, command: DecideQuota, now: Any
) -> list[EventData] | Rejected:
    """Return the decision and, where it grants, the limits that hold from now on; `held` is what was set last."""
    if asked is None:
        return Rejected("quota-request-not-open", "there is no such request", "read GET /v1/quota-requests again")
    opened = asked.opened
    if command.approver == opened.requester:
        return Rejected("quota-request-own", "nobody decides on a request of his own", "ask another administrator")
    if asked.decided is not None:
        said = "approved" if isinstance(asked.decided, QuotaRequestApproved) else "denied"
        detail = f"{asked.decided.approver} {said} it at {utc_text(asked.decided.decided_at)}"
        return Rejected("quota-request-decided", detail, "nothing to do: the decision stands; ask anew to change it")
    common = {
        "request": opened.request,
        "tenant": opened.tenant,
        "project": opened.project,
        "approver": command.approver,
        "comment": command.comment,
        "decided_at": now,
    }
    if command.verdict == "deny":
        return [QuotaRequestDenied(**common)]
    granted = dict(opened.limits.values if command.limits is None else command.limits)
    if refused := dimensions.refuse_limits(granted):
        return refused
    held = held or QuotaLimitSet(tenant=opened.tenant, project=opened.project, limits=Amounts())
    limits = Amounts(values=dict(sorted((held.limits.values | granted).items())))
    return [
        QuotaRequestApproved(**common, granted=Amounts(values=granted)),
        held.model_copy(update={"limits": limits}),
    ]
