"""The documents of the scheduler: `nodes` (the fleet), `allocations` (every order heard of), `shares` (weights),
`workloads` (what was learned to be asked for)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from qm_events import Event, EventData
from qm_events.admission import OrderAdmitted, OrderResumed, OrderSuspended
from qm_events.catalog import OrderCancelRequested, OrderExpired, OrderExtensionRequested, OrderReleaseRequested
from qm_events.provisioner import (
    EnvironmentFailed,
    EnvironmentReady,
    EnvironmentReleased,
    EnvironmentReleaseStarted,
    EnvironmentValidated,
)
from qm_events.scheduler import (
    AllocationAllocated,
    AllocationImpaired,
    AllocationPreempted,
    AllocationPromised,
    AllocationQueued,
    AllocationReturned,
    AllocationWaiting,
    AllocationWithdrawn,
    KeptPlace,
    NodeRetired,
)
from qm_events.specs import Amounts, Health, OrderRequest, PlacedUnit, WaitReason
from qm_scheduler.allocation import Phase
from qm_scheduler.fleet import FACTS as NODE_FACTS
from qm_scheduler.fleet import Node
from qm_scheduler.fleet import evolve as evolve_node
from qm_scheduler.holds import BUILD
from qm_scheduler.reservations import RESERVATIONS
from qm_scheduler.shares import SHARES
from qm_scheduler.workload import WORKLOADS
from qm_service.directory import DIRECTORY_PROJECTIONS
from qm_service.model import Fold, Projection


@dataclass(frozen=True, slots=True)
class Promised:
    """Where a place is kept for an order, and by when the leases there end."""

    places: tuple[KeptPlace, ...]
    until: datetime | None
    victims: tuple[str, ...] = ()
    """Allocations that give their cards up for it."""


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
    """When the environment on these cards was."""
    first_ready_at: datetime | None = None
    """When the first environment of the order was; its duration counts from there."""
    extended_to: datetime | None = None
    ended_at: datetime | None = None
    """When its end was first asked for or reached."""
    release_started_at: datetime | None = None
    impaired: dict[str, Health] = field(default_factory=dict)
    """What was told of cards that it holds."""
    releasing: bool = False
    """The cards are being given back."""
    suspended: bool = False
    """It waits for card-hours, and not in the queue."""
    gone: str = ""
    """The allocation of which nothing is left at the backend."""
    allocated_at: datetime | None = None
    """Since when it holds these cards."""
    borrowed: Amounts | None = None
    """What it takes beyond the nominal quota of its project."""
    reclaims: Amounts | None = None
    """What of it is lent to others."""
    evicted: tuple[datetime, ...] = ()
    """When it had to leave for another, lately."""
    reclaimed: tuple[datetime, ...] = ()
    """When of these it gave back what it borrowed."""
    not_before: datetime | None = None
    """It is given nothing before this time."""

    @property
    def asked(self) -> OrderRequest:
        """What a queued order asks for. Raises ValueError before it is queued."""
        if self.request is None:
            raise ValueError(f"order {self.order} is not queued")
        return self.request

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue."""
        return self.phase is Phase.WAITING and not self.suspended

    @property
    def is_holding(self) -> bool:
        """Whether it holds cards."""
        return self.phase in (Phase.ALLOCATED, Phase.PREEMPTED)

    @property
    def may_give_up(self) -> bool:
        """Whether it holds cards that nobody has begun to take back."""
        return self.phase is Phase.ALLOCATED and not self.releasing and self.ended_at is None

    @property
    def ends_at(self) -> datetime | None:
        """When the lease ends; None = it has no end. A duration counts from READY; until then that is taken to be
        `BUILD` after the allocation, as when the place was chosen."""
        if self.request is None or self.extended_to is not None:
            return self.extended_to
        ends = [self.request.expires_at] if self.request.expires_at else []
        ready_at = self.first_ready_at or (self.allocated_at + BUILD if self.allocated_at else None)
        if ready_at and self.request.duration_seconds:
            ends.append(ready_at + timedelta(seconds=self.request.duration_seconds))
        return min(ends, default=None)


EVICTIONS = ("preempted", "reclaimed")
"""Causes for which an order has to leave for another one."""
LATELY_MAX = 256
"""So many times are remembered; no law counts further."""


def _changed(change: Callable[[Any], Mapping[str, Any]]) -> Fold[OrderDoc]:
    def apply(doc: OrderDoc | None, event: Event[Any]) -> OrderDoc:
        return replace(doc or OrderDoc(event.key), **change(event.data))

    return Fold(apply)


_NOTHING_HELD: Mapping[str, Any] = {
    "allocation": "",
    "units": (),
    "ready_at": None,
    "release_started_at": None,
    "impaired": {},
    "releasing": False,
}


def _allocated(doc: OrderDoc | None, event: Event[AllocationAllocated]) -> OrderDoc:
    doc, fact = doc or OrderDoc(event.key), event.data
    return replace(
        doc,
        phase=Phase.ALLOCATED,
        grants=doc.grants + 1,
        allocation=fact.allocation,
        units=fact.units,
        allocated_at=fact.allocated_at,
        not_before=None,
        reasons=(),
        since=None,
        promise=None,
    )


def _promised(fact: AllocationPromised) -> Promised:
    return Promised(fact.places, fact.until, fact.victims or ())


def _ended(doc: OrderDoc | None, event: Event[Any], at: datetime) -> OrderDoc:
    doc = doc or OrderDoc(event.key)
    return doc if doc.ended_at and doc.ended_at <= at else replace(doc, ended_at=at)


