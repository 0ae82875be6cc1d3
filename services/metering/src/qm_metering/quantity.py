"""How card-hours and money are written: exact, and for people."""

from pydantic import BaseModel

from qm_events.units import card_hours, card_hours_ratio


class Quantity(BaseModel):
    """Card-hours, three ways: whole card-microseconds, a decimal with 9 places, the exact ratio."""

    card_us: int
    card_hours: str
    card_hours_ratio: str


def quantity(card_us: int) -> Quantity:
    """Return card-microseconds as a quantity. A correction may make it negative."""
    sign = "-" if card_us < 0 else ""
    return Quantity(
        card_us=card_us, card_hours=sign + card_hours(abs(card_us)), card_hours_ratio=card_hours_ratio(card_us)
    )
