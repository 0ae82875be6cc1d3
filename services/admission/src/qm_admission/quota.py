"""The arithmetic of the quota ledger: what an order takes, what is left, what is in the way. Pure, in integers.

A scope is a node of the path tenant → tenant/project. What is used of it is only ever the sum of the facts
`quota.claimed` + `quota.adjusted.taken` − `quota.adjusted.returned` − `quota.committed.returned` − `quota.refunded`. A
claim is checked against all scopes of the path and all dimensions before any of it is written, so it is taken whole or
not at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from qm_admission.shares import CARD_SHARES, CARDS, SHARES, name_of, shares_of, together, whole
from qm_events.specs import OrderRequest, PlacedUnit, Violation
from qm_events.units import MICROSECONDS_PER_HOUR

OverQuota = Literal["hold", "refuse"]
Exhausted = Literal["warn", "suspend", "end"]
Quantities = Mapping[str, int]

HOURS = "card_hours_month"
"""The limit of a month, in card-hours. What is taken of it is named with the month and is in card-microseconds."""
_OF_A_MONTH = HOURS + "@"
NOTICE_SECONDS = 3_600
_UNITS = {HOURS: "card_us", CARD_SHARES: f"card/{SHARES}"}
LENT = "lent:"
"""Begins the name of the line, at the tenant, of those who wait to borrow."""

PER_ACCELERATOR = "cards/"
"""Begins the dimension of one accelerator type."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The ledger of one scope. `over_quota` None: never set here, the scope above decides."""

    limits: Quantities = field(default_factory=dict)
    used: Quantities = field(default_factory=dict)
    over_quota: OverQuota | None = None
    settled: Quantities = field(default_factory=dict)
    """What of `used` metering has said: it stays used for the rest of its month."""
    report_only: tuple[str, ...] = ()
    """Limits that are told and not enforced."""
    borrow: Quantities = field(default_factory=dict)
    lend: Quantities = field(default_factory=dict)
    exhausted: Exhausted | None = None
    notice_seconds: int = NOTICE_SECONDS
    reached: Quantities = field(default_factory=dict)
    """The last threshold that was said of a month, in percent."""
    priority_at_most: int | None = None
    """None: see `precedence`."""


EMPTY = Scope()


def scope_name(tenant: str, project: str | None) -> str:
    """Return `tenant` or `tenant/project`."""
    return tenant if project is None else f"{tenant}/{project}"


def path_of(tenant: str, project: str | None) -> tuple[str, ...]:
    """Return the scopes that a claim counts against, the tenant first. A project may be a path: `vision/ocr`."""
    if project is None:
        return (tenant,)
    if "/" not in project:
        return (tenant, f"{tenant}/{project}")
    return (*path_of(tenant, project.rpartition("/")[0]), f"{tenant}/{project}")


def limit_of(scope: Scope, dimension: str) -> int | None:
    """Return the limit on a dimension in the unit in which it is taken; None = it is not limited here."""
    if not dimension.startswith(_OF_A_MONTH):
        return scope.limits.get(dimension)
    limit = scope.limits.get(HOURS)
    return None if limit is None else limit * MICROSECONDS_PER_HOUR


def limited(scope: Scope, amounts: Quantities) -> Iterator[tuple[str, str, int, int]]:
    """Yield (name of the limit, dimension, limit, amount) for all that is limited here and taken."""
    for name, limit in scope.limits.items():
        if name == HOURS:
            for dimension, amount in amounts.items():
                if amount and dimension.startswith(_OF_A_MONTH):
                    yield name, dimension, limit * MICROSECONDS_PER_HOUR, amount
        elif name.startswith(CARDS) and ((shares := name_of(name)) in amounts or shares in scope.used):
            if amount := together(amounts, name):
                yield name, shares, limit * SHARES, amount
        elif amount := amounts.get(name, 0):
            yield name, name, limit, amount


def used_of(scope: Scope, dimension: str) -> int:
    """Return what is used of a dimension, parts of cards together with whole ones."""
    if dimension.startswith(CARD_SHARES):
        return together(scope.used, CARDS + dimension.removeprefix(CARD_SHARES))
    return scope.used.get(dimension, 0)


def _borrow_of(scope: Scope, name: str, dimension: str) -> int:
    return scope.borrow.get(name, 0) * (SHARES if dimension.startswith(CARD_SHARES) else 1)


