"""The fleet as the scheduler decides on it: an index over the node documents, kept in step one node at a time.

Four views answer four questions: what is free now (FREE), what would be if all that is out of service were well
(WELL), if all leases had ended (IDLE), and both (ALL). Placement reads FREE; the others tell reasons apart. Only a card
that is healthy, clean, unheld and on a node without a cordon is free. Nothing here is on the log: it follows from the
documents.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from qm_events.specs import Health
from qm_scheduler.fleet import Card, Node
from qm_scheduler.view import Kind, Room, View, seat

_ISOLATED: Mapping[Health, str] = {
    Health.FAILED: "failed",
    Health.SUSPECT: "suspect",
    Health.UNKNOWN: "unknown",
}
CLASSES = ("free", "held", "cleaning", "suspect", "failed", "unknown", "quarantined", "cordoned")
"""Each card is in exactly one; a held card is held, whatever its health."""
OUT_OF_SERVICE = ("suspect", "failed", "unknown", "quarantined", "cordoned", "cleaning")


class Sight(StrEnum):
    """The four views."""

    FREE = "free"
    WELL = "well"
    IDLE = "idle"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Change:
    """The accelerator types of which a change of one node may alter an answer."""

    gained: frozenset[str] = frozenset()
    """More may fit now, or more could be served by the ends of leases, or less."""
    seen: frozenset[str] = frozenset()
    """Figures changed."""
    inventory: frozenset[str] = frozenset()
    """What exists changed."""


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
    gains: Counter[str] = field(default_factory=Counter)
    """accelerator -> how often more may have become possible; until it moves, what did not fit does not fit."""

    def put(self, node: Node) -> Change:
        """Follow one node, also for the first time."""
        old = self.nodes.get(node.node)
        self._count(old, -1)
        self._count(node, +1)
        for card in old.cards if old else ():
            self.homes.pop(card, None)
        self.homes.update(dict.fromkeys(node.cards, node.node))
        self.nodes[node.node] = node
        return self._view(node)

    def _count(self, node: Node | None, by: int) -> None:
        if node is None:
            return
        for card in node.cards.values():
            self.counts.setdefault(card.accelerator, Counter())[self.class_of(node, card)] += by

    def class_of(self, node: Node, card: Card) -> str:
        """Return the one of CLASSES that the card is in."""
        if card.allocation is not None:
            return "cleaning" if card.allocation in self.cleaning else "held"
        if card.quarantine is not None:
            return "quarantined"
        if card.health is not Health.HEALTHY:
            return _ISOLATED[card.health]
        return "free" if node.cordon is None else "cordoned"

    def _view(self, node: Node) -> Change:
        key = seat(node.node)
        gained: set[str] = set()
        seen: set[str] = set()
        inventory: set[str] = set()
        for sight, room in self._rooms(node).items():
            view = self.views[sight]
            old = view.rooms.get(key)
            if old == room:
                continue
            view.put(key, room)
            types = {kind[0] for kind in (*(old.free if old else ()), *room.free)}
            seen |= types
            if sight is Sight.ALL:
                inventory |= types
            if sight is Sight.IDLE or (sight is Sight.FREE and not _is_loss(old, room)):
                gained |= types
        self.gains.update(gained)
        return Change(frozenset(gained), frozenset(seen), frozenset(inventory))

    def _rooms(self, node: Node) -> dict[Sight, Room]:
        cards: dict[Sight, dict[Kind, int]] = {sight: {} for sight in Sight}
        for card in node.cards.values():
            for sight in self._sights(node, card):
                kind = (card.accelerator, card.memory_mib)
                cards[sight][kind] = cards[sight].get(kind, 0) + 1
        rack, domain = seat(node.rack or f"\0{node.node}"), seat(node.domain or f"\0{node.node}")
        busy = list(node.holdings.items())
        rest = [(key, holding) for key, holding in busy if key not in self.cleaning]
        taken = {Sight.FREE: busy, Sight.WELL: rest}
        return {
            sight: Room(
                node.node,
                cards[sight],
                node.cpu_milli - sum(holding.cpu_milli for _, holding in taken.get(sight, ())),
                node.memory_mib - sum(holding.memory_mib for _, holding in taken.get(sight, ())),
                rack,
                domain,
            )
            for sight in Sight
        }

    def _sights(self, node: Node, card: Card) -> Iterator[Sight]:
        if not card.present:
            return
        usable = is_usable(node, card)
        yield Sight.ALL
        if usable:
            yield Sight.IDLE
        if card.allocation is None or card.allocation in self.cleaning:
            yield Sight.WELL
        if usable and card.allocation is None:
            yield Sight.FREE

    def clean(self, allocation: str, started: bool, nodes: tuple[str, ...]) -> Change:
        """Note that an allocation is being given back: its cards count as out of service, not as in use."""
        known = [self.nodes[name] for name in nodes if name in self.nodes]
        for node in known:
            self._count(node, -1)
        (self.cleaning.add if started else self.cleaning.discard)(allocation)
        changes = []
        for node in known:
            self._count(node, +1)
            changes.append(self._view(node))
        return Change(seen=frozenset().union(*(change.seen for change in changes)))

    def free_cards(self, node: str, kind: Kind) -> Iterator[str]:
        """Yield the free cards of a kind on a node, by card id."""
        state = self.nodes[node]
        for card in state.cards.values():
            if card.allocation is None and (card.accelerator, card.memory_mib) == kind and is_usable(state, card):
                yield card.card

    def count(self, accelerators: tuple[str, ...], *classes: str) -> int:
        """Return how many cards of these types are in these classes."""
        return sum(self.counts[name][which] for name in accelerators if name in self.counts for which in classes)


def is_usable(node: Node, card: Card) -> bool:
    """Return whether the card may serve, leases apart."""
    return card.present and card.quarantine is None and card.health is Health.HEALTHY and node.cordon is None


def _is_loss(old: Room | None, new: Room) -> bool:
    """Return whether nothing can fit into `new` that did not fit into `old`."""
    return (
        old is not None
        and new.cpu_milli <= old.cpu_milli
        and new.memory_mib <= old.memory_mib
        and (new.rack, new.domain) == (old.rack, old.domain)
        and all(count <= old.free.get(kind, 0) for kind, count in new.free.items())
    )
