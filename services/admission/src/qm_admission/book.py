"""The rules of a tenant: its limits, its approval policies and the requests for quota, stream `quota/<tenant>`. Pure.

A change is a full replacement. A limit below what is in use is lawful: nothing is taken away, nothing new is claimed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qm_admission import approval, dimensions, requests, thresholds
from qm_admission.quota import NOTICE_SECONDS, Exhausted, OverQuota, Quantities
from qm_admission.requests import Asked, AskQuota, DecideQuota
from qm_events import EventData
from qm_events.admission import ApprovalPolicySet, QuotaLimitSet
from qm_events.admission_quota import (
    QuotaRequestApproved,
    QuotaRequestDenied,
    QuotaRequestOpened,
    QuotaThresholdReached,
)
from qm_events.approval import ApprovalPolicy
from qm_events.specs import Amounts
from qm_service.model import Context, Decider, Decision


@dataclass(frozen=True, slots=True)
class Book:
    """What was last set."""

    limits: Mapping[str | None, QuotaLimitSet] = field(default_factory=dict)
    """By project; None is the tenant itself."""
    policies: tuple[ApprovalPolicy, ...] = ()
    requests: Mapping[str, Asked] = field(default_factory=dict)
    said: thresholds.Said = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Replace all limits of a scope; project None is the tenant itself."""

    tenant: str
    project: str | None
    limits: Quantities
    over_quota: OverQuota = "hold"
    report_only: tuple[str, ...] = ()
    borrow: Quantities = field(default_factory=dict)
    lend: Quantities = field(default_factory=dict)
    hours_exhausted: Exhausted = "warn"
    notice_seconds: int = NOTICE_SECONDS
    priority_at_most: int | None = None


@dataclass(frozen=True, slots=True)
class SetPolicies:
    """Replace the policies of a tenant; the first that matches asks."""

    tenant: str
    policies: tuple[ApprovalPolicy, ...]


def _set_limits(state: Book, command: SetLimits, _: Context) -> Decision:
    refused = (
        dimensions.refuse_limits(command.limits)
        or dimensions.refuse_reports(command.limits, command.report_only)
        or dimensions.refuse_lending(command.limits, command.borrow, command.lend, command.project)
    )
    if refused:
        return refused
    wanted = QuotaLimitSet(
        tenant=command.tenant,
        project=command.project,
        limits=_sorted(command.limits),
        over_quota=command.over_quota,
        report_only=tuple(sorted(command.report_only)) or None,
        borrow=_sorted(command.borrow) if command.borrow else None,
        lend=_sorted(command.lend) if command.lend else None,
        hours_exhausted=None if command.hours_exhausted == "warn" else command.hours_exhausted,
        notice_seconds=None if command.notice_seconds == NOTICE_SECONDS else command.notice_seconds,
        priority_at_most=command.priority_at_most,
    )
    return [] if state.limits.get(command.project) == wanted else [wanted]


def _sorted(amounts: Quantities) -> Amounts:
    return Amounts(values=dict(sorted(amounts.items())))


def _set_policies(state: Book, command: SetPolicies, ctx: Context) -> Decision:
    tenant, subjects = ctx.docs.resident("tenants").get(command.tenant), ctx.docs.resident("subjects")
    projects = tenant.projects if tenant else ()

    def known(subject: str) -> bool:
        doc = subjects.get(subject)
        return doc is not None and any(grant[0] == command.tenant for grant in doc.grants)

    if refused := approval.refuse_policies(command.policies, projects, known):
        return refused
    if state.policies == command.policies:
        return []
    return [ApprovalPolicySet(tenant=command.tenant, policies=command.policies)]


def _ask(state: Book, command: AskQuota, ctx: Context) -> Decision:
    held = state.limits.get(command.project)
    return requests.ask(held.limits.values if held else {}, state.requests, command, ctx.now)


def _decide(state: Book, command: DecideQuota, ctx: Context) -> Decision:
    asked = state.requests.get(command.request)
    held = state.limits.get(asked.opened.project) if asked else None
    return requests.decided(held, asked, command, ctx.now)


def _note(state: Book, command: thresholds.Note, ctx: Context) -> Decision:
    return thresholds.note(state.said, command, ctx)


DECISIONS: Mapping[type[Any], Callable[[Book, Any, Context], Decision]] = {
    SetLimits: _set_limits,
    SetPolicies: _set_policies,
    AskQuota: _ask,
    DecideQuota: _decide,
    thresholds.Note: _note,
}


def decide(state: Book, command: Any, ctx: Context) -> Decision:
    """Return the change; nothing where it is so already."""
    return DECISIONS[type(command)](state, command, ctx)


def evolve(state: Book, data: EventData) -> Book:
    """Return the rules after a change."""
    match data:
        case QuotaLimitSet():
            return replace(state, limits={**state.limits, data.project: data})
        case ApprovalPolicySet():
            return replace(state, policies=data.policies)
        case QuotaRequestOpened():
            return replace(state, requests={**state.requests, data.request: Asked(data)})
        case QuotaRequestApproved() | QuotaRequestDenied():
            decided = replace(state.requests[data.request], decided=data)
            return replace(state, requests={**state.requests, data.request: decided})
        case QuotaThresholdReached():
            return replace(state, said=thresholds.remember(state.said, data))
        case _:
            raise TypeError(f"{type(data).__name__} is no fact of quota/<tenant>")


BOOKS: Decider[Any] = Decider(kind="quota", initial=Book(), decide=decide, evolve=evolve)
