"""What can be asked of a node: streams `node/<node>`.

Health never decides under a lease: a card that fails in use stays held and is isolated when it comes back. A repetition
of what a source said last is no new fact, else heartbeats would fill the log.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
from qm_events.specs import PlacedSlice
from qm_scheduler.fleet import RELAPSES_MAX, Card, Node, Observation, evolve
from qm_service.model import Context, Decider, Decision, Rejected

FLAP_WINDOW = timedelta(minutes=60)
"""A card that falls sick `RELAPSES_MAX` times within this is isolated until an operator clears it."""

# ---- commands


@dataclass(frozen=True, slots=True)
class Describe:
    """Register the node, or describe it anew."""

    description: NodeRegistered


@dataclass(frozen=True, slots=True)
class Cordon:
    """Take no new work."""

    reason: str


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Take work again."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Take the node out of the fleet for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A source saw something on one card, or (card None) on all cards of the node."""

    card: str | None
    source: str
    observation: Observation
    occupied: bool | None = None
    """Whether it saw somebody on the card; None = it does not say."""


@dataclass(frozen=True, slots=True)
class Observe:
    """Take note of these observations, in this order."""

    seen: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class HoldCards:
    """Give the cards to an allocation."""

    order: str
    allocation: str
    cards: tuple[str, ...]
    cpu_milli: int
    memory_mib: int
    slices: tuple[PlacedSlice, ...] | None = None
    """The parts of them that it gets; None = all of each."""


@dataclass(frozen=True, slots=True)
class ReturnCards:
    """The allocation is over: cards that are not in `pooled` are isolated."""

    allocation: str
    pooled: tuple[str, ...]
    reason: str
    returned_at: datetime


@dataclass(frozen=True, slots=True)
class Clear:
    """Take a card out of quarantine, or out of the fleet if its node is described without it."""

    card: str


def _unknown(node: Node) -> Rejected | None:
    return None if node.node else Rejected("node-unknown", "No such node is in the fleet.", "Register it first.")


def _describe(node: Node, command: Describe, ctx: Context) -> Decision:
    told = command.description
    # The inventory is a set: its order is no change.
    cards = tuple(sorted(told.cards, key=lambda card: card.card))
    told = told.model_copy(update={"cards": cards, "traits": tuple(sorted(set(told.traits or ()))) or None})
    for card in told.cards:
        if (home := ctx.index.home_of(card.card)) not in (None, told.node):
            remedy = "Take it off that node first, and clear it if it is isolated or sick."
            return Rejected("card-elsewhere", f"Card {card.card} is on node {home}.", remedy)
    return [] if node.node and told == _description(node) else [told]


def _description(node: Node) -> NodeRegistered:
    cards = (
        CardSpec(card=card.card, accelerator=card.accelerator, memory_mib=card.memory_mib)
        for card in node.cards.values()
        if card.present
    )
    return NodeRegistered(
        node=node.node,
        cpu_milli=node.cpu_milli,
        memory_mib=node.memory_mib,
        cards=tuple(cards),
        rack=node.rack,
        domain=node.domain,
        traits=node.traits or None,
    )


def _cordon(node: Node, command: Cordon, _: Context) -> Decision:
    if refused := _unknown(node):
        return refused
    return [] if node.cordon == command.reason else [NodeCordoned(node=node.node, reason=command.reason)]


def _uncordon(node: Node, _command: Uncordon, _: Context) -> Decision:
    return _unknown(node) or ([] if node.cordon is None else [NodeUncordoned(node=node.node)])


def _retire(node: Node, command: Retire, ctx: Context) -> Decision:
    if refused := _unknown(node):
        return refused
    if node.holdings:
        count = len(node.holdings)
        detail = f"{count} allocation{'s hold' if count > 1 else ' holds'} cards of node {node.node}."
        return Rejected("node-in-use", detail, "Drain it, and retire it when nothing is held on it any more.")
    if isolated := [card.card for card in node.cards.values() if card.is_isolated]:
        # A node that leaves is forgotten with all its cards: registered again, they would be clean and well.
        remedy = "Clear each; one that is sick only after its node is described without it."
        return Rejected("node-isolates-cards", f"Isolated or sick on node {node.node}: {', '.join(isolated)}.", remedy)
    return [NodeRetired(node=node.node, reason=command.reason, retired_at=ctx.now)]


