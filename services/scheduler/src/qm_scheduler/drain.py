"""What stands between a node and its repair: the orders on it, and when their leases end."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from qm_scheduler.fleet import Node
from qm_scheduler.projections import OrderDoc


class DrainOrder(BaseModel):
    """An order that holds cards of the node."""

    order: str
    tenant: str
    project: str
    cards: list[str]
    ends_at: datetime | None
    """When its lease ends; null: no end is known, somebody must ask its owner."""
    returning: bool
    """Its cards are being cleaned already."""


class DrainView(BaseModel):
    """A drain: the node takes no new work, and is empty when these have ended."""

    node: str
    cordoned: bool
    cordon_reason: str | None
    empty: bool
    """Nothing is held: it can be repaired or retired."""
    empty_at: datetime | None
    """When it will be empty if leases end as promised; null: that is not known, or it is empty."""
    without_end: int
    """Orders of which no end is known."""
    orders: list[DrainOrder]


def drain_view(node: Node, docs: Mapping[str, Any]) -> DrainView:
    """Return who is on the node, the first end first; `docs` are the resident allocations."""
    orders = [_order(node, docs[holding.order]) for holding in node.holdings.values()]
    orders.sort(key=lambda each: (not each.returning, each.ends_at is None, each.ends_at, each.order))
    open_ended = [each for each in orders if each.ends_at is None and not each.returning]
    ends = [each.ends_at for each in orders if each.ends_at is not None]
    return DrainView(
        node=node.node,
        cordoned=node.cordon is not None,
        cordon_reason=node.cordon,
        empty=not orders,
        empty_at=None if open_ended else max(ends, default=None),
        without_end=len(open_ended),
        orders=orders,
    )


def _order(node: Node, doc: OrderDoc) -> DrainOrder:
    return DrainOrder(
        order=doc.order,
        tenant=doc.tenant,
        project=doc.project,
        cards=[card.card for card in node.cards.values() if doc.allocation in card.holders],
        ends_at=doc.ends_at,
        returning=doc.releasing,
    )
