"""Whether a policy is about an order. Pure.

What cannot be known (a requester of whom nothing was heard yet, a cost without a price) is taken against letting pass:
a policy that asks then asks, and one that lets pass without a question does not.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any

from qm_admission.bench import holds
from qm_admission.fields import value_of
from qm_events.admission import Submission
from qm_events.approval import ApprovalPolicy, FieldCondition
from qm_events.specs import OrderRequest
from qm_service.model import Context

Answer = bool | None
"""None: cannot be known."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An order, and what is known around it."""

    request: OrderRequest
    seconds: float
    """How long it lasts; infinite without an end."""
    grants: Iterable[tuple[str, str | None, str]] | None
    """Of the requester; None where he is not known."""
    manager: str | None
    prices: dict[str, Fraction]
    """Of a card-hour, by currency: the dearest of the offerings that fit."""


def subject_of(submission: Submission, ctx: Context) -> Subject:
    """Return what conditions look at."""
    request = submission.request
    doc = ctx.docs.resident("subjects").get(request.requester)
    position = ctx.docs.resident("organisation").get(f"{request.tenant}/{request.requester}")
    return Subject(
        request=request,
        seconds=_seconds(submission),
        grants=doc.grants if doc else None,
        manager=position.manager if position else None,
        prices=ctx.index.prices.of(request.specification.name, request.service_model),
    )


def _seconds(submission: Submission) -> float:
    request, lasts = submission.request, inf
    if request.duration_seconds is not None:
        lasts = request.duration_seconds
    if request.expires_at is not None:
        lasts = min(lasts, max(0, -(-(request.expires_at - submission.submitted_at).total_seconds() // 1)))
    return lasts


def asks(policy: ApprovalPolicy, order: Subject) -> bool:
    """Tell whether all conditions that the policy gives hold."""
    unknown = policy.levels != ()
    return all(unknown if answer is None else answer for answer in _answers(policy, order))


def first_asking(policies: Iterable[ApprovalPolicy], submission: Submission, ctx: Context) -> ApprovalPolicy | None:
    """Return the first policy that is about the order, or None: routine orders pass untouched."""
    policies = tuple(policies)
    order = subject_of(submission, ctx) if policies else None
    return next((policy for policy in policies if order and asks(policy, order)), None)


def _answers(policy: ApprovalPolicy, order: Subject) -> Iterable[Answer]:
    """Yield the answer to each condition that is given."""
    for name, answer in _ONE_OF.items():
        if (wanted := getattr(policy, name)) is not None:
            yield answer(wanted, order)
    for name, figure in _FIGURES.items():
        at_least, at_most = _bounds(policy, name)
        if at_least is not None or at_most is not None:
            value = figure(policy, order)
            yield (
                None
                if value is None
                else (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
            )
    for condition in policy.fields or ():
        yield _field(condition, order.request)


def _bounds(policy: ApprovalPolicy, name: str) -> tuple[Any, Any]:
    base, _, unit = name.partition(" ")
    end = f"_{unit}" if unit else ""
    return getattr(policy, f"{base}_at_least{end}"), getattr(policy, f"{base}_at_most{end}")


def _roles(wanted: Any, order: Subject) -> Answer:
    if order.grants is None:
        return None
    return any(holds(role, order.request, order.grants) for role in wanted)


_ONE_OF: dict[str, Callable[[Any, Subject], Answer]] = {
    "projects": lambda wanted, order: order.request.project in wanted,
    "service_models": lambda wanted, order: order.request.service_model in wanted,
    "accelerators": lambda wanted, order: not set(order.request.specification.accelerators).isdisjoint(wanted),
    "specifications": lambda wanted, order: order.request.specification.name in wanted,
    "images": lambda wanted, order: order.request.image in wanted,
    "requester_roles": _roles,
    "requester_managers": lambda wanted, order: order.manager in wanted,
}


def _cost(policy: ApprovalPolicy, order: Subject) -> Any | None:
    price = order.prices.get(policy.currency or "")
    if price is None:
        return None
    return inf if order.seconds == inf else price * order.request.portion * Fraction(order.seconds) / 3_600


_FIGURES: dict[str, Callable[[ApprovalPolicy, Subject], Any | None]] = {
    "cards": lambda _, order: order.request.portion,
    "count": lambda _, order: order.request.count,
    "duration seconds": lambda _, order: order.seconds,
    "priority": lambda _, order: order.request.priority,
    "cost": _cost,
}


def _field(condition: FieldCondition, request: OrderRequest) -> Answer:
    value = value_of(request, condition.field)
    if value is None:
        return False
    if condition.any_of is not None and not any(type(one) is type(value) and one == value for one in condition.any_of):
        return False
    if condition.at_least is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= condition.at_least
