"""What is known of a node and its cards, as a fold of the facts on `node/<node>`; `inventory` has the commands.

What several sources say of a card is kept apart; the worst of it is the card's health.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from qm_events import EventData
from qm_events.scheduler import (
    CardCleared,
    CardHealthChanged,
    CardOccupancyChanged,
    CardQuarantined,
    CardsHeld,
    CardSpec,
    CardsReturned,
    NodeCordoned,
    NodeRegistered,
    NodeRetired,
    NodeUncordoned,
)
from qm_events.specs import Health, PlacedSlice
from qm_scheduler.cuts import UNUSED, State, state_of

SEVERITY = (Health.HEALTHY, Health.UNKNOWN, Health.SUSPECT, Health.FAILED)
"""From best to worst."""
SICK = (Health.SUSPECT, Health.FAILED)
"""Unknown is not sick."""
RELAPSES_MAX = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """What one source said last of one card."""

    health: Health
    code: str
    message: str
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Part:
    """A slice of a card, and who holds it."""

    allocation: str
    slice: PlacedSlice


@dataclass(frozen=True, slots=True)
class Card:
    """A card, who holds it and what is wrong with it."""

    card: str
    accelerator: str
    memory_mib: int
    health: Health = Health.HEALTHY
    seen: dict[str, Observation] = field(default_factory=dict)
    """By source."""
    allocation: str | None = None
    """Who holds all of it."""
    parts: tuple[Part, ...] = ()
    """Who holds slices of it: then nobody holds all of it."""
    occupied: bool | None = None
    """Whether an agent sees somebody on it; None = nothing was said."""
    occupied_at: datetime | None = None
    freed_at: datetime | None = None
    """When it was last given back."""
    relapses: tuple[datetime, ...] = ()
    """When it last fell sick, the newest last."""
    quarantine: str | None = None
    """Why it is isolated until an operator clears it."""
    present: bool = True
    """False: the node was described anew without it; gone when it is given back well, or cleared."""

    @property
    def is_kept(self) -> bool:
        """Whether it is in the fleet though its node is described without it: held, isolated or not well, or else it
        would come back clean and well because it was away for a moment."""
        return bool(self.holders) or self.quarantine is not None or self.health is not Health.HEALTHY

    @property
    def holders(self) -> tuple[str, ...]:
        """The allocations that hold it or slices of it."""
        return (self.allocation,) if self.allocation is not None else tuple({part.allocation: 0 for part in self.parts})

    def state(self, gone: Container[str] = ()) -> State:
        """Return how it is used in part, without the slices of those who are `gone`."""
        if not self.parts:
            return UNUSED
        return state_of(part.slice for part in self.parts if part.allocation not in gone)

    @property
    def is_isolated(self) -> bool:
        """Whether it was taken out of use: isolated, or sick."""
        return self.quarantine is not None or self.health in SICK


@dataclass(frozen=True, slots=True)
class Holding:
    """What an allocation holds on the node beside its cards."""

    order: str
    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Node:
    """The state of a node's stream, and its document. Never registered: `node` is empty."""

    node: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    rack: str | None = None
    domain: str | None = None
    traits: tuple[str, ...] = ()
    cordon: str | None = None
    """Why it takes no new work."""
    cards: dict[str, Card] = field(default_factory=dict)
    """By card id, sorted."""
    holdings: dict[str, Holding] = field(default_factory=dict)
    """By allocation."""


def _with(node: Node, cards: Iterable[Card], **changes: Any) -> Node:
    return replace(node, cards={**node.cards, **{card.card: card for card in cards}}, **changes)


def _without_gone(node: Node) -> Node:
    return replace(node, cards={name: card for name, card in node.cards.items() if card.present or card.is_kept})


