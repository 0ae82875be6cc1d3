"""The arithmetic of the quota ledger: what an order takes, what is left, what is in the way. Pure, in integers.

A scope is a node of the path tenant → tenant/project. What is used of it is only ever the sum of the facts
`quota.claimed` − `quota.committed.returned` − `quota.refunded`. A claim is checked against all scopes of the path and
all dimensions before any of it is written, so it is taken whole or not at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from qm_events.specs import OrderRequest, PlacedUnit, Violation

OverQuota = Literal["hold", "refuse"]
Quantities = Mapping[str, int]

PER_ACCELERATOR = "cards/"
"""Begins the dimension of one accelerator type."""


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
    return Scope(scope.limits, {name: used[name] for name in sorted(used) if used[name]}, scope.over_quota)


def over_quota_of(path: Iterable[str], scopes: Mapping[str, Scope]) -> OverQuota:
    """Return what happens to an order that does not fit now: the nearest scope that says so decides."""
    said = [scope.over_quota for name in path if (scope := scopes.get(name)) and scope.over_quota]
    return said[-1] if said else "hold"


class Answer(StrEnum):
    """What the ledger says to a claim."""

    FITS = "fits"
    NEVER_FITS = "never-fits"
    HELD = "held"
    REFUSED = "refused"


Ahead = Callable[[str, str], bool]
"""Whether an older order waits for (scope, dimension)."""


def assess(
    path: Iterable[str], scopes: Mapping[str, Scope], amounts: Quantities, ahead: Ahead
) -> tuple[Answer, tuple[Violation, ...]]:
    """Return the answer to a claim of all amounts at all scopes at once, and every limit that speaks against it."""
    if never := never_fits(path, scopes, amounts):
        return Answer.NEVER_FITS, never
    found = in_the_way(path, scopes, amounts, ahead)
    if not found:
        return Answer.FITS, ()
    return (Answer.REFUSED if over_quota_of(path, scopes) == "refuse" else Answer.HELD), found


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
    path: Iterable[str], scopes: Mapping[str, Scope], amounts: Quantities, ahead: Ahead
) -> tuple[Violation, ...]:
    """Return every limit that leaves too little now, or at which an older order waits."""
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


Block = tuple[str, str, int]
"""(scope, dimension, limit) that an order was held by."""


def blocks(violations: Iterable[Violation]) -> tuple[Block, ...]:
    """Return what holds the order, without the figures that move."""
    return tuple((it.scope, it.dimension, it.limit) for it in violations)


def unchanged(before: Iterable[Block], found: Iterable[Violation]) -> bool:
    """Whether all that held an order holds it still: then nothing new is to be said of it."""
    return set(before) <= set(blocks(found))
