"""Cards that are used in part: what a slice takes of one, where it may lie and what it leaves.

A card is used in one way at a time: whole, cut by a geometry into slices, or shared in thousandths. How it is used in
part is its `State`; where the next slice goes is looked up by state, so no card is searched.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from qm_events.specs import PlacedSlice, Slice
from qm_events.units import SHARES_OF_A_CARD

State = tuple[int, int]
"""(positions of the card, mask of those that are taken), or (0, thousandths that are taken)."""
UNUSED: State = (0, 0)
MILLI = 1_000


class Part(NamedTuple):
    """What a unit takes of one card."""

    shares: int
    """What it counts, in 1/126,000 of a card."""
    milli: int = 0
    """Thousandths of a shared card; 0: it is cut by the geometry."""
    positions: int = 0
    size: int = 0
    starts: tuple[int, ...] = ()


def part_of(cut: Slice | None) -> Part | None:
    """Return what decides where a slice fits; None = whole cards."""
    if cut is None:
        return None
    return Part(shares_of(Fraction(cut.share)), cut.milli or 0, cut.positions or 0, cut.size or 0, cut.starts)


def shares_of(part: Fraction) -> int:
    """Return a part of cards in 1/126,000."""
    return int(part * SHARES_OF_A_CARD)


@lru_cache(maxsize=1 << 16)
def cut(part: Part, state: State) -> tuple[int, State] | None:
    """Return where a slice begins on a card in this state, and the state then; None where it does not fit."""
    positions, taken = state
    if part.milli:
        return (0, (0, taken + part.milli)) if positions == 0 and taken + part.milli <= MILLI else None
    if state != UNUSED and positions != part.positions:
        return None
    for start in part.starts:
        place = ((1 << part.size) - 1) << start
        if not taken & place:
            return start, (part.positions, taken | place)
    return None


@lru_cache(maxsize=1 << 16)
def count(part: Part, state: State) -> int:
    """Return how many such slices a card in this state takes. Places of a profile do not overlap: greedy is exact."""
    found = 0
    while (next_one := cut(part, state)) is not None:
        found, state = found + 1, next_one[1]
    return found


def loose(part: Part, state: State) -> int:
    """Return what is left of a card, in thousandths or positions of the slice's kind, whether or not it can be had."""
    positions, taken = state
    if part.milli:
        return MILLI - taken if positions == 0 else 0
    return part.positions - taken.bit_count() if positions in (0, part.positions) and (positions or not taken) else 0


def slack(state: State) -> int:
    """Return what is left of a card in thousandths, rounded down: it grows whenever a slice is given back."""
    positions, taken = state
    return (positions - taken.bit_count()) * MILLI // positions if positions else MILLI - taken


def state_of(slices: Iterable[PlacedSlice]) -> State:
    """Return the state of a card on which these slices lie. Raises ValueError where two of them cannot lie together."""
    state = UNUSED
    for one in slices:
        known = Part(0, one.milli or 0, one.positions or 0, one.size or 0, () if one.start is None else (one.start,))
        after = cut(known, state)
        if after is None:
            raise ValueError(f"a slice of card {one.card} is given twice")
        state = after[1]
    return state


def placed(card: str, asked: Slice, start: int) -> PlacedSlice:
    """Return a slice where it was cut."""
    if asked.milli is not None:
        return PlacedSlice(card=card, share=asked.share, milli=asked.milli)
    return PlacedSlice(
        card=card,
        share=asked.share,
        profile=asked.profile,
        positions=asked.positions,
        start=start,
        size=asked.size,
    )