def _failed(doc: OrderDoc | None, event: Event[EnvironmentFailed]) -> OrderDoc:
    return doc or OrderDoc(event.key) if event.data.elsewhere else _ended(doc, event, event.data.failed_at)


def _impaired(doc: OrderDoc | None, event: Event[AllocationImpaired]) -> OrderDoc:
    doc, fact = doc or OrderDoc(event.key), event.data
    return replace(doc, impaired={**doc.impaired, fact.card: fact.health})


def _ready(doc: OrderDoc | None, event: Event[EnvironmentReady]) -> OrderDoc:
    doc, at = doc or OrderDoc(event.key), event.data.ready_at
    doc = replace(doc, first_ready_at=min(at, doc.first_ready_at or at))
    return replace(doc, ready_at=at) if _is_now(doc, event) else doc


def _giving_back(doc: OrderDoc | None, event: Event[Any], at: datetime) -> OrderDoc:
    doc = doc or OrderDoc(event.key)
    if not _is_now(doc, event):
        return doc
    return replace(doc, releasing=True, release_started_at=min(at, doc.release_started_at or at))


def _preempted(doc: OrderDoc | None, event: Event[AllocationPreempted]) -> OrderDoc:
    doc, fact = _giving_back(doc, event, event.data.preempted_at), event.data
    return replace(
        doc,
        phase=Phase.PREEMPTED,
        evicted=_lately(doc.evicted, fact, EVICTIONS),
        reclaimed=_lately(doc.reclaimed, fact, ("reclaimed",)),
        not_before=fact.not_before,
    )


def _lately(known: tuple[datetime, ...], fact: AllocationPreempted, causes: tuple[str, ...]) -> tuple[datetime, ...]:
    """Add one to the newest times; their order does not depend on that of the facts."""
    return tuple(sorted((*known, fact.preempted_at))[-LATELY_MAX:]) if fact.cause in causes else known


def _is_now(doc: OrderDoc, event: Event[Any]) -> bool:
    """Tell whether a fact is about the allocation at hand. Own facts are always known before what follows from them:
    another one is an earlier one."""
    allocation: str = event.data.allocation
    return doc.allocation == allocation


ORDER_FOLDS: Mapping[type[EventData], Fold[OrderDoc]] = {
    OrderAdmitted: _changed(lambda fact: {"borrowed": fact.borrowed, "reclaims": fact.reclaims}),
    AllocationQueued: _changed(
        lambda fact: {
            "phase": Phase.WAITING,
            "tenant": fact.request.tenant,
            "project": fact.request.project,
            "request": fact.request,
            "submitted_at": fact.submitted_at,
            "queued_at": fact.queued_at,
            **_NOTHING_HELD,
        }
    ),
    AllocationWaiting: _changed(lambda fact: {"reasons": fact.reasons, "since": fact.since}),
    AllocationPromised: _changed(lambda fact: {"promise": _promised(fact) if fact.places else None}),
    AllocationAllocated: Fold(_allocated),
    AllocationImpaired: Fold(_impaired),
    AllocationWithdrawn: _changed(lambda _: {"phase": Phase.WITHDRAWN, "reasons": (), "since": None, "promise": None}),
    AllocationPreempted: Fold(_preempted),
    AllocationReturned: _changed(lambda fact: {"phase": Phase.ASIDE if fact.lives_on else Phase.RETURNED}),
    EnvironmentReady: Fold(_ready),
    EnvironmentReleaseStarted: Fold(lambda doc, event: _giving_back(doc, event, event.data.started_at)),
    EnvironmentFailed: Fold(_failed),
    EnvironmentValidated: _changed(lambda fact: {"gone": fact.allocation}),
    EnvironmentReleased: _changed(lambda fact: {"gone": fact.allocation}),
    OrderSuspended: _changed(lambda _: {"suspended": True}),
    OrderResumed: _changed(lambda _: {"suspended": False}),
    OrderCancelRequested: Fold(lambda doc, event: _ended(doc, event, event.data.requested_at)),
    OrderReleaseRequested: Fold(lambda doc, event: _ended(doc, event, event.data.requested_at)),
    OrderExpired: Fold(lambda doc, event: _ended(doc, event, event.data.expired_at)),
    OrderExtensionRequested: _changed(lambda fact: {"extended_to": fact.expires_at}),
}

ALLOCATIONS = Projection(
    name="allocations",
    version=5,
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
    version=4,
    model=Node,
    folds={fact: Fold(_node) for fact in NODE_FACTS} | {NodeRetired: Fold(_retired)},
    resident=lambda _: True,
)


@dataclass(frozen=True, slots=True)
class Evictions:
    """When orders had to leave cards of one type for others, lately."""

    times: tuple[datetime, ...] = ()


def _evicted(doc: Evictions | None, event: Event[AllocationPreempted]) -> Evictions:
    return Evictions(_lately((doc or Evictions()).times, event.data, EVICTIONS))


PRESSURE = Projection(
    name="evictions",
    version=1,
    model=Evictions,
    folds={AllocationPreempted: Fold(_evicted, keys=lambda event: event.data.accelerators or ())},
    resident=lambda _: True,
)

LIVE: Sequence[Projection[Any]] = (NODES, SHARES, PRESSURE, RESERVATIONS, WORKLOADS, ALLOCATIONS)
"""All that decisions look at; nodes first, as a restart reads them."""
PROJECTIONS: Sequence[Projection[Any]] = (*LIVE, *DIRECTORY_PROJECTIONS)