def amounts_of(request: OrderRequest) -> dict[str, int]:
    """Return what an order takes from each dimension, the full amount of every accelerator type that may serve it."""
    specification, count = request.specification, request.count
    name, cards = CARDS, request.cards
    if specification.slice is not None:
        name, cards = CARD_SHARES, shares_of(request.portion)
    amounts = {
        name: cards,
        "accelerator_memory_mib": specification.accelerator_memory_mib * request.cards,
        "cpu_milli": specification.cpu_milli * count,
        "memory_mib": specification.memory_mib * count,
        "concurrent_orders": 1,
    }
    amounts.update((f"{name}/{accelerator}", cards) for accelerator in specification.accelerators)
    return amounts


def unused(claim: Quantities, units: Iterable[PlacedUnit]) -> dict[str, int]:
    """Return what a claim holds of accelerator types beyond what the placement took."""
    return difference(claim, units)[1]


def difference(claim: Quantities, units: Iterable[PlacedUnit]) -> tuple[dict[str, int], dict[str, int]]:
    """Return what a placement takes of accelerator types beyond a claim, and what the claim holds beyond it."""
    placed: Counter[str] = Counter()
    for unit in units:
        if unit.slice is None:
            placed[PER_ACCELERATOR + unit.accelerator] += len(unit.cards)
        else:
            placed[f"{CARD_SHARES}/{unit.accelerator}"] += shares_of(unit.portion)
    typed = {
        dimension: claim[dimension] for dimension in claim if dimension.startswith((PER_ACCELERATOR, CARD_SHARES + "/"))
    }
    more = {name: lack for name, count in placed.items() if (lack := count - typed.get(name, 0)) > 0}
    return more, {name: surplus for name, held in typed.items() if (surplus := held - placed[name]) > 0}


def subtract(held: Quantities, amounts: Quantities) -> dict[str, int]:
    """Return `held` less `amounts`; what becomes zero is left out."""
    return {dimension: left for dimension in held if (left := held[dimension] - amounts.get(dimension, 0))}


def added(held: Quantities, amounts: Quantities) -> dict[str, int]:
    """Return `held` and `amounts` together."""
    return {name: held.get(name, 0) + amounts.get(name, 0) for name in {**held, **amounts}}


def post(scope: Scope | None, amounts: Quantities, sign: Literal[1, -1]) -> Scope:
    """Return the scope with the amounts taken (1) or given back (-1)."""
    scope = scope or EMPTY
    used = dict(scope.used)
    for dimension, amount in amounts.items():
        used[dimension] = used.get(dimension, 0) + sign * amount
    # Sorted and without zeros: the document must not tell in which order the facts came.
    left = {name: used[name] for name in sorted(used) if used[name]}
    # What `replace(scope, used=left)` gives, in a third of the time: this is done for every claim at every scope.
    kept = (scope.settled, scope.report_only, scope.borrow, scope.lend, scope.exhausted, scope.notice_seconds)
    return Scope(scope.limits, left, scope.over_quota, *kept, scope.reached, scope.priority_at_most)


def settle(scope: Scope, amounts: Quantities, sign: Literal[1, -1]) -> Scope:
    """Return the scope with amounts that metering said (1) or took back (-1)."""
    return replace(scope, settled=post(Scope(used=scope.settled), amounts, sign).used)


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
Room = Callable[[str, Scope, str], int]
"""How much (scope, its ledger, dimension) can have borrowed in all, now."""


def nobody_lends(_: str, __: Scope, ___: str) -> int:
    """Where nothing is borrowed."""
    return 0


def assess(
    path: Iterable[str], scopes: Mapping[str, Scope], amounts: Quantities, ahead: Ahead, room: Room = nobody_lends
) -> tuple[Answer, tuple[Violation, ...]]:
    """Return the answer to a claim of all amounts at all scopes at once, and every limit that speaks against it."""
    if never := never_fits(path, scopes, amounts):
        return Answer.NEVER_FITS, never
    found = in_the_way(path, scopes, amounts, ahead, room)
    if not found:
        return Answer.FITS, ()
    return (Answer.REFUSED if over_quota_of(path, scopes) == "refuse" else Answer.HELD), found