def _observe(node: Node, command: Observe, ctx: Context) -> Decision:
    if refused := _unknown(node):
        return refused
    last = {(card.card, source): told for card in node.cards.values() for source, told in card.seen.items()}
    facts: list[EventData] = []
    for seen in command.seen:
        for card in node.cards if seen.card is None else (seen.card,):
            if card not in node.cards:
                return Rejected("card-unknown", f"Card {card} is not on node {node.node}.")
            if is_news(last.get((card, seen.source)), seen.observation):
                last[card, seen.source] = seen.observation
                facts.append(_health(node.node, card, seen))
            facts += _occupied(node, node.cards[card], seen, ctx)
    return [*facts, *_flapping(node, facts, ctx)]


def says_more(card: Card, seen: Seen) -> bool:
    """Return whether a source saw somebody come or go, or somebody on a card that nobody holds."""
    at = seen.observation.observed_at
    if seen.occupied is None or (card.occupied_at and at <= card.occupied_at):
        return False
    return seen.occupied != card.occupied or (seen.occupied and _is_stray(card, at))


def _is_stray(card: Card, at: datetime) -> bool:
    """What was seen before the card was given back was its holder."""
    return not card.holders and card.quarantine is None and (card.freed_at is None or at > card.freed_at)


def _occupied(node: Node, card: Card, seen: Seen, ctx: Context) -> Iterator[EventData]:
    at = seen.observation.observed_at
    if not says_more(card, seen) or seen.occupied is None:
        return
    if seen.occupied != card.occupied:
        yield CardOccupancyChanged(
            node=node.node, card=card.card, occupied=seen.occupied, source=seen.source, observed_at=at
        )
    if seen.occupied and _is_stray(card, at):
        reason = "somebody is on it to whom it was not given"
        yield CardQuarantined(node=node.node, card=card.card, reason=reason, quarantined_at=ctx.now)


def _flapping(node: Node, facts: Sequence[EventData], ctx: Context) -> Iterator[CardQuarantined]:
    """A card that falls sick time and again is not well between."""
    after = node
    for fact in facts:
        after = evolve(after, fact)
    for card in after.cards.values():
        times = card.relapses
        if card.quarantine is not None or times == node.cards[card.card].relapses or len(times) < RELAPSES_MAX:
            continue
        if times[-1] - times[0] <= FLAP_WINDOW:
            minutes = int(FLAP_WINDOW.total_seconds()) // 60
            reason = f"flapping: fell sick {RELAPSES_MAX} times within {minutes} minutes"
            yield CardQuarantined(node=node.node, card=card.card, reason=reason, quarantined_at=ctx.now)


def is_news(last: Observation | None, told: Observation) -> bool:
    """Return whether a source says something that it did not say last."""
    if last is None:
        return True
    return told.observed_at > last.observed_at and (told.health, told.code) != (last.health, last.code)


def _health(node: str, card: str, seen: Seen) -> CardHealthChanged:
    told = seen.observation
    return CardHealthChanged(
        node=node,
        card=card,
        health=told.health,
        source=seen.source,
        code=told.code,
        message=told.message,
        observed_at=told.observed_at,
    )


def _hold(node: Node, command: HoldCards, _: Context) -> Decision:
    if command.allocation in node.holdings:
        return []
    return [
        CardsHeld(
            node=node.node,
            cards=command.cards,
            slices=command.slices,
            order=command.order,
            allocation=command.allocation,
            cpu_milli=command.cpu_milli,
            memory_mib=command.memory_mib,
        )
    ]


def _return(node: Node, command: ReturnCards, _: Context) -> Decision:
    if command.allocation not in node.holdings:
        return []
    mine = [card for card, state in node.cards.items() if command.allocation in state.holders]
    isolated = tuple(card for card in mine if card not in command.pooled)
    return [
        CardsReturned(
            node=node.node,
            allocation=command.allocation,
            pooled=tuple(card for card in mine if card in command.pooled),
            quarantined=isolated,
            reason=command.reason if isolated else "",
            returned_at=command.returned_at,
        )
    ]


def _clear(node: Node, command: Clear, ctx: Context) -> Decision:
    card = node.cards.get(command.card)
    if card is None:
        return Rejected("card-unknown", f"Card {command.card} is not in the fleet.")
    if card.quarantine is None and (card.present or card.allocation is not None):
        return []
    return [CardCleared(node=node.node, card=card.card, cleared_at=ctx.now)]


RULES: Mapping[type, Callable[[Node, Any, Context], Decision]] = {
    Describe: _describe,
    Cordon: _cordon,
    Uncordon: _uncordon,
    Retire: _retire,
    Observe: _observe,
    HoldCards: _hold,
    ReturnCards: _return,
    Clear: _clear,
}


def decide(node: Node, command: Any, ctx: Context) -> Decision:
    """Answer one command on a node."""
    return RULES[type(command)](node, command, ctx)


NODE = Decider("node", Node(), decide, evolve)
