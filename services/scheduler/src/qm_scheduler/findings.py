"""Claims that something is wrong with: who holds cards though nothing uses them, or though the order is over."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel

from qm_scheduler.fleet import Node
from qm_scheduler.projections import OrderDoc

ENDED = timedelta(minutes=5)
"""How long after its end an order may hold cards before giving them back begins."""
RETURNING = timedelta(hours=1)
"""How long giving back may take."""
UNOCCUPIED = timedelta(minutes=1)
"""How long after READY a card may be seen without its user."""


class Finding(BaseModel):
    """A claim that does not fit what is seen. Nothing is changed by finding it."""

    kind: Literal["order_ended", "return_overdue", "held_unoccupied"]
    """`order_ended`: the order is over and its cards are not being given back; `return_overdue`: giving back takes too
    long; `held_unoccupied`: cards are held by an order that is READY, and an agent sees nobody on them."""
    order: str
    tenant: str
    project: str
    cards: list[str]
    since: datetime
    detail: str
    remedy: str


def findings(docs: Mapping[str, OrderDoc], nodes: Mapping[str, Node], now: datetime) -> Iterator[Finding]:
    """Yield what is wrong with the claims of all orders that hold cards, by order."""
    for order in sorted(docs):
        doc = docs[order]
        if doc.is_holding:
            rules = (_order_ended, _return_overdue, _unoccupied)
            yield from (found for rule in rules if (found := rule(doc, nodes, now)))


def _cards(doc: OrderDoc) -> list[str]:
    return list(dict.fromkeys(card for unit in doc.units for card in unit.cards))


def _finding(doc: OrderDoc, cards: list[str] | None = None, **what: Any) -> Finding:
    return Finding(
        order=doc.order, tenant=doc.tenant, project=doc.project, cards=_cards(doc) if cards is None else cards, **what
    )


def _order_ended(doc: OrderDoc, _: Mapping[str, Node], now: datetime) -> Finding | None:
    if doc.ended_at is None or doc.releasing or now < doc.ended_at + ENDED:
        return None
    return _finding(
        doc,
        kind="order_ended",
        since=doc.ended_at,
        detail="The order is over and nobody began to give its cards back.",
        remedy="See what the provisioner does (lag, parked facts); or clear the claim, which isolates the cards.",
    )


def _return_overdue(doc: OrderDoc, _: Mapping[str, Node], now: datetime) -> Finding | None:
    if not doc.releasing or doc.release_started_at is None or now < doc.release_started_at + RETURNING:
        return None
    return _finding(
        doc,
        kind="return_overdue",
        since=doc.release_started_at,
        detail="Its cards are being cleaned for longer than that takes.",
        remedy="See the steps in GET /v1/environments/{order}; or clear the claim, which isolates the cards.",
    )


def _unoccupied(doc: OrderDoc, nodes: Mapping[str, Node], _: datetime) -> Finding | None:
    if doc.ready_at is None or doc.releasing:
        return None
    seen = [
        (card.card, card.occupied_at)
        for name in dict.fromkeys(unit.node for unit in doc.units)
        for card in nodes[name].cards.values()
        if doc.allocation in card.holders and card.occupied is False and card.occupied_at is not None
    ]
    idle = [(card, at) for card, at in seen if at >= doc.ready_at + UNOCCUPIED]
    if not idle:
        return None
    return _finding(
        doc,
        [card for card, _ in idle],
        kind="held_unoccupied",
        since=min(at for _, at in idle),
        detail="The cards are held and an agent sees nobody on them.",
        remedy="Ask the owner; if the environment is gone, release the order.",
    )
