"""What goes on the topic `usage`: the closed intervals of an allocation, each once, and exact corrections."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from qm_events.ids import derived_id
from qm_events.metering import UsageCorrected, UsageLine, UsageRecorded
from qm_metering.intervals import Span, instant
from qm_metering.policy import POLICY, Holding, Kind, OrderUsage, held, pieces
from qm_service.model import Context, Decider

Meter = Literal["held", "billable"]


@dataclass(frozen=True, slots=True)
class Metered:
    """The time of one holding on one meter; `final` when no fact that may still come in order can change it."""

    meter: Meter
    span: Span
    final: bool


@dataclass(frozen=True, slots=True)
class RecordUsage:
    """Bring the lines of an allocation on the topic to exactly these."""

    lines: tuple[UsageRecorded, ...]


# Each fact of an order asks anew for the ids of the same lines.
_line_id = lru_cache(maxsize=16_384)(derived_id)

Lines = Mapping[str, UsageRecorded]
"""State of a stream `usage/<allocation>`: the lines that count, by id."""


def metered(usage: OrderUsage, holding: Holding) -> Iterator[Metered]:
    """Yield what a holding shows on each meter. Billable time waits for the fact that ended it."""
    whole = held(usage, holding)
    if not whole.empty:
        yield Metered("held", whole, whole.end_us is not None)
    for piece in pieces(usage, holding):
        if POLICY[piece.counts_as].billable:
            closed = piece.closed is not None and piece.closed.kind is not Kind.RETURNED
            yield Metered("billable", piece.span, closed)


def line_ids(usage: OrderUsage, holding: Holding, meter: Metered) -> list[str]:
    """Return the ids of the lines of a closed stretch, one an accelerator: they follow from what the lines say."""
    span = meter.span
    base = ("usage", usage.order, holding.allocation, meter.meter, span.start_us, span.end_us or 0)
    return [_line_id(*base, accelerator, cards) for accelerator, cards in holding.cards]


def lines_of(usage: OrderUsage, holding: Holding) -> tuple[UsageRecorded, ...]:
    """Return the lines that a holding calls for: its closed, final, non-empty stretches."""
    return tuple(
        _line(usage, holding, meter, record, accelerator, cards)
        for meter in metered(usage, holding)
        if meter.final
        for record, (accelerator, cards) in zip(line_ids(usage, holding, meter), holding.cards, strict=True)
    )


def _line(
    usage: OrderUsage, holding: Holding, meter: Metered, record: str, accelerator: str, cards: int
) -> UsageRecorded:
    start_us, end_us = meter.span.start_us, meter.span.end_us
    assert end_us is not None  # noqa: S101  # a final stretch is closed
    return UsageRecorded(
        record=record,
        allocation=holding.allocation,
        order=usage.order,
        meter=meter.meter,
        accelerator=accelerator,
        service_model=holding.service_model,
        cards=cards,
        from_at=instant(start_us),
        to_at=instant(end_us),
        card_us=cards * (end_us - start_us),
    )


def counting(usage: OrderUsage) -> frozenset[str]:
    """Return the ids of the recorded lines that were not taken back."""
    return frozenset(usage.recorded) - frozenset(usage.reversed)


def unrecorded(usage: OrderUsage) -> Iterator[tuple[Holding, Metered]]:
    """Yield what counts but is not on the topic: open stretches, and closed ones on their way there."""
    known = counting(usage)
    for holding in usage.holdings:
        for meter in metered(usage, holding):
            if not meter.final or not known.issuperset(line_ids(usage, holding, meter)):
                yield holding, meter


def outstanding(usage: OrderUsage) -> bool:
    """Whether the topic does not say yet what the facts of the order call for."""
    return _wanted(usage)[0] != counting(usage)


def stale(usage: OrderUsage) -> frozenset[str]:
    """Return the ids of the lines that are about to be taken back."""
    return counting(usage) - _wanted(usage)[0]


def live(usage: OrderUsage) -> bool:
    """Whether something of the order is not on the topic yet: it runs, or a line is on its way."""
    wanted, runs = _wanted(usage)
    return runs or wanted != counting(usage)


def _wanted(usage: OrderUsage) -> tuple[set[str], bool]:
    """Return the ids of the lines that the facts call for, and whether anything runs."""
    wanted: set[str] = set()
    runs = False
    for holding in usage.holdings:
        for meter in metered(usage, holding):
            if meter.final:
                wanted.update(line_ids(usage, holding, meter))
            else:
                runs = True
    return wanted, runs


def decide(state: Lines, command: RecordUsage, _: Context) -> list[UsageLine]:
    """Take back what is no longer called for, then record what is missing; nothing when all is said."""
    wanted = {line.record: line for line in command.lines}
    wrong = [_correction(line) for record, line in state.items() if record not in wanted]
    return [*wrong, *(line for record, line in wanted.items() if record not in state)]


def _correction(line: UsageRecorded) -> UsageCorrected:
    told = {**dict(line), "record": derived_id("reversal", line.record)}
    return UsageCorrected.model_construct(**told, reverses=line.record)


def evolve(state: Lines, fact: Any) -> Lines:
    """Fold one fact of a stream."""
    match fact:
        case UsageRecorded():
            return {**state, fact.record: fact}
        case UsageCorrected():
            return {record: line for record, line in state.items() if record != fact.reverses}
        case _:
            raise TypeError(f"{fact.wire_type} is no fact of a usage stream")


USAGE: Decider[Lines] = Decider(kind="usage", initial={}, decide=decide, evolve=evolve)
