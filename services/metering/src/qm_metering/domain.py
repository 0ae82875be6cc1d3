"""What goes on the topic `usage`: the closed intervals of an allocation, each once, and exact corrections.

The lines that the facts of an order call for follow from the facts alone, cut where months end: whatever the order of
arrival, the same lines count in the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from qm_events.ids import derived_id
from qm_events.metering import UsageCorrected, UsageLine, UsageRate, UsageRecorded, UsageStretch
from qm_metering.intervals import Span, instant, micros
from qm_metering.months import UTC_ALWAYS, Zones, cut
from qm_metering.periods import reported_in
from qm_metering.policy import Booked, Holding, Kind, Meter, OrderUsage, Piece, held, pieces
from qm_metering.prices import Book
from qm_service.model import Context, Decider


@dataclass(frozen=True, slots=True)
class Metered:
    """The time of one holding on one meter; `final` when no fact that may still come in order can change it."""

    meter: Meter
    span: Span
    final: bool
    parts: tuple[Piece, ...]
    """Its classes."""


@dataclass(frozen=True, slots=True)
class RecordUsage:
    """Bring the lines of an allocation on the topic to exactly these."""

    lines: tuple[UsageRecorded, ...]
    tenant: str = ""


# Each fact of an order asks anew for the ids of the same lines.
_line_id = lru_cache(maxsize=16_384)(derived_id)


@dataclass(frozen=True, slots=True)
class Lines:
    """State of a stream `usage/<allocation>`, by what a line says (`key_of`)."""

    counting: Mapping[str, UsageRecorded] = field(default_factory=dict)
    taken_back: Mapping[str, int] = field(default_factory=dict)
    """How often."""


def metered(usage: OrderUsage, holding: Holding) -> Iterator[Metered]:
    """Yield what a holding shows on each meter. Billable time waits for the fact that ended it."""
    whole, classes = held(usage, holding), tuple(pieces(usage, holding))
    if not whole.empty:
        yield Metered("held", whole, whole.end_us is not None, classes)
    for piece in classes:
        if piece.policy.rule(piece.counts_as, holding.service_model).billable:
            closed = piece.closed is not None and piece.closed.kind is not Kind.RETURNED
            yield Metered("billable", piece.span, closed, (piece,))


def lines_of(
    usage: OrderUsage,
    holding: Holding,
    zones: Zones = UTC_ALWAYS,
    closed_until_us: int = 0,
    book: Book | None = None,
) -> tuple[UsageRecorded, ...]:
    """Return the lines that a holding calls for: what is final, and what still runs as far as months are closed. They
    end where a month ends or the price changes."""
    return tuple(
        _line(usage, holding, meter, Span(since, until), month, kind).model_copy(update={"rates": rate and (rate,)})
        for meter in metered(usage, holding)
        for month, start, end in cut(meter.span.start_us, _until(meter, closed_until_us), zones)
        for since, until, rate in rated(meter, start, end, book)
        for kind in holding.cards
    )


def rated(meter: Metered, start_us: int, end_us: int, book: Book | None) -> Iterator[tuple[int, int, UsageRate | None]]:
    """Yield (from, to, rate) of a part of a meter; only what is billable has a price."""
    if meter.meter == "held" or book is None:
        return iter([(start_us, end_us, None)])
    return book.cut(start_us, end_us, meter.span.start_us)


def _until(meter: Metered, closed_until_us: int) -> int:
    end_us = meter.span.end_us
    if meter.final and end_us is not None:
        return end_us
    return closed_until_us if end_us is None else min(end_us, closed_until_us)


def _line(
    usage: OrderUsage, holding: Holding, meter: Metered, span: Span, month: str, kind: tuple[str, int]
) -> UsageRecorded:
    (accelerator, cards), start_us, end_us = kind, span.start_us, span.end_us or 0
    stretches = tuple(_stretches(meter, span, holding.service_model)) if meter.meter == "held" else None
    return UsageRecorded(
        record="",
        allocation=holding.allocation,
        order=usage.order,
        meter=meter.meter,
        accelerator=accelerator,
        service_model=holding.service_model,
        cards=cards,
        share=holding.share,
        from_at=instant(start_us),
        to_at=instant(end_us),
        card_us=cards * (end_us - start_us),
        specification=holding.specification,
        continues=start_us > meter.span.start_us or None,
        goes_on=meter.span.end_us is None or end_us < meter.span.end_us or not meter.final or None,
        period=month,
        policy=meter.parts[0].policy.version,
        **_bounds(meter, end_us),
        stretches=stretches,
    )


def _bounds(meter: Metered, end_us: int) -> dict[str, Any]:
    """Return the facts that bound a billable line; a held one has them by stretch."""
    if meter.meter == "held":
        return {}
    (piece,) = meter.parts
    ended = piece.closed if meter.final and end_us == meter.span.end_us else None
    return {"began_by": piece.opened.fact, "ended_by": ended.fact if ended else None}


def _stretches(meter: Metered, line: Span, service_model: str) -> Iterator[UsageStretch]:
    start_us, end_us = line.start_us, line.end_us or 0
    for piece in meter.parts:
        ends = end_us if piece.span.end_us is None else min(piece.span.end_us, end_us)
        if (since := max(piece.span.start_us, start_us)) < ends:
            whole = piece.closed is not None and piece.span.end_us == ends
            yield UsageStretch(
                counts_as=piece.counts_as,
                payer=piece.policy.rule(piece.counts_as, service_model).payer,
                from_at=instant(since),
                to_at=instant(ends),
                opened_by=piece.opened.fact,
                closed_by=piece.closed.fact if whole and piece.closed else None,
            )


def fits(line: Booked, holding: Holding, meter: Metered) -> bool:
    """Whether a line on the topic is a part of what a meter shows, bounded as it is or where a month ends."""
    span = meter.span
    if (line.allocation, line.meter) != (holding.allocation, meter.meter):
        return False
    if (line.accelerator, line.cards) not in holding.cards:
        return False
    begins = line.from_us == span.start_us or (line.continues and line.from_us > span.start_us)
    ends = line.to_us == span.end_us or (line.goes_on and (span.end_us is None or line.to_us < span.end_us))
    return begins and ends and line.classes in (None, _classes(meter, line))


def _classes(meter: Metered, line: Booked) -> tuple[tuple[str, int], ...]:
    span = Span(line.from_us, line.to_us)
    reach = ((piece, max(piece.span.start_us, span.start_us)) for piece in meter.parts)
    return tuple(
        (str(piece.counts_as), since)
        for piece, since in reach
        if since < line.to_us and (piece.span.end_us is None or piece.span.end_us > since)
    )


def gaps(span: Span, lines: Sequence[Booked]) -> Iterator[Span]:
    """Yield what of a span the lines leave out; they do not overlap."""
    reached = span.start_us
    for line in sorted(lines, key=lambda line: line.from_us):
        if line.from_us > reached:
            yield Span(reached, line.from_us)
        reached = line.to_us
    if not (rest := Span(reached, span.end_us)).empty:
        yield rest


def _compared(usage: OrderUsage) -> Iterator[tuple[Holding, Metered, str, int, list[Booked]]]:
    """Yield each meter of each accelerator with the lines on the topic that are right for it."""
    for holding in usage.holdings:
        for meter in metered(usage, holding):
            right = [line for line in usage.lines if fits(line, holding, meter)]
            for accelerator, cards in holding.cards:
                yield holding, meter, accelerator, cards, [one for one in right if one.accelerator == accelerator]


Compared = Sequence[tuple[Holding, Metered, str, int, list[Booked]]]


def _wrong(usage: OrderUsage, compared: Compared) -> frozenset[str]:
    right = {line.record for *_, lines in compared for line in lines}
    return frozenset(line.record for line in usage.lines) - right


def _missing(compared: Compared) -> Iterator[tuple[Holding, Metered, str, int, Span]]:
    for holding, meter, accelerator, cards, lines in compared:
        for gap in gaps(meter.span, lines):
            yield holding, meter, accelerator, cards, gap


def stale(usage: OrderUsage) -> frozenset[str]:
    """Return the ids of the lines that are about to be taken back."""
    return _wrong(usage, list(_compared(usage)))


def unrecorded(usage: OrderUsage) -> Iterator[tuple[Holding, Metered, str, int, Span]]:
    """Yield what counts but is not on the topic, by accelerator: what runs, and what is on its way there."""
    return _missing(list(_compared(usage)))


def behind(usage: OrderUsage, closed_until_us: int = 0) -> bool:
    """Whether the topic does not say yet what the facts of the order, and the months that are closed, call for."""
    compared = list(_compared(usage))
    missing = any(gap.start_us < _until(meter, closed_until_us) for _, meter, _, _, gap in _missing(compared))
    return missing or bool(_wrong(usage, compared))


def live(usage: OrderUsage) -> bool:
    """Whether something of the order is not on the topic yet: it runs, or a line is on its way."""
    compared = list(_compared(usage))
    return any(True for _ in _missing(compared)) or bool(_wrong(usage, compared))


def key_of(line: UsageLine) -> str:
    """Return the id of a line that is said for the first time: it follows from what the line says."""
    span = (micros(line.from_at), micros(line.to_at))
    classes = [f"{it.counts_as}@{it.from_at.isoformat()}" for it in line.stretches or ()]
    base = ("usage", line.order, line.allocation, line.meter, *span, line.accelerator, line.cards)
    return _line_id(*base, *classes)


def decide(state: Lines, command: RecordUsage, ctx: Context) -> list[UsageLine]:
    """Take back what is no longer called for, then record what is missing; nothing when all is said."""
    wanted = {key_of(line): line for line in command.lines}
    wrong = [_correction(line, command.tenant, ctx) for key, line in state.counting.items() if key not in wanted]
    new = [
        _reported(line.model_copy(update={"record": _again(key, state)}), command.tenant, ctx)
        for key, line in wanted.items()
        if key not in state.counting
    ]
    return [*wrong, *new]


def _again(key: str, state: Lines) -> str:
    """Who takes back a line takes back that one: said again, it is another."""
    times = state.taken_back.get(key, 0)
    return _line_id(key, times) if times else key


def _reported(line: UsageRecorded, tenant: str, ctx: Context) -> UsageRecorded:
    if line.period is None or (period := reported_in(ctx.docs, tenant, line.period)) == line.period:
        return line
    return line.model_copy(update={"period": period, "used_in": line.period})


def _correction(line: UsageRecorded, tenant: str, ctx: Context) -> UsageCorrected:
    told = {**dict(line), "record": derived_id("reversal", line.record)}
    if line.period is not None and (period := reported_in(ctx.docs, tenant, line.period)) != line.period:
        told |= {"period": period, "used_in": line.used_in or line.period}
    return UsageCorrected.model_construct(**told, reverses=line.record)


def evolve(state: Lines, fact: Any) -> Lines:
    """Fold one fact of a stream."""
    match fact:
        case UsageRecorded():
            return replace(state, counting={**state.counting, key_of(fact): fact})
        case UsageCorrected():
            key = key_of(fact)
            counting = {known: line for known, line in state.counting.items() if known != key}
            return Lines(counting, {**state.taken_back, key: state.taken_back.get(key, 0) + 1})
        case _:
            raise TypeError(f"{fact.wire_type} is no fact of a usage stream")


USAGE: Decider[Lines] = Decider(kind="usage", initial=Lines(), decide=decide, evolve=evolve)
