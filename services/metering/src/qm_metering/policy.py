"""What an order's time on cards counts as: the document of facts, the table of classes, and the cut between them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Literal

from qm_events.specs import Value
from qm_metering.intervals import Span, chain

Meter = Literal["held", "billable"]


class Kind(StrEnum):
    """What a fact says about the time of an order, earliest reason first where two share an instant."""

    ALLOCATED = "allocated"
    READY = "ready"
    CANCELLED = "cancelled"
    RELEASED = "released"
    EXPIRED = "expired"
    FAILED = "failed"
    PREEMPTED = "preempted"
    QUARANTINED = "quarantined"
    RETURNED = "returned"


class Class(StrEnum):
    """Each card and instant that an order holds is in exactly one."""

    PROVISIONING = "provisioning"
    BILLABLE = "billable"
    RECOVERING = "recovering"
    OVERDUE = "overdue"
    FAILED = "failed"
    PREEMPTED = "preempted"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Rule:
    """Who pays for a class, and why, in words for the one who reads the bill."""

    payer: Literal["project", "platform"]
    why: str

    @property
    def billable(self) -> bool:
        """Whether the project pays."""
        return self.payer == "project"


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of the table of classes, from an instant on. A version that was in force is never edited: another
    rule is a new version, and its number is on every line."""

    version: int
    from_us: int
    rules: Mapping[Class, Rule]
    exceptions: Mapping[tuple[str, Class], Rule] = field(default_factory=dict)
    """By (service model, class)."""

    def rule(self, counts_as: Class, service_model: str) -> Rule:
        """Return who pays for a class."""
        return self.exceptions.get((service_model, counts_as), self.rules[counts_as])


POLICIES: tuple[Policy, ...] = (
    Policy(
        version=1,
        from_us=0,
        rules={
            Class.PROVISIONING: Rule("platform", "the environment was not proven usable yet"),
            Class.BILLABLE: Rule("project", "the environment was ready and nobody had ended it"),
            Class.RECOVERING: Rule("platform", "its end had been asked for; release and cleaning are not billed"),
            Class.OVERDUE: Rule("platform", "it had expired; what follows the promised end is not billed"),
            Class.FAILED: Rule("platform", "the environment had failed"),
            Class.PREEMPTED: Rule("platform", "it had been preempted"),
            Class.QUARANTINED: Rule("platform", "a release step had failed and the cards were isolated"),
        },
    ),
)
"""The versions, the oldest first; each holds until the next."""

ENDS: Mapping[Kind, Class] = {
    Kind.CANCELLED: Class.RECOVERING,
    Kind.RELEASED: Class.RECOVERING,
    Kind.EXPIRED: Class.OVERDUE,
    Kind.FAILED: Class.FAILED,
    Kind.PREEMPTED: Class.PREEMPTED,
    Kind.QUARANTINED: Class.QUARANTINED,
}
"""What ends the bill, and the class of the time from there until the cards are back."""

_RANK = {kind: rank for rank, kind in enumerate(Kind)}


class Moment(Value):
    """One fact that bounds an interval; without an allocation it is about the whole order."""

    at_us: int
    kind: Kind
    fact: str
    """The id of the fact."""
    allocation: str | None = None

    @property
    def rank(self) -> tuple[int, int, str]:
        """The order of moments: by time, then by kind, then by id."""
        return (self.at_us, _RANK[self.kind], self.fact)


class Holding(Value):
    """One allocation of the order: how many cards of each accelerator it holds."""

    allocation: str
    cards: tuple[tuple[str, int], ...]
    """(accelerator, number), by accelerator."""
    service_model: str
    allocated: Moment
    specification: str | None = None
    image: str | None = None
    share: str | None = None
    """What of a card each is; None = all of it."""

    @property
    def total(self) -> int | Fraction:
        """All its cards, slices as the exact part of a card that they are."""
        number = sum(number for _, number in self.cards)
        return number if self.share is None else number * Fraction(self.share)


class Booked(Value):
    """A line on the topic, as far as it is compared with what the facts call for."""

    record: str
    allocation: str
    meter: Meter
    accelerator: str
    cards: int
    from_us: int
    to_us: int
    continues: bool = False
    goes_on: bool = False
    classes: tuple[tuple[str, int], ...] | None = None
    """Of a held line: (class, since), in order."""