def _registered(node: Node, fact: NodeRegistered) -> Node:
    kept = {card.card: replace(card, present=False) for card in node.cards.values() if card.is_kept}
    told = {spec.card: _described(node.cards.get(spec.card), spec) for spec in fact.cards}
    return replace(
        node,
        node=fact.node,
        cpu_milli=fact.cpu_milli,
        memory_mib=fact.memory_mib,
        rack=fact.rack,
        domain=fact.domain,
        traits=tuple(fact.traits or ()),
        cards=dict(sorted({**kept, **told}.items())),
    )


def _described(known: Card | None, spec: CardSpec) -> Card:
    if known is None:
        return Card(spec.card, spec.accelerator, spec.memory_mib)
    return replace(known, accelerator=spec.accelerator, memory_mib=spec.memory_mib, present=True)


def _health_changed(node: Node, fact: CardHealthChanged) -> Node:
    card = node.cards[fact.card]
    seen = {**card.seen, fact.source: Observation(fact.health, fact.code, fact.message, fact.observed_at)}
    worst = max((observation.health for observation in seen.values()), key=SEVERITY.index)
    relapses = card.relapses
    if worst in SICK and card.health not in SICK:
        relapses = (*relapses, fact.observed_at)[-RELAPSES_MAX:]
    return _with(node, [replace(card, seen=dict(sorted(seen.items())), health=worst, relapses=relapses)])


def _given(card: Card, fact: CardsHeld) -> Card:
    if fact.slices is None:
        return replace(card, allocation=fact.allocation)
    mine = (Part(fact.allocation, one) for one in fact.slices if one.card == card.card)
    after = replace(card, parts=(*card.parts, *mine))
    after.state()  # Raises where slices overlap.
    return after


def _held(node: Node, fact: CardsHeld) -> Node:
    for card in fact.cards:
        known = node.cards[card]
        if known.allocation is not None or (known.parts and fact.slices is None):
            raise ValueError(f"card {card} is held by {known.holders} and given to {fact.allocation}")
    cards = [_given(node.cards[card], fact) for card in fact.cards]
    holding = Holding(fact.order, fact.cpu_milli, fact.memory_mib)
    return _with(node, cards, holdings={**node.holdings, fact.allocation: holding})


def _given_back(card: Card, fact: CardsReturned) -> Card:
    parts = tuple(part for part in card.parts if part.allocation != fact.allocation)
    isolated = fact.reason if card.card in fact.quarantined else card.quarantine
    return replace(card, allocation=None, parts=parts, quarantine=isolated, freed_at=fact.returned_at)


def _returned(node: Node, fact: CardsReturned) -> Node:
    cards = [_given_back(node.cards[card], fact) for card in (*fact.pooled, *fact.quarantined)]
    holdings = {key: holding for key, holding in node.holdings.items() if key != fact.allocation}
    return _without_gone(_with(node, cards, holdings=holdings))


def _cleared(node: Node, fact: CardCleared) -> Node:
    card = replace(node.cards[fact.card], quarantine=None, relapses=())
    # One that is away is out of the operator's hands: what was said of its health goes with it.
    return _without_gone(_with(node, [card if card.present else replace(card, seen={}, health=Health.HEALTHY)]))


FACTS: Mapping[type[EventData], Callable[[Node, Any], Node]] = {
    NodeRegistered: _registered,
    NodeCordoned: lambda node, fact: replace(node, cordon=fact.reason),
    NodeUncordoned: lambda node, _: replace(node, cordon=None),
    CardHealthChanged: _health_changed,
    CardsHeld: _held,
    CardsReturned: _returned,
    CardOccupancyChanged: lambda node, fact: _with(
        node, [replace(node.cards[fact.card], occupied=fact.occupied, occupied_at=fact.observed_at)]
    ),
    CardQuarantined: lambda node, fact: _with(node, [replace(node.cards[fact.card], quarantine=fact.reason)]),
    CardCleared: _cleared,
    NodeRetired: lambda _, __: Node(),
}


def evolve(node: Node, fact: Any) -> Node:
    """Return the node after a fact. Raises ValueError for a card given twice, KeyError for one that is not there."""
    return FACTS[type(fact)](node, fact)
