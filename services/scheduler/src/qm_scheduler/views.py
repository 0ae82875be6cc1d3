"""What the routes take and give."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from qm_events.scheduler import CardSpec, NodeRegistered
from qm_events.specs import Health, PlacedSlice, Text, WaitReason
from qm_events.units import SHARES_OF_A_CARD, DnsLabel, MemoryMib, MilliCpu
from qm_scheduler.board import Board
from qm_scheduler.estimate import estimate
from qm_scheduler.fleet import Card, Node
from qm_scheduler.health import Name
from qm_scheduler.own import own_reasons
from qm_scheduler.pool import CLASSES, Pool
from qm_scheduler.projections import OrderDoc
from qm_scheduler.reasons import explain
from qm_scheduler.shares import WEIGHT_MAX
from qm_scheduler.standing import Project


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CardInput(_Input):
    """A card of a node; its id is unique in the fleet."""

    card: Name
    accelerator: DnsLabel
    memory_mib: MemoryMib


class NodeInput(_Input):
    """A node as it is now; a card that is left out is gone once nobody holds it."""

    cpu_milli: MilliCpu
    memory_mib: MemoryMib
    cards: Annotated[list[CardInput], Field(max_length=256)]
    rack: Name | None = None
    domain: Name | None = None
    traits: Annotated[list[DnsLabel], Field(max_length=32)] | None = None
    """What the node has that not every node has; a specification may ask for it."""

    @model_validator(mode="after")
    def _names_each_card_once(self) -> "NodeInput":
        if len({card.card for card in self.cards}) < len(self.cards):
            raise ValueError("a card is named twice")
        return self

    def fact(self, node: str) -> NodeRegistered:
        """Return the description as a fact."""
        return NodeRegistered(
            node=node,
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
            cards=tuple(CardSpec(**card.model_dump()) for card in self.cards),
            rack=self.rack,
            domain=self.domain,
            traits=tuple(self.traits) if self.traits else None,
        )


class CordonInput(_Input):
    """Why the node takes no new work, or leaves the fleet."""

    reason: Text


class ShareInput(_Input):
    """How much the turns of a project weigh: with 2, it gets twice as many cards as one with 1 before its turn ends."""

    weight: Annotated[int, Field(ge=1, le=WEIGHT_MAX, strict=True)]


class ShareView(BaseModel):
    """What decides whose turn it is within a priority: the project with the smallest `share` is next."""

    tenant: str
    project: str
    weight: int
    cards_held: int
    """Slices rounded up together."""
    share: str
    """Cards held by weight, as an exact ratio `cards/weight`."""
    waiting: int
    """Its orders in the queue."""


class ObservationView(BaseModel):
    """What one source said last."""

    source: str
    status: Health
    code: str
    message: str
    observed_at: datetime


class SliceView(BaseModel):
    """A slice of a card and who holds it."""

    order: str
    allocation: str
    slice: PlacedSlice


class CardView(BaseModel):
    """A card. `state`: free, held, partial (slices of it are held), cleaning, suspect, failed, unknown, quarantined or
    cordoned."""

    card: str
    node: str
    accelerator: str
    memory_mib: int
    state: str
    health: Health
    order: str | None
    allocation: str | None
    quarantine_reason: str | None
    present: bool
    slices: list[SliceView]
    """What is held of it where it is cut or shared; then `order` and `allocation` are null."""
    occupied: bool | None
    """Whether an agent sees somebody on it; null = nothing was said."""
    observations: list[ObservationView]


class NodeView(BaseModel):
    """A node with its cards."""

    node: str
    cpu_milli: int
    memory_mib: int
    cpu_milli_free: int
    memory_mib_free: int
    rack: str | None
    domain: str | None
    traits: list[str]
    cordoned: bool
    cordon_reason: str | None
    cards: list[CardView]


class TypeCapacity(BaseModel):
    """The cards of one accelerator type: `total` is the sum of the others but `reserved`."""

    accelerator: str
    total: int
    free: int
    held: int
    partial: int
    """Cards of which slices are held."""
    cleaning: int
    suspect: int
    failed: int
    unknown: int
    quarantined: int
    cordoned: int
    reserved: int
    """Of the free ones: kept for reservations that have begun."""
    parts: dict[str, str]
    """How the partial cards divide into these classes, as exact ratios: they add up to `partial`."""


class CapacityView(BaseModel):
    """The fleet by accelerator type."""

    items: list[TypeCapacity]


class QueueItem(BaseModel):
    """An order that waits. `position` counts all who wait for cards of its types, whoever they are."""

    order: str
    tenant: str
    project: str
    specification: str
    service_model: str
    accelerators: list[str]
    cards: int
    count: int
    priority: int
    submitted_at: datetime
    queued_at: datetime
    position: int
    reason: WaitReason | None
    reasons: list[WaitReason]
    since: datetime | None
    """Since when the first reason is what it is."""
    promised: bool
    """Whether a place is kept for it: others pass it there only if they end first."""
    estimate: datetime | None
    """When it may start if leases end as promised and nobody better ranked comes; null if unknown."""


def card_view(pool: Pool, node: Node, card: Card) -> CardView:
    """Return a card as an operator sees it."""
    holding = node.holdings.get(card.allocation or "")
    return CardView(
        card=card.card,
        node=node.node,
        accelerator=card.accelerator,
        memory_mib=card.memory_mib,
        state=pool.class_of(node, card),
        health=card.health,
        order=holding.order if holding else None,
        allocation=card.allocation,
        quarantine_reason=card.quarantine,
        present=card.present,
        slices=[
            SliceView(order=node.holdings[part.allocation].order, allocation=part.allocation, slice=part.slice)
            for part in card.parts
        ],
        occupied=card.occupied,
        observations=[
            ObservationView(
                source=source, status=told.health, code=told.code, message=told.message, observed_at=told.observed_at
            )
            for source, told in card.seen.items()
        ],
    )


def node_view(pool: Pool, node: Node) -> NodeView:
    """Return a node as an operator sees it."""
    return NodeView(
        node=node.node,
        cpu_milli=node.cpu_milli,
        memory_mib=node.memory_mib,
        cpu_milli_free=max(node.cpu_milli - sum(holding.cpu_milli for holding in node.holdings.values()), 0),
        memory_mib_free=max(node.memory_mib - sum(holding.memory_mib for holding in node.holdings.values()), 0),
        rack=node.rack,
        domain=node.domain,
        traits=list(node.traits),
        cordoned=node.cordon is not None,
        cordon_reason=node.cordon,
        cards=[card_view(pool, node, card) for card in node.cards.values()],
    )


def capacity_view(board: Board, now: datetime) -> CapacityView:
    """Return the counts of all types that the fleet has."""
    pool, reserved = board.pool, board.reserved(now)
    parts: dict[str, dict[str, Fraction]] = {name: {} for name in pool.counts}
    for node, card in pool.partial():
        for which, part in pool.split(node, card):
            parts[card.accelerator][which] = parts[card.accelerator].get(which, Fraction(0)) + part
    items = [
        TypeCapacity(
            accelerator=name,
            total=classes.total(),
            reserved=reserved.get(name, 0),
            parts={each: f"{part.numerator}/{part.denominator}" for each, part in sorted(parts[name].items())},
            **{each: classes[each] for each in CLASSES},
        )
        for name, classes in sorted(pool.counts.items())
        if classes.total()
    ]
    return CapacityView(items=items)


def queue_item(board: Board, docs: Mapping[str, OrderDoc], order: str, now: datetime) -> QueueItem:
    """Return a waiting order with the reasons that hold at this moment; `docs` are the resident allocations."""
    doc, waiting = docs[order], board.queue.orders[order]
    asked, line = doc.asked, board.line(order)
    reasons = explain(board.case(waiting.ask.shape), line, own_reasons(board, waiting.ask))
    return QueueItem(
        order=order,
        tenant=doc.tenant,
        project=doc.project,
        specification=asked.specification.name,
        service_model=asked.service_model,
        accelerators=list(asked.specification.accelerators),
        cards=asked.cards,
        count=asked.count,
        priority=asked.priority,
        submitted_at=waiting.seq[0],
        queued_at=doc.queued_at or waiting.seq[0],
        position=board.queue.ahead(order)[0] + 1,
        reason=reasons[0] if reasons else None,
        reasons=list(reasons),
        since=doc.since,
        promised=doc.promise is not None,
        estimate=estimate(board, docs, order, now),
    )


def share_view(board: Board, scope: str) -> ShareView:
    """Return the turn of a project."""
    tenant, _, name = scope.partition("/")
    project = board.queue.projects.get(scope, Project())
    return ShareView(
        tenant=tenant,
        project=name,
        weight=project.weight,
        cards_held=-(-project.held // SHARES_OF_A_CARD),
        share=_ratio(project),
        waiting=len(board.queue.scopes.get(scope, ())),
    )


def _ratio(project: Project) -> str:
    """Whole cards by weight as they are; with slices, in lowest terms."""
    cards = Fraction(project.held, SHARES_OF_A_CARD)
    share = cards / project.weight
    return f"{cards}/{project.weight}" if cards.denominator == 1 else f"{share.numerator}/{share.denominator}"


def cards_of(pool: Pool, after: tuple[str, str]) -> Iterator[tuple[Node, Card]]:
    """Yield all cards after (node, card), by node and card id."""
    for name in sorted(name for name in pool.nodes if name >= after[0]):
        node = pool.nodes[name]
        yield from ((node, card) for card in node.cards.values() if (name, card.card) > after)