def never_fits(path: Iterable[str], scopes: Mapping[str, Scope], amounts: Quantities) -> tuple[Violation, ...]:
    """Return every limit that the amounts pass even with nothing else in use, and all borrowed that may be."""
    return tuple(
        _violation(name, scope, dimension, most, amount, amount - most)
        for name in path
        if (scope := scopes.get(name))
        for limit_name, dimension, limit, amount in limited(scope, amounts)
        if limit_name not in scope.report_only and amount > (most := limit + _borrow_of(scope, limit_name, dimension))
    )


def in_the_way(
    path: Iterable[str], scopes: Mapping[str, Scope], amounts: Quantities, ahead: Ahead, room: Room = nobody_lends
) -> tuple[Violation, ...]:
    """Return every limit that leaves too little now, or at which an older order waits."""
    found = []
    for name in path:
        scope = scopes.get(name, EMPTY)
        for limit_name, dimension, limit, amount in limited(scope, amounts):
            if limit_name in scope.report_only:
                continue
            borrow = _borrow_of(scope, limit_name, dimension)
            over = used_of(scope, dimension) + amount - limit
            if over > borrow:
                found.append(_violation(name, scope, dimension, limit + borrow, amount, over - borrow))
            elif ahead(name, dimension):
                found.append(_violation(name, scope, dimension, limit + borrow, amount, 0, "older_first"))
            elif borrow and over > 0:
                lent = room(name, scope, limit_name) * (SHARES if dimension != limit_name else 1)
                lacking = max(0, over - lent)
                if lacking or ahead(*pool_of(name, limit_name)):
                    found.append(_violation(name, scope, dimension, limit + borrow, amount, lacking, "lent_out"))
    return tuple(found)


def reported(path: Iterable[str], scopes: Mapping[str, Scope], amounts: Quantities) -> tuple[Violation, ...]:
    """Return every limit that the amounts pass and that only reports."""
    return tuple(
        _violation(name, scope, dimension, limit, amount, over)
        for name in path
        if (scope := scopes.get(name)) and scope.report_only
        for limit_name, dimension, limit, amount in limited(scope, amounts)
        if limit_name in scope.report_only and (over := used_of(scope, dimension) + amount - limit) > 0
    )


def _violation(
    name: str,
    scope: Scope,
    dimension: str,
    limit: int,
    requested: int,
    short_by: int,
    why: Literal["older_first", "lent_out"] | None = None,
) -> Violation:
    return Violation(
        scope=name,
        dimension=dimension,
        limit=limit,
        used=used_of(scope, dimension),
        requested=requested,
        short_by=short_by,
        unit=_UNITS.get(dimension.partition("@")[0].partition("/")[0]),
        why=why,
    )


def available(path: Iterable[str], scopes: Mapping[str, Scope], dimension: str) -> tuple[int, str] | None:
    """Return what is left on the whole path and the scope that leaves the least; None where nothing limits."""
    rooms = [
        (
            max(
                0,
                limit - (whole(scope.used, dimension) if dimension.startswith(CARDS) else scope.used.get(dimension, 0)),
            ),
            name,
        )
        for name in path
        if (scope := scopes.get(name)) and (limit := limit_of(scope, dimension)) is not None
    ]
    return min(rooms) if rooms else None


Block = tuple[str, str, int]
"""(scope, dimension, limit) that an order was held by."""


def pool_of(scope: str, dimension: str) -> tuple[str, str]:
    """Return the line, at the scope above, of those who would borrow."""
    return scope.rpartition("/")[0], LENT + dimension


def blocks(violations: Iterable[Violation]) -> tuple[Block, ...]:
    """Return what holds the order, without the figures that move. Who would borrow stands in two lines: for what others
    lend, and for what his own project gives back."""
    found: list[Block] = []
    for it in violations:
        if it.why == "lent_out":
            # Not the same as a limit in the way: who waits for a loan has to be told of it, to stand in its line.
            found += [(it.scope, it.dimension, ~it.limit), (*pool_of(it.scope, it.dimension), it.limit)]
        else:
            found.append((it.scope, it.dimension, it.limit))
    return tuple(found)


def unchanged(before: Iterable[Block], found: Iterable[Violation]) -> bool:
    """Whether all that held an order holds it still: then nothing new is to be said of it."""
    return set(before) <= set(blocks(found))
