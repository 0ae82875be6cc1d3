"""Amounts: exact ratios until they are written, then rounded once, so that the lines of a bill add up to its total."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from pydantic import BaseModel

from qm_events.units import MICROSECONDS_PER_HOUR

_PLACES = 9
MINOR = 2
"""Decimal places of an amount on a bill."""


class Money(BaseModel):
    """An amount: in decimal with 9 places, and the exact ratio."""

    amount: str
    currency: str
    ratio: str


def cost(card_us: int | Fraction, per_card_hour: Decimal) -> Fraction:
    """Return what card-microseconds cost, exactly."""
    return Fraction(card_us, MICROSECONDS_PER_HOUR) * Fraction(per_card_hour)


def decimal(amount: Fraction, places: int = _PLACES) -> str:
    """Return an amount in decimal, rounded half to even."""
    return _written(round(amount * 10**places), places)


def money(amount: Fraction, currency: str) -> Money:
    """Return an amount as people and programs read it."""
    return Money(amount=decimal(amount), currency=currency, ratio=f"{amount.numerator}/{amount.denominator}")


def apportion(amounts: Sequence[Fraction], places: int = MINOR) -> list[str]:
    """Round amounts so that they add up to their rounded sum: what is left goes to the largest remainders, the first of
    equals first. No amount is off by one unit or more."""
    scaled = [amount * 10**places for amount in amounts]
    whole = [amount.numerator // amount.denominator for amount in scaled]
    left = round(sum(scaled, Fraction(0))) - sum(whole)
    by_remainder = sorted(range(len(scaled)), key=lambda at: (whole[at] - scaled[at], at))
    for at in by_remainder[:left]:
        whole[at] += 1
    return [_written(units, places) for units in whole]


def _written(units: int, places: int) -> str:
    sign, units = "-" if units < 0 else "", abs(units)
    return f"{sign}{units // 10**places}.{units % 10**places:0{places}d}"
