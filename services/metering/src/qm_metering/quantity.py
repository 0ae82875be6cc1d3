"""How card-hours and money are written: exact, and for people."""

from fractions import Fraction
from math import trunc

from pydantic import BaseModel

from qm_events.units import card_hours, card_hours_ratio


class Quantity(BaseModel):
    """Card-hours, three ways: card-microseconds without what is less than one, a decimal with 9 places, the exact
    ratio."""

    card_us: int
    card_hours: str
    card_hours_ratio: str


def quantity(card_us: int | Fraction) -> Quantity:
    """Return card-microseconds as a quantity. A correction may make it negative."""
    sign = "-" if card_us < 0 else ""
    return Quantity(
        card_us=trunc(card_us),
        card_hours=sign + card_hours(-card_us if card_us < 0 else card_us),
        card_hours_ratio=card_hours_ratio(card_us),
    )
