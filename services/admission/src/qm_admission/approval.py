"""Who must agree to an order, and who may. Pure: the directory is handed in.

One rule serves at the time of asking (who is named) and at the time of the decision (who still is), so a person who
lost the role cannot decide and one who got it can. Nobody entitled is a visible state, never a consent.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from qm_events.admission import ApprovalPolicy
from qm_events.ids import PLATFORM
from qm_events.specs import OrderRequest, Role
from qm_service.model import Rejected

Grant = tuple[str, str | None, str]
"""(tenant, project or None for all of them, role)."""


class Rule(Protocol):
    """Who may decide: everybody with the role in the project, and the named ones."""

    @property
    def approver_role(self) -> Role | None: ...
    @property
    def approver_subjects(self) -> Sequence[str]: ...
    @property
    def self_approval(self) -> bool: ...


def asks(policy: ApprovalPolicy, request: OrderRequest) -> bool:
    """Whether all conditions that the policy gives hold for the request."""
    types = set(request.specification.accelerators)
    return (
        (policy.projects is None or request.project in policy.projects)
        and (policy.service_models is None or request.service_model in policy.service_models)
        and (policy.accelerators is None or not types.isdisjoint(policy.accelerators))
        and (policy.cards_at_least is None or request.cards >= policy.cards_at_least)
    )


def first_asking(policies: Iterable[ApprovalPolicy], request: OrderRequest) -> ApprovalPolicy | None:
    """Return the first policy that asks for a person, or None: routine orders pass untouched."""
    return next((policy for policy in policies if asks(policy, request)), None)


def entitled(rule: Rule, request: OrderRequest, subject: str, grants: Iterable[Grant]) -> bool:
    """Whether a subject with these grants may decide on the request."""
    if subject == request.requester and not rule.self_approval:
        return False
    # A named subject who has no grant left in the tenant has gone.
    here = [
        grant for grant in grants if grant[0] == request.tenant or (grant[0] == PLATFORM and grant[2] == Role.OPERATOR)
    ]
    if subject in rule.approver_subjects:
        return bool(here)
    return any(role == rule.approver_role and project in (None, request.project) for _, project, role in here)


def approvers(
    rule: Rule, request: OrderRequest, candidates: Iterable[str], grants_of: Callable[[str], Iterable[Grant]]
) -> tuple[str, ...]:
    """Return who may decide, sorted; `candidates` are those who may have the role."""
    return tuple(
        subject
        for subject in sorted({*candidates, *rule.approver_subjects})
        if entitled(rule, request, subject, grants_of(subject))
    )


def refuse_policies(
    policies: Sequence[ApprovalPolicy], projects: Collection[str], known: Callable[[str], bool]
) -> Rejected | None:
    """Return why these policies cannot be set, or None.

    `projects` are those of the tenant; `known` says whether a subject has a grant in it. A name that means nothing
    would make a policy that silently never asks, or that nobody can answer.
    """
    names = [policy.name for policy in policies]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return _invalid(f"named twice: {', '.join(twice)}", "give each policy its own name")
    for policy in policies:
        if policy.approver_role is None and not policy.approver_subjects:
            return _invalid(f"{policy.name} names nobody who could agree", "give approver_role or approver_subjects")
        if strangers := sorted(subject for subject in policy.approver_subjects if not known(subject)):
            detail = f"{policy.name} names subjects without a role in the tenant: {', '.join(strangers)}"
            return _invalid(detail, "grant them a role first, or name others")
        if unknown := sorted(set(policy.projects or ()) - set(projects)):
            return _invalid(f"{policy.name} names unknown projects: {', '.join(unknown)}", "register them first")
    return None


def _invalid(detail: str, remedy: str) -> Rejected:
    return Rejected("approval-policy-invalid", detail, remedy)
