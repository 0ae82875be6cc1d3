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

MICROSECONDS_PER_HOUR = 3_600_000_000


def card_hours(card_us: int) -> str:
    """Return card-microseconds as card-hours in decimal with 9 places, rounded half to even."""
    scaled = round(Fraction(card_us * 10**9, MICROSECONDS_PER_HOUR))
    return f"{scaled // 10**9}.{scaled % 10**9:09d}"


def card_hours_ratio(card_us: int) -> str:
    """Return card-hours as the exact ratio `p/q` in lowest terms."""
    ratio = Fraction(card_us, MICROSECONDS_PER_HOUR)
    return f"{ratio.numerator}/{ratio.denominator}"