class OrderUsage(Value):
    """All that is known about the time of an order. Sets, kept sorted: the same facts give the same bytes."""

    order: str
    tenant: str
    project: str
    holdings: tuple[Holding, ...] = ()
    moments: tuple[Moment, ...] = ()
    lines: tuple[Booked, ...] = ()
    """The lines on the topic `usage` that were not taken back, by id."""
    apart: tuple[Moment, ...] = ()
    """What was dated so far ahead of its own telling that it cannot be: it counts for nothing."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a holding in one class under one policy, with the facts that opened and closed the class."""

    counts_as: Class
    span: Span
    opened: Moment
    closed: Moment | None
    policy: Policy = POLICIES[0]


class Anomaly(Value):
    """Something in the facts that cannot be: counted as nothing, shown to whoever looks."""

    code: Literal["clock_regression", "conflicting_facts", "end_missing", "future_stamp"]
    allocation: str | None
    """None: it is about the whole order."""
    fact: str
    by_us: int = 0
    """How far the clock went back."""
    detail: str


def moments_of(usage: OrderUsage, holding: Holding, *kinds: Kind) -> list[Moment]:
    """Return the moments of these kinds that are about the holding or the whole order, earliest first."""
    return [m for m in usage.moments if m.kind in kinds and m.allocation in (None, holding.allocation)]


def _first(usage: OrderUsage, holding: Holding, *kinds: Kind) -> Moment | None:
    return next(iter(moments_of(usage, holding, *kinds)), None)


def pieces(usage: OrderUsage, holding: Holding) -> list[Piece]:
    """Cut the time of a holding into classes. The pieces touch, and together they are what it holds."""
    ready, end = _first(usage, holding, Kind.READY), _first(usage, holding, *ENDS)
    returned = _first(usage, holding, Kind.RETURNED)
    marks = [(Class.PROVISIONING, holding.allocated)]
    if ready and (end is None or ready.at_us < end.at_us):
        marks.append((Class.BILLABLE, ready))
    if end:
        marks.append((ENDS[end.kind], end))
    spans = chain([moment.at_us for _, moment in marks], returned.at_us if returned else None)
    closers = [*(moment for _, moment in marks[1:]), returned]
    cut = zip(marks, spans, closers, strict=True)
    classes = [Piece(name, span, opened, closed) for (name, opened), span, closed in cut if not span.empty]
    return [part for piece in classes for part in _by_policy(piece)]


def _by_policy(piece: Piece) -> Iterator[Piece]:
    """Cut a piece where another version of the table comes into force."""
    if len(POLICIES) == 1:
        # Asked for each fact of each order.
        yield piece
        return
    ends = [policy.from_us for policy in POLICIES[1:]]
    for policy, until_us in zip(POLICIES, [*ends, None], strict=True):
        reach = [end for end in (piece.span.end_us, until_us) if end is not None]
        span = Span(max(piece.span.start_us, policy.from_us), min(reach, default=None))
        if not span.empty:
            yield replace(piece, span=span, policy=policy)


def held(usage: OrderUsage, holding: Holding) -> Span:
    """Return the whole time of a holding, open until the cards are back."""
    returned = _first(usage, holding, Kind.RETURNED)
    start = holding.allocated.at_us
    return Span(start, None if returned is None else max(returned.at_us, start))


def anomalies(usage: OrderUsage) -> list[Anomaly]:
    """Return what is wrong with the facts of an order, in a fixed order."""
    found = [anomaly for holding in usage.holdings for anomaly in _anomalies(usage, holding)]
    return [*found, *(_dated_ahead(moment) for moment in usage.apart)]


def _dated_ahead(moment: Moment) -> Anomaly:
    detail = f"{moment.kind} is dated after it was said; it counts for nothing until it is said again rightly"
    return Anomaly(code="future_stamp", allocation=moment.allocation, fact=moment.fact, detail=detail)


def _anomalies(usage: OrderUsage, holding: Holding) -> Iterator[Anomaly]:
    ready, returned = moments_of(usage, holding, Kind.READY), moments_of(usage, holding, Kind.RETURNED)
    for earlier, later in (([holding.allocated], ready), ([holding.allocated], returned), (ready, returned)):
        if earlier and later and (back := earlier[0].at_us - later[0].at_us) > 0:
            detail = f"{later[0].kind} is dated before {earlier[0].kind}"
            yield Anomaly(
                code="clock_regression", allocation=holding.allocation, fact=later[0].fact, by_us=back, detail=detail
            )
    for same in (ready, returned):
        for extra in same[1:]:
            detail = f"said {extra.kind} more than once; the earliest counts"
            yield Anomaly(code="conflicting_facts", allocation=holding.allocation, fact=extra.fact, detail=detail)
    if ready and returned and not moments_of(usage, holding, *ENDS):
        detail = "the cards are back but no fact ended the bill yet: billable is not recorded until one does"
        yield Anomaly(code="end_missing", allocation=holding.allocation, fact=returned[0].fact, detail=detail)
