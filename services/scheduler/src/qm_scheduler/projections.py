"""The documents of the scheduler: `nodes` (the fleet), `allocations` (every order heard of), `shares` (weights),
`workloads` (what was learned to be asked for)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from qm_events import Event, EventData
from qm_events.catalog import OrderCancelRequested, OrderExpired, OrderExtensionRequested, OrderReleaseRequested
from qm_events.provisioner import EnvironmentReady, EnvironmentReleaseStarted
from qm_events.scheduler import (
    AllocationAllocated,
    AllocationImpaired,
    AllocationPromised,
    AllocationQueued,
    AllocationReturned,
    AllocationWaiting,
    AllocationWithdrawn,
    KeptPlace,
    NodeRetired,
)
from qm_events.specs import Health, OrderRequest, PlacedUnit, WaitReason
from qm_scheduler.domain import Phase
from qm_scheduler.fleet import FACTS as NODE_FACTS
from qm_scheduler.fleet import Node
from qm_scheduler.fleet import evolve as evolve_node
from qm_scheduler.shares import SHARES
from qm_scheduler.workload import WORKLOADS
from qm_service.directory import DIRECTORY_PROJECTIONS
from qm_service.model import Fold, Projection


@dataclass(frozen=True, slots=True)
class Promised:
    """Where a place is kept for an order, and by when the leases there end."""

    places: tuple[KeptPlace, ...]
    until: datetime | None


@dataclass(frozen=True, slots=True)
class OrderDoc:
    """An order, as the queue and the calendar of lease ends need it."""

    order: str
    phase: Phase = Phase.UNKNOWN
    tenant: str = ""
    project: str = ""
    request: OrderRequest | None = None
    submitted_at: datetime | None = None
    queued_at: datetime | None = None
    reasons: tuple[WaitReason, ...] = ()
    """As last told."""
    since: datetime | None = None
    promise: Promised | None = None
    grants: int = 0
    """How often cards were given."""
    allocation: str = ""
    units: tuple[PlacedUnit, ...] = ()
    ready_at: datetime | None = None
    extended_to: datetime | None = None
    ended_at: datetime | None = None
    """When its end was first asked for or reached."""
    release_started_at: datetime | None = None
    impaired: dict[str, Health] = field(default_factory=dict)
    """What was told of cards that it holds."""
    releasing: bool = False
    """The provisioner began to give the cards back."""

    @property
    def asked(self) -> OrderRequest:
        """What a queued order asks for. Raises ValueError before it is queued."""
        if self.request is None:
            raise ValueError(f"order {self.order} is not queued")
        return self.request

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue."""
        return self.phase is Phase.WAITING

    @property
    def is_holding(self) -> bool:
        """Whether it holds cards."""
        return self.phase is Phase.ALLOCATED

    @property
    def ends_at(self) -> datetime | None:
        """When the lease ends; None = no end is known (yet): a duration counts from READY."""
        if self.request is None or self.extended_to is not None:
            return self.extended_to
        ends = [self.request.expires_at] if self.request.expires_at else []
        if self.ready_at and self.request.duration_seconds:
            ends.append(self.ready_at + timedelta(seconds=self.request.duration_seconds))
        return min(ends, default=None)


def _changed(change: Callable[[Any], Mapping[str, Any]]) -> Fold[OrderDoc]:
    def apply(doc: OrderDoc | None, event: Event[Any]) -> OrderDoc:
        return replace(doc or OrderDoc(event.key), **change(event.data))

    return Fold(apply)


def _allocated(doc: OrderDoc | None, event: Event[AllocationAllocated]) -> OrderDoc:
    doc, fact = doc or OrderDoc(event.key), event.data
    return replace(
        doc,
        phase=Phase.ALLOCATED,
        grants=doc.grants + 1,
        allocation=fact.allocation,
        units=fact.units,
        reasons=(),
        since=None,
        promise=None,
    )


def _ended(doc: OrderDoc | None, event: Event[Any], at: datetime) -> OrderDoc:
    doc = doc or OrderDoc(event.key)
    return doc if doc.ended_at and doc.ended_at <= at else replace(doc, ended_at=at)


def _impaired(doc: OrderDoc | None, event: Event[AllocationImpaired]) -> OrderDoc:
    doc, fact = doc or OrderDoc(event.key), event.data
    return replace(doc, impaired={**doc.impaired, fact.card: fact.health})


ORDER_FOLDS: Mapping[type[EventData], Fold[OrderDoc]] = {
    AllocationQueued: _changed(
        lambda fact: {
            "phase": Phase.WAITING,
            "tenant": fact.request.tenant,
            "project": fact.request.project,
            "request": fact.request,
            "submitted_at": fact.submitted_at,
            "queued_at": fact.queued_at,
        }
    ),
    AllocationWaiting: _changed(lambda fact: {"reasons": fact.reasons, "since": fact.since}),
    AllocationPromised: _changed(lambda fact: {"promise": Promised(fact.places, fact.until) if fact.places else None}),
    AllocationAllocated: Fold(_allocated),
    AllocationImpaired: Fold(_impaired),
    AllocationWithdrawn: _changed(lambda _: {"phase": Phase.WITHDRAWN, "reasons": (), "since": None, "promise": None}),
    AllocationReturned: _changed(lambda _: {"phase": Phase.RETURNED}),
    EnvironmentReady: _changed(lambda fact: {"ready_at": fact.ready_at}),
    EnvironmentReleaseStarted: _changed(lambda fact: {"releasing": True, "release_started_at": fact.started_at}),
    OrderCancelRequested: Fold(lambda doc, event: _ended(doc, event, event.data.requested_at)),
    OrderReleaseRequested: Fold(lambda doc, event: _ended(doc, event, event.data.requested_at)),
    OrderExpired: Fold(lambda doc, event: _ended(doc, event, event.data.expired_at)),
    OrderExtensionRequested: _changed(lambda fact: {"extended_to": fact.expires_at}),
}

ALLOCATIONS = Projection(
    name="allocations",
    version=3,
    model=OrderDoc,
    folds=ORDER_FOLDS,
    resident=lambda doc: doc.is_waiting or doc.is_holding,
)


def _node(doc: Node | None, event: Event[Any]) -> Node:
    return evolve_node(doc or Node(), event.data)


def _retired(_: Node | None, _event: Event[Any]) -> None:
    return None


NODES = Projection(
    name="nodes",
    version=3,
    model=Node,
    folds={fact: Fold(_node) for fact in NODE_FACTS} | {NodeRetired: Fold(_retired)},
    resident=lambda _: True,
)

PROJECTIONS: Sequence[Projection[Any]] = (ALLOCATIONS, NODES, SHARES, WORKLOADS, *DIRECTORY_PROJECTIONS)
