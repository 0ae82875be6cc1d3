"""Places that are kept: what others may take of a node on which a waiting order was promised a place.

A promise says where and, if the leases there end, when. Until then others take what is left over: cards that will be
more than enough at that time, or any card for a time that is over before. A hold binds its own band and those below.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from qm_scheduler.cuts import UNUSED, State
from qm_scheduler.fleet import Card, Node
from qm_scheduler.view import NO_RIGHT, Ask, Kind, Pick, Right, Room, Shape

BUILD = timedelta(minutes=10)
"""How long after its allocation an order is READY as far as passing goes; its duration counts from then."""
GIVE_BACK = timedelta(minutes=10)
"""How long it takes to give cards back clean, as far as estimates go."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A place that is kept."""

    order: str
    priority: int
    shape: Shape
    picks: tuple[Pick, ...]
    until: datetime | None
    """When the leases in the way have ended; None = not known."""
    victims: tuple[str, ...] = ()
    """Allocations that give their cards up for it."""
    right: Right = NO_RIGHT

    def needs(self, room: Room) -> tuple[Mapping[Kind, int], int]:
        """Return the cards by kind that are kept on a node, and for how many units."""
        here = [pick for pick in self.picks if pick.node == room.node]
        cards: dict[Kind, int] = {}
        for pick in here:
            kind = (*pick.kind[:2], room.traits)
            cards[kind] = cards.get(kind, 0) + pick.units * self.shape.cards
        return cards, sum(pick.units for pick in here)

    def binds(self, ask: Ask, priority: int, now: datetime) -> bool:
        """Return whether an order that asks this has to leave the place alone.

        A place is not kept for a borrower from the owner of what it borrows; and what borrowers gave back is kept from
        them all, whatever their priority: else they would take it again.
        """
        mine, his = self.right, ask.right
        if self.order in (ask.owner, ask.reservation) or (mine.owes_in and mine.owes_in == his.owed_in):
            return False
        gave_back = bool(self.victims and mine.owed_in and mine.owed_in == his.owes_in)
        if priority > self.priority and not gave_back:
            return False
        end = end_of(ask, now)
        return self.until is None or end is None or end > self.until


def end_of(ask: Ask, now: datetime) -> datetime | None:
    """Return when an order ends at the latest if it is placed now; None = it has no end."""
    ends = [ask.until] if ask.until else []
    if ask.seconds is not None:
        ends.append(now + BUILD + timedelta(seconds=ask.seconds))
    return min(ends, default=None)


def freed(room: Room, node: Node, allocations: Iterable[str], usable: Callable[[Node, str], Iterable[Kind]]) -> Room:
    """Return the room as it will be when these allocations have ended; `usable` are cards that will serve again
    whole."""
    free, cpu, memory = dict(room.free), room.cpu_milli, room.memory_mib
    cuts = {kind: list(states) for kind, states in room.cut.items()}
    ended: set[str] = set()
    for allocation in allocations:
        for kind in usable(node, allocation):
            free[kind] = free.get(kind, 0) + 1
        for card in node.cards.values():
            if card.parts and allocation in card.holders:
                _given_back(card, (card.accelerator, card.memory_mib, node.traits), ended, allocation, free, cuts)
        ended.add(allocation)
        cpu += node.holdings[allocation].cpu_milli
        memory += node.holdings[allocation].memory_mib
    left = {kind: tuple(sorted(states)) for kind, states in cuts.items() if states}
    return room._replace(free=free, cpu_milli=cpu, memory_mib=memory, cut=left)


def _given_back(
    card: Card, kind: Kind, ended: set[str], allocation: str, free: dict[Kind, int], cuts: dict[Kind, list[State]]
) -> None:
    """Take the slices of one more allocation off a card; one that is not offered here stays so."""
    states = cuts.get(kind, [])
    was, now = card.state(ended), card.state({*ended, allocation})
    if was not in states:
        return
    states.remove(was)
    if now == UNUSED:
        free[kind] = free.get(kind, 0) + 1
    else:
        states.append(now)


def left_over(room: Room, holds: Iterable[Hold], by: Callable[[datetime | None], Room]) -> Room:
    """Return what others may take of a room for ever; `by` tells what is free at a time (None: as things are).

    Slices are not counted against what is kept: on a node where cards of a kind are kept, those that are used in part
    are nobody else's, and where slices are kept, none of the kind are.
    """
    holds = tuple(holds)
    free, cpu, memory = dict(room.free), room.cpu_milli, room.memory_mib
    kept: dict[Kind, int] = {}
    kept_cpu = kept_memory = 0
    for hold in sorted(holds, key=lambda hold: (hold.until is not None, hold.until, hold.order)):
        then = by(hold.until)
        cards, units = hold.needs(room)
        for kind, count in cards.items():
            if hold.shape.part is not None:
                free[kind] = 0
                continue
            kept[kind] = kept.get(kind, 0) + count
            free[kind] = min(free.get(kind, 0), then.free.get(kind, 0) - kept[kind])
        kept_cpu += units * hold.shape.cpu_milli
        kept_memory += units * hold.shape.memory_mib
        cpu, memory = min(cpu, then.cpu_milli - kept_cpu), min(memory, then.memory_mib - kept_memory)
    left = {kind: count for kind, count in free.items() if count > 0}
    closed = {kind for hold in holds for kind in hold.needs(room)[0]}
    cut = {kind: states for kind, states in room.cut.items() if kind not in closed}
    return room._replace(free=left, cpu_milli=cpu, memory_mib=memory, cut=cut)
