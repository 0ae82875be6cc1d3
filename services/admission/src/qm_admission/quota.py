"""The arithmetic of the quota ledger: what an order takes, what is left, what is in the way. Pure, in integers.

A scope is a node of the path tenant → tenant/project. What is used of it is only ever the sum of the facts
`quota.claimed` − `quota.committed.returned` − `quota.refunded`. A claim is checked against all scopes of the path and
all dimensions before any of it is written, so it is taken whole or not at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from qm_events.specs import OrderRequest, PlacedUnit, Violation
from qm_events.units import DnsLabel
from qm_service.model import Rejected

OverQuota = Literal["hold", "refuse"]
Quantities = Mapping[str, int]

PER_ACCELERATOR = "cards/"
DIMENSIONS: Mapping[str, str] = {
    "cards": "whole cards",
    "cards/<accelerator>": "whole cards of one accelerator type",
    "accelerator_memory_mib": "MiB of accelerator memory",
    "cpu_milli": "thousandths of a CPU",
    "memory_mib": "MiB of main memory",
    "concurrent_orders": "orders from admission to release",
}
NOT_ENFORCED = "card_hours_month"
"""Named by the API, but no limit on it is accepted: a limit that is not enforced would be a lie."""
LARGEST_LIMIT = 10**15
"""Below 2**53, so that every reader of JSON sees the same number."""

_ACCELERATOR: TypeAdapter[str] = TypeAdapter(DnsLabel)


@dataclass(frozen=True, slots=True)
class Scope:
    """The ledger of one scope. `over_quota` None: never set here, the scope above decides."""

    limits: Quantities = field(default_factory=dict)
    used: Quantities = field(default_factory=dict)
    over_quota: OverQuota | None = None


EMPTY = Scope()


def scope_name(tenant: str, project: str | None) -> str:
    """Return `tenant` or `tenant/project`."""
    return tenant if project is None else f"{tenant}/{project}"


def path_of(tenant: str, project: str | None) -> tuple[str, ...]:
    """Return the scopes that a claim counts against, the tenant first."""
    return (tenant,) if project is None else (tenant, scope_name(tenant, project))


def amounts_of(request: OrderRequest) -> dict[str, int]:
    """Return what an order takes from each dimension, the full amount of every accelerator type that may serve it."""
    specification, cards, count = request.specification, request.cards, request.count
    amounts = {
        "cards": cards,
        "accelerator_memory_mib": specification.accelerator_memory_mib * cards,
        "cpu_milli": specification.cpu_milli * count,
        "memory_mib": specification.memory_mib * count,
        "concurrent_orders": 1,
    }
    amounts.update((PER_ACCELERATOR + accelerator, cards) for accelerator in specification.accelerators)
    return amounts


def unused(claim: Quantities, units: Iterable[PlacedUnit]) -> dict[str, int]:
    """Return what a claim holds of accelerator types beyond what the placement took."""
    placed: Counter[str] = Counter()
    for unit in units:
        placed[PER_ACCELERATOR + unit.accelerator] += len(unit.cards)
    typed = {dimension: claim[dimension] for dimension in claim if dimension.startswith(PER_ACCELERATOR)}
    return {dimension: surplus for dimension, held in typed.items() if (surplus := held - placed[dimension]) > 0}


def subtract(held: Quantities, amounts: Quantities) -> dict[str, int]:
    """Return `held` less `amounts`; what becomes zero is left out."""
    return {dimension: left for dimension in held if (left := held[dimension] - amounts.get(dimension, 0))}


def post(scope: Scope | None, amounts: Quantities, sign: Literal[1, -1]) -> Scope:
    """Return the scope with the amounts taken (1) or given back (-1)."""
    scope = scope or EMPTY
    used = dict(scope.used)
    for dimension, amount in amounts.items():
        used[dimension] = used.get(dimension, 0) + sign * amount
    # Sorted and without zeros: the document must not tell in which order the facts came.
    return replace(scope, used={dimension: used[dimension] for dimension in sorted(used) if used[dimension]})


def over_quota_of(path: Iterable[str], scopes: Mapping[str, Scope]) -> OverQuota:
    """Return what happens to an order that does not fit now: the nearest scope that says so decides."""
    said = [scope.over_quota for name in path if (scope := scopes.get(name)) and scope.over_quota]
    return said[-1] if said else "hold"


def never_fits(path: Iterable[str], scopes: Mapping[str, Scope], amounts: Quantities) -> tuple[Violation, ...]:
    """Return every limit that the amounts pass even with nothing else in use."""
    return tuple(
        _violation(name, scope, dimension, amounts[dimension], amounts[dimension] - limit)
        for name in path
        if (scope := scopes.get(name))
        for dimension, limit in scope.limits.items()
        if amounts.get(dimension, 0) > limit
    )


def in_the_way(
    path: Iterable[str], scopes: Mapping[str, Scope], amounts: Quantities, ahead: Callable[[str, str], bool]
) -> tuple[Violation, ...]:
    """Return every limit that leaves too little now, or at which an older order waits (`ahead(scope, dimension)`)."""
    found = []
    for name in path:
        scope = scopes.get(name, EMPTY)
        for dimension, limit in scope.limits.items():
            if amount := amounts.get(dimension, 0):
                short = scope.used.get(dimension, 0) + amount - limit
                if short > 0 or ahead(name, dimension):
                    found.append(_violation(name, scope, dimension, amount, max(short, 0)))
    return tuple(found)


def _violation(name: str, scope: Scope, dimension: str, requested: int, short_by: int) -> Violation:
    return Violation(
        scope=name,
        dimension=dimension,
        limit=scope.limits[dimension],
        used=scope.used.get(dimension, 0),
        requested=requested,
        short_by=short_by,
    )


def available(path: Iterable[str], scopes: Mapping[str, Scope], dimension: str) -> tuple[int, str] | None:
    """Return what is left on the whole path and the scope that leaves the least; None where nothing limits."""
    rooms = [
        (max(0, limit - scope.used.get(dimension, 0)), name)
        for name in path
        if (scope := scopes.get(name)) and (limit := scope.limits.get(dimension)) is not None
    ]
    return min(rooms) if rooms else None


def refuse_limits(limits: Quantities) -> Rejected | None:
    """Return why these limits cannot be set, or None."""
    if NOT_ENFORCED in limits:
        return Rejected(
            "quota-dimension-not-enforced",
            f"a limit on {NOT_ENFORCED} is not enforced in this release, so none is accepted",
            f"leave {NOT_ENFORCED} out; limit cards instead",
        )
    if unknown := sorted(name for name in limits if not _known(name)):
        return Rejected("quota-dimension-unknown", f"no such dimension: {', '.join(unknown)}", known_dimensions())
    if wrong := sorted(name for name, limit in limits.items() if not 0 <= limit <= LARGEST_LIMIT):
        return Rejected("quota-limit-out-of-range", f"out of range: {', '.join(wrong)}", f"0 to {LARGEST_LIMIT}")
    return None


def known_dimensions() -> str:
    """Return the dimensions and their units, in words."""
    return "dimensions are " + ", ".join(f"{name} ({unit})" for name, unit in DIMENSIONS.items())


def _known(name: str) -> bool:
    if not name.startswith(PER_ACCELERATOR):
        return name in DIMENSIONS
    try:
        return bool(_ACCELERATOR.validate_python(name.removeprefix(PER_ACCELERATOR)))
    except ValidationError:
        return False
