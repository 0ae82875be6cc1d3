"""The bill of an order: every line on it with the facts that made it, its price and its amount."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from pydantic import BaseModel

from qm_metering.intervals import instant
from qm_metering.money import Money, apportion, cost, money
from qm_metering.projections import LedgerLine
from qm_metering.quantity import Quantity, quantity


class BillLine(BaseModel):
    """A recorded line. `amount` is rounded so that the lines of a currency add up to its rounded total."""

    record: str
    """Its id: of the fact `usage.recorded` or `usage.corrected` that says it."""
    month: str | None
    """On whose bill it is."""
    used_in: str | None
    """The month of use, where that was closed already."""
    takes_back: str | None
    """The line that it reverses."""
    accelerator: str
    cards: int
    from_at: datetime
    to_at: datetime
    began_by: str | None
    """The id of the fact that began it."""
    ended_by: str | None
    """The id of the fact that ended it; null where a month or a price ended it."""
    quantity: Quantity
    price_per_card_hour: str | None
    cost: Money | None
    amount: str | None


class Bill(BaseModel):
    """All billable lines that were recorded, the oldest use first, and their totals by currency."""

    lines: list[BillLine]
    totals: list[Money]


def bill(lines: Sequence[LedgerLine]) -> Bill:
    """Return the bill of these lines."""
    ordered = sorted(lines, key=lambda line: (line.from_us, line.to_us, line.reverses is not None, line.record))
    by_currency: dict[str, list[tuple[LedgerLine, Fraction]]] = defaultdict(list)
    for line in ordered:
        if line.price:
            by_currency[line.currency].append((line, _cost(line)))
    amounts = {
        line.record: text
        for costs in by_currency.values()
        for (line, _), text in zip(costs, apportion([amount for _, amount in costs]), strict=True)
    }
    totals = [
        money(sum((amount for _, amount in costs), Fraction(0)), name) for name, costs in sorted(by_currency.items())
    ]
    return Bill(lines=[_line(line, amounts.get(line.record)) for line in ordered], totals=totals)


def _cost(line: LedgerLine) -> Fraction:
    return cost(line.used_us, Decimal(line.price))


def _line(line: LedgerLine, amount: str | None) -> BillLine:
    return BillLine(
        record=line.record,
        month=line.period,
        used_in=line.used_in,
        takes_back=line.reverses,
        accelerator=line.accelerator,
        cards=line.cards,
        from_at=instant(line.from_us),
        to_at=instant(line.to_us),
        began_by=line.began_by,
        ended_by=line.ended_by,
        quantity=quantity(line.used_us),
        price_per_card_hour=line.price or None,
        cost=money(_cost(line), line.currency) if line.price else None,
        amount=amount,
    )
