"""Each card's time in the fleet: when it was there, who held it, and what it was while nobody did. Pure.

Two documents, folded from the topic `fleet`: `claims`, one row for each allocation on a node, and `nodes`, the cards of
a node with the steps of what they count as while nobody holds them. Steps are rare: a card changes when it falls sick,
not when it is used.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

from qm_events import Event
from qm_events.scheduler import (
    CardCleared,
    CardHealthChanged,
    CardQuarantined,
    CardsHeld,
    CardsReturned,
    NodeCordoned,
    NodeRegistered,
    NodeRetired,
    NodeUncordoned,
)
from qm_events.specs import Health, Value
from qm_metering.intervals import Span, micros
from qm_service.model import Column, Fold, Projection

FOR_EVER_US = 2**62
"""Later than every instant: the end of what goes on."""


class Unheld(StrEnum):
    """What a card that nobody holds counts as; the first that is so."""

    QUARANTINED = "quarantined"
    UNHEALTHY = "unhealthy"
    MAINTENANCE = "maintenance"
    IDLE = "idle"


class Claim(Value):
    """The cards of a node that an allocation holds."""

    node: str
    allocation: str
    order: str
    cards: tuple[str, ...]
    from_us: int
    to_us: int | None = None


class CardTime(Value):
    """A stay of a card in the fleet."""

    card: str
    accelerator: str
    from_us: int
    to_us: int | None = None
    leaving: bool = False
    """The node was described without it while somebody held it."""
    held_by: str | None = None
    quarantined: bool = False
    sick: tuple[str, ...] = ()
    """The sources that speak against it."""
    steps: tuple[tuple[int, Unheld], ...]
    """(since, class), the oldest first."""

    @property
    def span(self) -> Span:
        """From when to when it was there."""
        return Span(self.from_us, self.to_us)

    def unheld(self) -> Iterator[tuple[Unheld, Span]]:
        """Yield its classes with their spans; they touch and add up to `span`."""
        ends = [*(at for at, _ in self.steps[1:]), self.to_us]
        return ((name, Span(at, end)) for (at, name), end in zip(self.steps, ends, strict=True))


class FleetNode(Value):
    """The cards that are, or were, on a node."""

    node: str
    cordoned: bool = False
    cards: tuple[CardTime, ...] = ()
    """By card and time."""


def _is(card: CardTime, *, cordoned: bool) -> Unheld:
    if card.quarantined:
        return Unheld.QUARANTINED
    return Unheld.UNHEALTHY if card.sick else Unheld.MAINTENANCE if cordoned else Unheld.IDLE


def _stepped(card: CardTime, at_us: int, *, cordoned: bool) -> CardTime:
    """Return the card with a step where it counts as something else now. A clock that went back makes no step back."""
    since, last = card.steps[-1]
    if (now := _is(card, cordoned=cordoned)) is last:
        return card
    at_us = max(at_us, since)
    kept = card.steps[:-1] if at_us == since else card.steps
    return card.model_copy(update={"steps": (*kept, (at_us, now))})


Change = Callable[[CardTime], CardTime]


def _changed(doc: FleetNode, at_us: int, cards: Iterable[str] | None, change: Change) -> FleetNode:
    wanted = None if cards is None else set(cards)

    def one(card: CardTime) -> CardTime:
        if card.to_us is not None or (wanted is not None and card.card not in wanted):
            return card
        return _stepped(change(card), at_us, cordoned=doc.cordoned)

    return doc.model_copy(update={"cards": tuple(map(one, doc.cards))})


def _gone(card: CardTime, at_us: int) -> CardTime:
    return card.model_copy(update={"to_us": max(at_us, card.steps[-1][0])})


def _registered(doc: FleetNode | None, event: Event[NodeRegistered]) -> FleetNode:
    doc, at_us = doc or FleetNode(node=event.data.node), micros(event.time)
    told = {spec.card: spec for spec in event.data.cards}
    present = {card.card: card for card in doc.cards if card.to_us is None}

    def one(card: CardTime) -> CardTime:
        if card.to_us is not None:
            return card
        spec = told.get(card.card)
        if spec is not None and spec.accelerator == card.accelerator:
            return card.model_copy(update={"leaving": False})
        return card.model_copy(update={"leaving": True}) if card.held_by and spec is None else _gone(card, at_us)

    kept = list(map(one, doc.cards))
    stays = {card.card for card in kept if card.to_us is None}
    new = (
        CardTime(
            card=name,
            accelerator=spec.accelerator,
            from_us=at_us,
            held_by=present[name].held_by if name in present else None,
            steps=((at_us, Unheld.MAINTENANCE if doc.cordoned else Unheld.IDLE),),
        )
        for name, spec in told.items()
        if name not in stays
    )
    cards = sorted((*kept, *new), key=lambda card: (card.card, card.from_us))
    return doc.model_copy(update={"cards": tuple(cards)})


def _retired(doc: FleetNode | None, event: Event[NodeRetired]) -> FleetNode | None:
    at_us = micros(event.data.retired_at)
    cards = tuple(card if card.to_us is not None else _gone(card, at_us) for card in doc.cards) if doc else ()
    return doc and doc.model_copy(update={"cards": cards, "cordoned": False})


def _cordon(*, on: bool) -> Fold[FleetNode]:
    def apply(doc: FleetNode | None, event: Event[Any]) -> FleetNode | None:
        return doc and _changed(doc.model_copy(update={"cordoned": on}), micros(event.time), None, lambda card: card)

    return Fold(apply)


def _sets(at: Callable[[Any], Any], change: Callable[[CardTime, Any], dict[str, Any]]) -> Fold[FleetNode]:
    def apply(doc: FleetNode | None, event: Event[Any]) -> FleetNode | None:
        data = event.data
        names = (data.card,) if hasattr(data, "card") else data.cards
        return doc and _changed(doc, micros(at(event)), names, lambda card: card.model_copy(update=change(card, data)))

    return Fold(apply)


def _health(card: CardTime, data: CardHealthChanged) -> dict[str, Any]:
    others = {source for source in card.sick if source != data.source}
    well = data.health in (Health.HEALTHY, Health.UNKNOWN)
    return {"sick": tuple(sorted(others if well else {*others, data.source}))}


def _returned(doc: FleetNode | None, event: Event[CardsReturned]) -> FleetNode | None:
    data, at_us = event.data, micros(event.data.returned_at)
    if doc is None:
        return None
    isolated = set(data.quarantined)
    doc = _changed(
        doc,
        at_us,
        (*data.pooled, *data.quarantined),
        lambda card: card.model_copy(
            update={"held_by": None, "quarantined": card.quarantined or card.card in isolated}
        ),
    )
    cards = tuple(_gone(card, at_us) if card.leaving and card.held_by is None else card for card in doc.cards)
    return doc.model_copy(update={"cards": cards})


def _claimed(claim: Claim | None, event: Event[CardsHeld]) -> Claim:
    data = event.data
    return claim or Claim(
        node=data.node, allocation=data.allocation, order=data.order, cards=data.cards, from_us=micros(event.time)
    )


def _unclaimed(claim: Claim | None, event: Event[CardsReturned]) -> Claim | None:
    return claim and claim.model_copy(update={"to_us": max(claim.from_us, micros(event.data.returned_at))})


def _claim_key(event: Event[Any]) -> Sequence[str]:
    return (f"{event.data.node}/{event.data.allocation}",)


NODES: Projection[FleetNode] = Projection(
    name="nodes",
    version=1,
    model=FleetNode,
    folds={
        NodeRegistered: Fold(_registered),
        NodeRetired: Fold(_retired),
        NodeCordoned: _cordon(on=True),
        NodeUncordoned: _cordon(on=False),
        CardHealthChanged: _sets(lambda event: event.data.observed_at, _health),
        CardQuarantined: _sets(lambda event: event.data.quarantined_at, lambda _card, _data: {"quarantined": True}),
        CardCleared: _sets(lambda event: event.data.cleared_at, lambda _card, _data: {"quarantined": False}),
        CardsHeld: _sets(lambda event: event.time, lambda _card, data: {"held_by": data.allocation}),
        CardsReturned: Fold(_returned),
    },
    resident=lambda _: True,
)

CLAIMS: Projection[Claim] = Projection(
    name="claims",
    version=1,
    model=Claim,
    folds={CardsHeld: Fold(_claimed, _claim_key), CardsReturned: Fold(_unclaimed, _claim_key)},
    columns={
        "node": Column(str, lambda claim: claim.node),
        "cards": Column(int, lambda claim: len(claim.cards)),
        "from_us": Column(int, lambda claim: claim.from_us),
        "to_us": Column(int, lambda claim: FOR_EVER_US if claim.to_us is None else claim.to_us),
    },
    resident=lambda claim: claim.to_us is None,
)
