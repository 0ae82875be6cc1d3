"""The waiting orders of one project for the same types, first come first served, and where each stands among others.

An order of a project is due when the share of the project has grown by the cards of those before it: the *start* of an
order is (cards held + cards of its project's orders before it) / weight. Served by start, projects get what their
weights say, and the order in which that happens is known ahead.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate

from sortedcontainers import SortedList

Seq = tuple[datetime, str]
"""When it was submitted, and its id."""
SCALE = 10**6
"""Shares are integers in millionths of a card for each unit of weight: exact, for weights up to 1,000."""


def share_of(cards: int, weight: int) -> int:
    """Return cards by weight. Two shares compare as the exact ratios do: these differ by 1/1,000,000 at least."""
    return cards * SCALE // weight


@dataclass(slots=True)
class Fifo:
    """Orders of a project, by `Seq`, with their cards."""

    entries: SortedList = field(default_factory=SortedList)
    """(Seq, cards)."""
    before: list[int] | None = None
    """Cards of the orders before each; None = has to be counted again."""

    def add(self, seq: Seq, cards: int) -> None:
        """Put an order in its place."""
        entry = (seq, cards)
        if self.before and self.entries[-1] < entry:
            self.before.append(self.before[-1] + self.entries[-1][1])
        else:
            self.before = None
        self.entries.add(entry)

    def remove(self, seq: Seq, cards: int) -> None:
        """Take an order out."""
        self.entries.remove((seq, cards))
        self.before = None

    def _counted(self) -> list[int]:
        if self.before is None:
            self.before = [0, *accumulate(cards for _, cards in self.entries)][:-1]
        return self.before

    def start(self, seq: Seq, cards: int, held: int, weight: int) -> int:
        """Return the start of one of its orders."""
        return share_of(held + self._counted()[self.entries.index((seq, cards))], weight)

    def starts(self, held: int, weight: int) -> list[int]:
        """Return the starts of all its orders, in their order."""
        return [share_of(held + before, weight) for before in self._counted()]

    def earlier(self, start: int, seq: Seq, held: int, weight: int) -> tuple[int, int]:
        """Return how many of its orders have an earlier start, or the same and an earlier `Seq`, and their cards."""
        before = self._counted()
        # share_of(held + b) < start  <=>  b < ceil(start * weight / SCALE) - held
        count = bisect_left(before, -(-start * weight // SCALE) - held)
        if count < len(before) and share_of(held + before[count], weight) == start and self.entries[count][0] < seq:
            count += 1
        return count, (before[count - 1] + self.entries[count - 1][1] if count else 0)

    @property
    def whole(self) -> tuple[int, int]:
        """How many orders, and their cards."""
        before = self._counted()
        return len(before), before[-1] + self.entries[-1][1]
