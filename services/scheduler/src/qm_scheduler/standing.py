"""Where each waiting order stands if projects take their turns from now on and nobody gives cards back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from qm_scheduler.fifo import Fifo, Seq, share_of
from qm_scheduler.view import Ask

Level = tuple[int, int]
"""The band: the priority, the highest first; then 0 if a place is kept, else 1."""
Entry = tuple[Seq, int]
"""An order and its cards, in 1/126,000: here and below, slices count as the part of a card that they are."""
Types = tuple[str, ...]
"""Accelerator types that an order accepts."""


@dataclass(slots=True)
class Project:
    """What the queue knows of a project."""

    held: int = 0
    """Cards."""
    weight: int = 1
    groups: dict[tuple[Ask, Level], None] = field(default_factory=dict)
    heads: dict[tuple[str, Level], SortedList] = field(default_factory=dict)
    """(lane, level) -> `Seq`s of the first of each group that claims the type."""

    @property
    def share(self) -> int:
        """Cards held by weight."""
        return share_of(self.held, self.weight)


@dataclass(slots=True)
class Standing:
    """The orders of all projects, by what they accept."""

    stands: dict[Types, dict[Level, dict[str, Fifo]]] = field(default_factory=dict)
    """Accepted types -> level -> `tenant/project` -> its orders."""

    def add(self, accepted: Types, level: Level, scope: str, entry: Entry) -> None:
        """Put an order in its place."""
        self.stands.setdefault(accepted, {}).setdefault(level, {}).setdefault(scope, Fifo()).add(*entry)

    def remove(self, accepted: Types, level: Level, scope: str, entry: Entry) -> None:
        """Take an order out."""
        levels = self.stands[accepted]
        levels[level][scope].remove(*entry)
        if not levels[level][scope].entries:
            del levels[level][scope]
        if not levels[level]:
            del levels[level]
        if not levels:
            del self.stands[accepted]

    def ahead(
        self, accepted: Types, level: Level, scope: str, entry: Entry, projects: Mapping[str, Project]
    ) -> tuple[int, int]:
        """Return how many orders that accept one of these types are due before an order, and their cards."""
        own, stands = projects[scope], self.stands[accepted]
        start = stands[level][scope].start(*entry, own.held + _before(stands, level, scope), own.weight)
        count = cards = 0
        for rivals, levels in self.stands.items():
            if set(accepted).isdisjoint(rivals):
                continue
            for other, fifos in levels.items():
                for name, fifo in fifos.items() if other <= level else ():
                    orders, theirs = fifo.whole
                    if other == level:
                        held = projects[name].held + _before(levels, level, name)
                        orders, theirs = fifo.earlier(start, entry[0], held, projects[name].weight)
                    count += orders
                    cards += theirs
        return count, cards

    def places(self, projects: Mapping[str, Project]) -> dict[str, tuple[int, int]]:
        """Return for all orders at once how many are due before each, and their cards."""
        due = []
        for accepted, levels in self.stands.items():
            for level, fifos in levels.items():
                for scope, fifo in fifos.items():
                    project = projects[scope]
                    starts = fifo.starts(project.held + _before(levels, level, scope), project.weight)
                    due += [
                        (level, start, seq, accepted, cards)
                        for start, (seq, cards) in zip(starts, fifo.entries, strict=True)
                    ]
        rivals = {one: [other for other in self.stands if not set(one).isdisjoint(other)] for one in self.stands}
        orders, asked = dict.fromkeys(self.stands, 0), dict.fromkeys(self.stands, 0)
        found = {}
        for _, _, seq, accepted, cards in sorted(due):
            before = rivals[accepted]
            found[seq[1]] = (sum(orders[other] for other in before), sum(asked[other] for other in before))
            orders[accepted] += 1
            asked[accepted] += cards
        return found


def _before(levels: Mapping[Level, Mapping[str, Fifo]], level: Level, scope: str) -> int:
    """Return the cards of a project's orders that are served first because of their level."""
    return sum(fifos[scope].whole[1] for other, fifos in levels.items() if other < level and scope in fifos)
