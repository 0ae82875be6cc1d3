"""The fleet as the scheduler decides on it: an index over the node documents, kept in step one node at a time.

Four views answer four questions: what is free now (FREE), what would be if all that is out of service were well
(WELL), if all leases had ended (IDLE), and both (ALL); they tell reasons apart. Placement reads OPEN: what is free and
not kept for another (`holds`). Only a card that is healthy, clean, unheld and on a node without a cordon is free.
Nothing here is on the log: it follows from the documents.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from functools import partial
from types import MappingProxyType

from qm_events.specs import Health
from qm_scheduler.cuts import MILLI, UNUSED, State, slack
from qm_scheduler.fleet import Card, Node
from qm_scheduler.holds import Hold, freed, left_over
from qm_scheduler.view import Ask, Kind, Room, View, seat

_ISOLATED: Mapping[Health, str] = {
    Health.FAILED: "failed",
    Health.SUSPECT: "suspect",
    Health.UNKNOWN: "unknown",
}
CLASSES = ("free", "held", "partial", "cleaning", "suspect", "failed", "unknown", "quarantined", "cordoned")
"""Each card is in exactly one; a held card is held, whatever its health; one of which slices are held is partial."""
OUT_OF_SERVICE = ("suspect", "failed", "unknown", "quarantined", "cordoned", "cleaning")


class Sight(StrEnum):
    """The views."""

    OPEN = "open"
    FREE = "free"
    WELL = "well"
    IDLE = "idle"
    ALL = "all"


@dataclass(slots=True)
class Change:
    """What changes of nodes may alter, by accelerator type."""

    gained: dict[str, int] = field(default_factory=dict)
    """Nodes offer more than before: the most cards of one kind on one of them."""
    seen: set[str] = field(default_factory=set)
    """Figures changed."""
    lasting: set[str] = field(default_factory=set)
    """What could serve, with or without repair, changed."""

    def gain(self, accelerator: str, cards: int) -> None:
        """Note that a node offers so many cards now."""
        self.gained[accelerator] = max(cards, self.gained.get(accelerator, 0))


@dataclass(slots=True)
class Pool:
    """Nodes, views of them, and counts by type. `cleaning` names the allocations that are being given back."""

    nodes: dict[str, Node] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    """card -> node."""
    views: dict[Sight, View] = field(default_factory=lambda: {sight: View() for sight in Sight})
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """accelerator -> class -> cards."""
    cleaning: set[str] = field(default_factory=set)
    holds: dict[str, Hold] = field(default_factory=dict)
    """By order."""
    kept: dict[str, dict[str, Hold]] = field(default_factory=dict)
    """node -> order -> the hold there."""
    mark: int = 0
    """Moves whenever what is kept may be open to somebody to whom it was not."""
    _most_kept: tuple[int, Mapping[str, int]] = (-1, MappingProxyType({}))
    """At a mark: accelerator -> the most cards that are free on a node where places are kept."""
    ends: dict[str, datetime] = field(default_factory=dict)
    """allocation -> when its lease ends, where that is known."""

    def put(self, node: Node, change: Change) -> None:
        """Follow one node, also for the first time."""
        old = self.nodes.get(node.node)
        self._count(old, -1)
        self._count(node, +1)
        if old is None or old.cards.keys() != node.cards.keys():
            for card in old.cards if old else ():
                self.homes.pop(card, None)
            self.homes.update(dict.fromkeys(node.cards, node.node))
        self.nodes[node.node] = node
        self._view(node, change)

    def drop(self, node: Node, change: Change) -> None:
        """Forget a node that left the fleet."""
        self._count(node, -1)
        for card in node.cards:
            self.homes.pop(card, None)
        del self.nodes[node.node]
        self.mark += node.node in self.kept
        for view in self.views.values():
            view.put(seat(node.node), None)
        types = {card.accelerator for card in node.cards.values()}
        change.seen |= types
        change.lasting |= types

    def _count(self, node: Node | None, by: int) -> None:
        if node is None:
            return
        for card in node.cards.values():
            counts = self.counts.get(card.accelerator)
            if counts is None:
                counts = self.counts[card.accelerator] = Counter()
            counts[self.class_of(node, card)] += by

    def class_of(self, node: Node, card: Card) -> str:
        """Return the one of CLASSES that the card is in."""
        if card.allocation is not None:
            return "cleaning" if card.allocation in self.cleaning else "held"
        return "partial" if card.parts else self._unheld(node, card)

    def _unheld(self, node: Node, card: Card) -> str:
        if card.quarantine is not None:
            return "quarantined"
        if card.health is not Health.HEALTHY:
            return _ISOLATED[card.health]
        return "free" if node.cordon is None else "cordoned"

    def partial(self) -> Iterator[tuple[Node, Card]]:
        """Yield the cards of which slices are held."""
        if any(classes["partial"] for classes in self.counts.values()):
            for node in self.nodes.values():
                yield from ((node, card) for card in node.cards.values() if card.parts)

    def split(self, node: Node, card: Card) -> Iterator[tuple[str, Fraction]]:
        """Yield the classes that the parts of a partial card are in, and how much of it; they add up to 1."""
        left = Fraction(1)
        for part in card.parts:
            share = Fraction(part.slice.share)
            left -= share
            yield "cleaning" if part.allocation in self.cleaning else "held", share
        yield self._unheld(node, card), left

    def _view(self, node: Node, change: Change) -> None:
        key = seat(node.node)
        for sight, room in self._rooms(node).items():
            view = self.views[sight]
            old = view.rooms.get(key)
            if old == room:
                continue
            view.put(key, room)
            change.seen.update(kind[0] for kind in room.kinds)
            if old is not None:
                change.seen.update(kind[0] for kind in old.kinds)
            if sight in (Sight.IDLE, Sight.ALL):
                change.lasting.update(kind[0] for kind in (*(old.free if old else ()), *room.free))
            elif sight in (Sight.OPEN, Sight.FREE):
                _gains(old, room, change)
                self.mark += node.node in self.kept and sight is Sight.FREE

    def _rooms(self, node: Node) -> dict[Sight, Room]:
        cards: dict[Sight, dict[Kind, int]] = {Sight.FREE: {}, Sight.WELL: {}, Sight.IDLE: {}, Sight.ALL: {}}
        free, well, idle, whole = cards.values()
        cuts: dict[Sight, dict[Kind, list[State]]] = {}
        for card in node.cards.values():
            if not card.present:
                continue
            kind = (card.accelerator, card.memory_mib, node.traits)
            whole[kind] = whole.get(kind, 0) + 1
            serves = is_usable(node, card)
            if serves:
                idle[kind] = idle.get(kind, 0) + 1
            if card.parts:
                _cut(cuts.setdefault(Sight.WELL, {}), well, kind, card.state(self.cleaning))
                if serves:
                    _cut(cuts.setdefault(Sight.FREE, {}), free, kind, card.state())
            elif card.allocation is None or card.allocation in self.cleaning:
                well[kind] = well.get(kind, 0) + 1
                if serves and card.allocation is None:
                    free[kind] = free.get(kind, 0) + 1
        busy = rest = (node.cpu_milli, node.memory_mib)
        for allocation, holding in node.holdings.items():
            busy = (busy[0] - holding.cpu_milli, busy[1] - holding.memory_mib)
            if allocation not in self.cleaning:
                rest = (rest[0] - holding.cpu_milli, rest[1] - holding.memory_mib)
        left = {Sight.FREE: busy, Sight.WELL: rest}
        rack, domain = seat(node.rack or f"\0{node.node}"), seat(node.domain or f"\0{node.node}")
        rooms = {
            sight: Room(
                node.node,
                there,
                *left.get(sight, (node.cpu_milli, node.memory_mib)),
                rack,
                domain,
                node.traits,
                {kind: tuple(sorted(states)) for kind, states in cuts.get(sight, {}).items()},
            )
            for sight, there in cards.items()
        }
        kept = self.kept.get(node.node)
        rooms[Sight.OPEN] = self.left_on(node, rooms[Sight.FREE], kept.values()) if kept else rooms[Sight.FREE]
        return rooms

    def reach(self, accelerator: str) -> tuple[int, int]:
        """Return the most cards of one kind on a node that are open to all, and that are free where places are kept."""
        mark, most = self._most_kept
        if mark != self.mark:
            most = self._free_on_kept()
            self._most_kept = (self.mark, most)
        return self.views[Sight.OPEN].most(accelerator), most.get(accelerator, 0)

    def _free_on_kept(self) -> dict[str, int]:
        most: dict[str, int] = {}
        rooms = self.views[Sight.FREE].rooms
        for name in self.kept:
            for kind, count in rooms[seat(name)].free.items() if name in self.nodes else ():
                most[kind[0]] = max(count, most.get(kind[0], 0))
        return most

    def clean(self, allocation: str, started: bool, nodes: tuple[str, ...], change: Change) -> None:
        """Note that an allocation is being given back: its cards count as out of service, not as in use."""
        known = [self.nodes[name] for name in nodes if name in self.nodes]
        for node in known:
            self._count(node, -1)
        (self.cleaning.add if started else self.cleaning.discard)(allocation)
        for node in known:
            self._count(node, +1)
            self._view(node, change)

    # ---- holds

    def left_on(self, node: Node, room: Room, holds: Iterable[Hold]) -> Room:
        """Return what these holds leave of what a node offers."""
        holds = tuple(holds)
        return left_over(room, holds, partial(self._by, node, room)) if holds else room

    def _by(self, node: Node, room: Room, at: datetime | None) -> Room:
        ended = (
            allocation
            for allocation in node.holdings
            if allocation in self.cleaning or (at and allocation in self.ends and self.ends[allocation] <= at)
        )
        return freed(room, node, ended, usable)

    def keep(self, order: str, hold: Hold | None, change: Change) -> None:
        """Keep a place for an order, or (None) no longer."""
        self.mark += 1
        old = self.holds.pop(order, None)
        for pick in old.picks if old else ():
            there = self.kept.get(pick.node, {})
            there.pop(order, None)
            if not there:
                self.kept.pop(pick.node, None)
        if hold is not None:
            self.holds[order] = hold
            for pick in hold.picks:
                self.kept.setdefault(pick.node, {})[order] = hold
        for name in {pick.node for each in (old, hold) if each for pick in each.picks}:
            if name not in self.nodes:
                continue
            self._view(self.nodes[name], change)
            # Whoever ends before it may take what is kept, and nobody was asked about that yet.
            room = self.views[Sight.FREE].rooms[seat(name)]
            for kind in room.kinds:
                change.gain(kind[0], room.free.get(kind, 0))

    def ends_at(self, allocation: str, end: datetime | None, nodes: Iterable[str], change: Change) -> None:
        """Note when a lease ends; None = that is not known, or it is over."""
        if end is None:
            self.ends.pop(allocation, None)
        else:
            self.ends[allocation] = end
        for name in nodes:
            if self.kept.get(name) and name in self.nodes:
                self._view(self.nodes[name], change)

    def for_whom(self, ask: Ask, priority: int, now: datetime) -> Mapping[str, Room]:
        """Return, by node, what holds that do not bind an order leave to it beyond what is open to all."""
        found: dict[str, Room] = {}
        lifted = {
            pick.node
            for hold in self.holds.values()
            if not hold.binds(ask, priority, now)
            for pick in hold.picks
            if pick.kind[0] in ask.shape.accelerators and pick.node in self.nodes
        }
        for name in lifted:
            binding = [hold for hold in self.kept[name].values() if hold.binds(ask, priority, now)]
            room = self.views[Sight.FREE].rooms[seat(name)]
            found[name] = self.left_on(self.nodes[name], room, binding)
        return found

    def reserved(self, key: str) -> View:
        """Return what is kept for one and is free, and nothing else."""
        view, hold = View(), self.holds.get(key)
        for name in dict.fromkeys(pick.node for pick in hold.picks) if hold else ():
            if name in self.nodes:
                room = self.views[Sight.FREE].rooms[seat(name)]
                kept = hold.needs(room)[0] if hold else {}
                free = {kind: min(count, room.free.get(kind, 0)) for kind, count in kept.items()}
                view.put(seat(name), room._replace(free={kind: count for kind, count in free.items() if count}))
        return view

    # ---- cards

    def free_cards(self, node: str, kind: Kind) -> Iterator[str]:
        """Yield the free cards of a kind on a node, by card id."""
        state = self.nodes[node]
        for card in state.cards.values():
            if not card.holders and (card.accelerator, card.memory_mib) == kind[:2] and is_usable(state, card):
                yield card.card

    def cut_cards(self, node: str, kind: Kind, after: Mapping[str, State]) -> Iterator[tuple[str, State]]:
        """Yield the cards of a kind on a node that may be used in part, each with its state, or that in `after`."""
        state = self.nodes[node]
        for card in state.cards.values():
            if card.allocation is None and (card.accelerator, card.memory_mib) == kind[:2] and is_usable(state, card):
                yield card.card, after.get(card.card) or card.state()

    def count(self, accelerators: tuple[str, ...], *classes: str) -> int:
        """Return how many cards of these types are in these classes."""
        return sum(self.counts[name][which] for name in accelerators if name in self.counts for which in classes)


def is_usable(node: Node, card: Card) -> bool:
    """Return whether the card may serve, leases apart."""
    return card.present and card.quarantine is None and card.health is Health.HEALTHY and node.cordon is None


def usable(node: Node, allocation: str) -> Iterator[Kind]:
    """Yield the kinds of the cards of an allocation that will serve again, one for each card."""
    for card in node.cards.values():
        if card.allocation == allocation and is_usable(node, card):
            yield card.accelerator, card.memory_mib, node.traits


def _cut(cuts: dict[Kind, list[State]], untouched: dict[Kind, int], kind: Kind, state: State) -> None:
    """Count a card that is used in part, or was."""
    if state == UNUSED:
        untouched[kind] = untouched.get(kind, 0) + 1
    else:
        cuts.setdefault(kind, []).append(state)


def _gains(old: Room | None, new: Room, change: Change) -> None:
    roomier = old is None or new.cpu_milli > old.cpu_milli or new.memory_mib > old.memory_mib
    for kind in new.kinds:
        count = new.free.get(kind, 0)
        if roomier or old is None or count > old.free.get(kind, 0) or _left(new, kind) > _left(old, kind):
            change.gain(kind[0], count)


def _left(room: Room, kind: Kind) -> int:
    """What slices may find room in, in thousandths of a card."""
    return MILLI * room.free.get(kind, 0) + sum(slack(state) for state in room.cut.get(kind, ()))
