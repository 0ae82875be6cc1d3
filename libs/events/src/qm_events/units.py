"""Quantities are integers and carry their unit in their name; the bounds refuse what no data centre has."""

from fractions import Fraction
from typing import Annotated

from pydantic import Field

Cards = Annotated[int, Field(ge=1, le=100_000, strict=True)]
MilliCpu = Annotated[int, Field(ge=0, le=1_000_000_000, strict=True)]
MemoryMib = Annotated[int, Field(ge=0, le=1_000_000_000_000, strict=True)]
CardMicroseconds = Annotated[int, Field(ge=0, strict=True)]
DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
"""RFC 1123: the form of every name that a person gives."""
Ratio = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}/[1-9][0-9]{0,5}$")]
"""An exact part of something, `1/7`."""

SHARES_OF_A_CARD = 126_000
"""The parts of a card in which quota counts slices: halves to tenths, twelfths, fourteenths to sixteenths and
thousandths all divide it."""

MICROSECONDS_PER_HOUR = 3_600_000_000


def card_hours(card_us: int | Fraction) -> str:
    """Return card-microseconds as card-hours in decimal with 9 places, rounded half to even."""
    scaled = round(Fraction(card_us * 10**9, MICROSECONDS_PER_HOUR))
    return f"{scaled // 10**9}.{scaled % 10**9:09d}"


def card_hours_ratio(card_us: int | Fraction) -> str:
    """Return card-hours as the exact ratio `p/q` in lowest terms."""
    ratio = Fraction(card_us, MICROSECONDS_PER_HOUR)
    return f"{ratio.numerator}/{ratio.denominator}"


_ONE_AND_MANY = {
    "cards": ("card", "cards"),
    "card_shares": ("1/126,000 of a card", "parts of 1/126,000 of a card"),
    "accelerator_memory_mib": ("MiB of card memory", "MiB of card memory"),
    "cpu_milli": ("thousandth of a CPU", "thousandths of a CPU"),
    "memory_mib": ("MiB of memory", "MiB of memory"),
    "concurrent_orders": ("order at a time", "orders at a time"),
    "card_hours_month": ("card-hour a month", "card-hours a month"),
    "order": ("order", "orders"),
    "unit": ("unit", "units"),
}


def amount(count: int, what: str) -> str:
    """Return a count of a dimension of a quota, of orders or of units, in words: `1 card`, `2 h100 cards`.

    Of one month, `card_hours_month@2026-06`, card-microseconds are counted: `1.500000000 card-hours of 2026-06`.
    """
    if month := what.partition("@")[2]:
        return f"{card_hours(count)} card-hours of {month}"
    dimension, _, accelerator = what.partition("/")
    word = _ONE_AND_MANY.get(dimension, (dimension, dimension))[count != 1]
    return f"{count:,} {accelerator} {word}" if accelerator else f"{count:,} {word}"
