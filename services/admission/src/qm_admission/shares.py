"""Parts of a card, exactly: integers in shares of 1/25,200 of a card. Pure.

25,200 is the least number that halves to tenths, twelfths, fourteenths to sixteenths and hundredths all divide: every
geometry of slices in use, and shares in percent. A slice never becomes a decimal, so seven sevenths are one card.

The ledger counts them beside whole cards: what is taken of `card_shares` and of `cards` together is held against the
limit on `cards`. A specification orders whole cards today; one that orders a part has only to take `card_shares`.
"""

from collections.abc import Mapping
from fractions import Fraction

SHARES = 25_200
"""Of one card."""
CARDS = "cards"
CARD_SHARES = "card_shares"


def share_of(numerator: int, denominator: int) -> int:
    """Return a part of a card in shares. Raises ValueError where it cannot be told exactly."""
    part = Fraction(numerator, denominator) * SHARES
    if part.denominator != 1:
        raise ValueError(f"{numerator}/{denominator} of a card is no whole number of shares of 1/{SHARES}")
    return part.numerator


def name_of(cards: str) -> str:
    """Return the dimension of the shares of `cards` or `cards/<accelerator>`."""
    return CARD_SHARES + cards.removeprefix(CARDS)


def together(amounts: Mapping[str, int], cards: str) -> int:
    """Return whole cards and parts of them, in shares."""
    return amounts.get(cards, 0) * SHARES + amounts.get(name_of(cards), 0)


def whole(amounts: Mapping[str, int], cards: str) -> int:
    """Return the whole cards that the amounts need, parts rounded up."""
    return -(-together(amounts, cards) // SHARES)
