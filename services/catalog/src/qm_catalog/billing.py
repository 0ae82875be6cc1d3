"""What an order costs: its billable intervals at the price of the instant of use, exact until the last rounding."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from qm_catalog.projections import Price
from qm_catalog.request_record import Interval
from qm_events.units import MICROSECONDS_PER_HOUR

_US = timedelta(microseconds=1)


def money(amount: Fraction) -> str:
    """Return an amount as a decimal string with 9 places, rounded half to even."""
    scaled = round(amount * 10**9)
    return f"{scaled // 10**9}.{scaled % 10**9:09d}"


def amount(intervals: Sequence[Interval], prices: Sequence[Price]) -> Fraction:
    """Return the price of the intervals, as metering rated them; of those that it did not rate, at the prices of the
    offering. Before the first price was published, the first holds."""
    total = Fraction(0)
    for interval in intervals:
        length = (interval.to_at - interval.from_at) // _US
        cards = interval.used_us / length if length else Fraction(0)
        rated = _shares(interval, prices) if interval.rates is None else _rated(interval.rates)
        total += sum(cards * share * Fraction(price) for price, share in rated)
    return total / MICROSECONDS_PER_HOUR


def _rated(rates: Sequence[tuple[datetime, datetime, Decimal]]) -> list[tuple[Decimal, int]]:
    return [(price, (to_at - from_at) // _US) for from_at, to_at, price in rates]


def _shares(interval: Interval, prices: Sequence[Price]) -> list[tuple[Decimal, int]]:
    """Return the microseconds of the interval in which each price held."""
    starts: list[datetime] = [interval.from_at, *(price.from_at for price in prices[1:])]
    ends = [*starts[1:], interval.to_at]
    return [
        (price.per_card_hour, max(0, (min(end, interval.to_at) - max(start, interval.from_at)) // _US))
        for price, start, end in zip(prices, starts, ends, strict=True)
    ]
