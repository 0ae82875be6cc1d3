"""Parts of a card, exactly: integers in shares of 1/126,000 of a card. Pure.

Every geometry in use and thousandths divide it. A slice never becomes a decimal, so seven sevenths are one card.

The ledger counts them beside whole cards: what is taken of `card_shares` and of `cards` together is held against the
limit on `cards`.
"""

from collections.abc import Mapping
from fractions import Fraction

from qm_events.units import SHARES_OF_A_CARD

SHARES = SHARES_OF_A_CARD
"""Of one card."""
CARDS = "cards"
CARD_SHARES = "card_shares"


def shares_of(part: Fraction) -> int:
    """Return a part of cards in shares, rounded up: the catalogue offers no part that this would change."""
    return -(-part.numerator * SHARES // part.denominator)


def name_of(cards: str) -> str:
    """Return the dimension of the shares of `cards` or `cards/<accelerator>`."""
    return CARD_SHARES + cards.removeprefix(CARDS)


def together(amounts: Mapping[str, int], cards: str) -> int:
    """Return whole cards and parts of them, in shares."""
    return amounts.get(cards, 0) * SHARES + amounts.get(name_of(cards), 0)


def whole(amounts: Mapping[str, int], cards: str) -> int:
    """Return the whole cards that the amounts need, parts rounded up."""
    return -(-together(amounts, cards) // SHARES)


def counted_as(dimension: str) -> tuple[str, ...]:
    """Return the names under which the ledger counts what one limit limits: cards are taken whole and in parts."""
    cards = CARDS + dimension.removeprefix(CARD_SHARES) if dimension.startswith(CARD_SHARES) else dimension
    return (cards, name_of(cards)) if cards.startswith(CARDS) else (dimension,)
