"""The rules of a tenant: its limits and its approval policies, stream `quota/<tenant>`. Pure.

A change is a full replacement. A limit below what is in use is lawful: nothing is taken away, nothing new is claimed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qm_admission import approval, dimensions
from qm_admission.quota import OverQuota, Quantities
from qm_events import EventData
from qm_events.admission import ApprovalPolicySet, QuotaLimitSet
from qm_events.approval import ApprovalPolicy
from qm_events.specs import Amounts
from qm_service.model import Context, Decider, Decision


@dataclass(frozen=True, slots=True)
class Book:
    """What was last set."""

    limits: Mapping[str | None, tuple[Quantities, OverQuota]] = field(default_factory=dict)
    """By project; None is the tenant itself."""
    policies: tuple[ApprovalPolicy, ...] = ()


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Replace all limits of a scope; project None is the tenant itself."""

    tenant: str
    project: str | None
    limits: Quantities
    over_quota: OverQuota = "hold"


@dataclass(frozen=True, slots=True)
class SetPolicies:
    """Replace the policies of a tenant; the first that matches asks."""

    tenant: str
    policies: tuple[ApprovalPolicy, ...]


def decide(state: Book, command: SetLimits | SetPolicies, ctx: Context) -> Decision:
    """Return the change; nothing where it is so already."""
    if isinstance(command, SetPolicies):
        return _set_policies(state, command, ctx)
    if refused := dimensions.refuse_limits(command.limits):
        return refused
    limits = dict(sorted(command.limits.items()))
    if state.limits.get(command.project) == (limits, command.over_quota):
        return []
    return [
        QuotaLimitSet(
            tenant=command.tenant,
            project=command.project,
            limits=Amounts(values=limits),
            over_quota=command.over_quota,
        )
    ]


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


def evolve(state: Book, data: EventData) -> Book:
    """Return the rules after a change."""
    match data:
        case QuotaLimitSet():
            return replace(state, limits={**state.limits, data.project: (data.limits.values, data.over_quota)})
        case ApprovalPolicySet():
            return replace(state, policies=data.policies)
        case _:
            raise TypeError(f"{type(data).__name__} is no fact of quota/<tenant>")


BOOKS: Decider[Any] = Decider(kind="quota", initial=Book(), decide=decide, evolve=evolve)
