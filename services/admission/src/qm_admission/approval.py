"""Whether approval policies can work: what would never ask, or could never be answered, is refused when set. Pure."""

from collections.abc import Callable, Collection, Iterator, Sequence

from qm_admission.fields import well_formed
from qm_admission.question import levels_of
from qm_events.approval import ApprovalLevel, ApprovalPolicy, Approvers
from qm_service.model import Rejected

Fault = tuple[str, str]
"""What is wrong, and what to do."""
_RANGES = ("cards", "count", "priority", "cost", "duration")


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
        for detail, remedy in _faults(policy, projects, known):
            return _invalid(f"{policy.name} {detail}", remedy)
    return None


def _faults(policy: ApprovalPolicy, projects: Collection[str], known: Callable[[str], bool]) -> Iterator[Fault]:
    yield from _conditions(policy, projects)
    old_form = policy.approver_role or policy.approver_subjects or policy.lapses_after_seconds
    if policy.levels is not None and old_form:
        remedy = "say approver_role, approver_subjects and lapses_after_seconds within the levels"
        yield "has levels and the fields of a single level", remedy
    levels = levels_of(policy)
    for number, level in enumerate(levels, 1):
        for detail, remedy in _level(level, last=number == len(levels), known=known):
            yield (f"{detail} at level {number}" if policy.levels else detail), remedy


def _conditions(policy: ApprovalPolicy, projects: Collection[str]) -> Iterator[Fault]:
    if unknown := sorted(set(policy.projects or ()) - set(projects)):
        yield f"names unknown projects: {', '.join(unknown)}", "register them first"
    if (policy.cost_at_least is None and policy.cost_at_most is None) != (policy.currency is None):
        yield "needs a cost and a currency together", "give currency with cost_at_least or cost_at_most"
    for name in _RANGES:
        end = "_seconds" if name == "duration" else ""
        low, high = getattr(policy, f"{name}_at_least{end}"), getattr(policy, f"{name}_at_most{end}")
        if low is not None and high is not None and low > high:
            yield f"never asks: {name} cannot be at least {low} and at most {high}", "exchange the two"
    for condition in policy.fields or ():
        if not well_formed(condition.field):
            yield _no_field(condition.field)


def _level(level: ApprovalLevel, *, last: bool, known: Callable[[str], bool]) -> Iterator[Fault]:
    for approvers in filter(None, (level.approvers, level.escalate_to)):
        yield from _approvers(approvers, known)
    if (level.rule == "n_of_m") != (level.n is not None):
        yield "gives n without the rule n_of_m, or the rule without n", "give both or none"
    if level.n and _at_most(level.approvers) is not None and level.n > (_at_most(level.approvers) or 0):
        yield f"needs {level.n} but names fewer", "name more approvers, or lower n"
    if level.escalate_after_seconds is None:
        return
    if last and level.escalate_to is None:
        yield "escalates to a next level that does not exist", "give escalate_to, or one more level"
    if level.lapses_after_seconds is not None and level.escalate_after_seconds >= level.lapses_after_seconds:
        yield "escalates when its time is over already", "make escalate_after_seconds shorter"


def _approvers(approvers: Approvers, known: Callable[[str], bool]) -> Iterator[Fault]:
    if not any((approvers.role, approvers.subjects, approvers.groups, approvers.manager, approvers.field)):
        yield "names nobody who could agree", "give a role, subjects, groups, manager or field"
    if strangers := sorted(subject for subject in approvers.subjects or () if not known(subject)):
        detail = f"names subjects without a role in the tenant: {', '.join(strangers)}"
        yield detail, "grant them a role first, or name others"
    if approvers.field and not well_formed(approvers.field):
        yield _no_field(approvers.field)


def _at_most(approvers: Approvers) -> int | None:
    """Return how many people are named at most; None where that depends on the directory or the order."""
    if approvers.role or approvers.groups or approvers.field:
        return None
    return len(set(approvers.subjects or ())) + bool(approvers.manager)


def _no_field(path: str) -> Fault:
    return f"names no field of an order: {path}", "write labels.<name> or parameters.<name>"


def _invalid(detail: str, remedy: str) -> Rejected:
    return Rejected("approval-policy-invalid", detail, remedy)
