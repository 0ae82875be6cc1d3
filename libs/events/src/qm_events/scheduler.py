"""Facts of the scheduler: the topics `allocations` (a public contract) and `fleet`."""

from typing import Literal

from pydantic import Field

from qm_events.audit import AccessAudited
from qm_events.envelope import EventData, UtcTime
from qm_events.registry import ALLOCATIONS, FLEET, event
from qm_events.specs import Health, OrderRequest, PlacedSlice, PlacedUnit, ShareMilli, Text, Value, WaitReason
from qm_events.units import DnsLabel, MemoryMib, MilliCpu

# ---- allocations: streams `allocation/<order>`


@event("allocation.queued", version=1, topic=ALLOCATIONS)
class AllocationQueued(EventData):
    """In the queue, ranked by priority, then by `submitted_at`, then by order id."""

    order: str
    request: OrderRequest
    submitted_at: UtcTime
    queued_at: UtcTime


@event("allocation.waiting", version=1, topic=ALLOCATIONS)
class AllocationWaiting(EventData):
    """Looked at and not placed: every reason that holds, the first is the reason. Written when the first changes."""

    order: str
    reasons: tuple[WaitReason, ...] = Field(min_length=1)
    since: UtcTime


class KeptPlace(Value):
    """Units for which a node is kept."""

    node: str
    accelerator: DnsLabel
    card_memory_mib: MemoryMib
    units: int = Field(ge=1, le=10_000, strict=True)


@event("allocation.promised", version=1, topic=ALLOCATIONS)
class AllocationPromised(EventData):
    """A place is kept for an order that must wait: others may pass it there only if they end first or leave enough.
    It replaces the promise before it; without places, that one is taken back. Ends with `allocated` or `withdrawn`."""

    order: str
    places: tuple[KeptPlace, ...]
    until: UtcTime | None = None
    """When the leases in the way end; null: that is not known."""
    victims: tuple[str, ...] | None = None
    """Allocations that give their cards up for this place, each told so in the same step."""
    promised_at: UtcTime


@event("allocation.allocated", version=1, topic=ALLOCATIONS)
class AllocationAllocated(EventData):
    """Cards are held for the order, from `allocated_at`."""

    order: str
    allocation: str
    request: OrderRequest
    units: tuple[PlacedUnit, ...] = Field(min_length=1)
    allocated_at: UtcTime


@event("allocation.withdrawn", version=1, topic=ALLOCATIONS)
class AllocationWithdrawn(EventData):
    """Left the queue without cards; may be the first fact of its stream."""

    order: str
    cause: Literal["cancelled", "expired", "released"]
    withdrawn_at: UtcTime


@event("allocation.preempted", version=1, topic=ALLOCATIONS)
class AllocationPreempted(EventData):
    """The order gives its cards up and lives on. It holds them until they are clean; then it is in the queue again, in
    the place that its submission gives it. The bill stops at `preempted_at`; the quota stays claimed."""

    order: str
    allocation: str
    cause: Literal["preempted", "reclaimed", "replaced", "suspended"]
    """For a better ranked order; for the owner of lent quota; for another card in the place of a sick one; because
    its card-hours are used up."""
    why: Text
    """For the one who reads the record: never names another tenant."""
    accelerators: tuple[DnsLabel, ...] | None = None
    """The types of the cards, sorted."""
    not_before: UtcTime | None = None
    """In the queue again it is given nothing before this time."""
    suspect: tuple[str, ...] | None = None
    """Cards that are isolated when they come back, whatever is seen of them."""
    preempted_at: UtcTime


@event("allocation.impaired", version=1, topic=ALLOCATIONS)
class AllocationImpaired(EventData):
    """A card that the order holds is seen to be sick, or well again. It stays held, and the quota stays as it is."""

    order: str
    allocation: str
    node: str
    card: str
    health: Health
    code: str = ""
    impaired_at: UtcTime


@event("allocation.returned", version=1, topic=ALLOCATIONS)
class AllocationReturned(EventData):
    """No card of the allocation is held any more: each is back in the pool or quarantined."""

    order: str
    allocation: str
    nodes: tuple[str, ...] = ()
    pooled: tuple[str, ...]
    quarantined: tuple[str, ...]
    reason: str = ""
    """Why cards are quarantined."""
    lives_on: bool | None = None
    """The order gave them up and is not over; else nothing follows."""
    returned_at: UtcTime


@event("reservation.made", version=1, topic=ALLOCATIONS)
class ReservationMade(EventData):
    """Cards are kept for a window of time; stream `reservation/<id>`. Others use them before only if they end first."""

    reservation: str
    tenant: DnsLabel | None = None
    """For whose orders; null: for nobody, the nodes are maintained."""
    project: DnsLabel | None = None
    """Null: for all projects of the tenant."""
    places: tuple[KeptPlace, ...] = Field(min_length=1)
    """Each for as many single cards as it has `units`."""
    cards_per_unit: int = Field(default=1, ge=1, le=256, strict=True)
    """So many of them stay together on a node if it has to move."""
    cpu_milli: MilliCpu = 0
    """Kept beside each card, as the next."""
    memory_mib: MemoryMib = 0
    starts_at: UtcTime
    ends_at: UtcTime
    reason: Text
    made_at: UtcTime


@event("reservation.moved", version=1, topic=ALLOCATIONS)
class ReservationMoved(EventData):
    """Its nodes can no longer serve it: it is kept elsewhere."""

    reservation: str
    places: tuple[KeptPlace, ...] = Field(min_length=1)
    moved_at: UtcTime


@event("reservation.ended", version=1, topic=ALLOCATIONS)
class ReservationEnded(EventData):
    """Nothing is kept for it any more; who runs there, runs on."""

    reservation: str
    cause: Literal["cancelled", "expired"]
    ended_at: UtcTime


# ---- fleet: streams `node/<node>`


class CardSpec(Value):
    """A card as the inventory knows it."""

    card: str = Field(min_length=1, max_length=200)
    accelerator: DnsLabel
    memory_mib: MemoryMib


@event("node.registered", version=1, topic=FLEET)
class NodeRegistered(EventData):
    """A node with its cards is in the fleet, or is described anew; a card that is left out is gone once nobody holds
    it."""

    node: str
    cpu_milli: MilliCpu
    memory_mib: MemoryMib
    cards: tuple[CardSpec, ...]
    rack: str | None = None
    domain: str | None = None
    traits: tuple[DnsLabel, ...] | None = Field(default=None, max_length=32)
    """What the node has that not every node has, sorted; a specification may ask for it."""


@event("node.retired", version=1, topic=FLEET)
class NodeRetired(EventData):
    """The node and its cards left the fleet for good, with nothing held on it; it may be registered anew."""

    node: str
    reason: str
    retired_at: UtcTime


@event("node.cordoned", version=1, topic=FLEET)
class NodeCordoned(EventData):
    """Takes no new work; what runs, runs on."""

    node: str
    reason: str


@event("node.uncordoned", version=1, topic=FLEET)
class NodeUncordoned(EventData):
    """Takes work again."""

    node: str


@event("card.health_changed", version=1, topic=FLEET)
class CardHealthChanged(EventData):
    """What an agent, the provisioner or a tenant saw; only healthy cards take new work."""

    node: str
    card: str
    health: Health
    source: str
    code: str = ""
    message: str = ""
    observed_at: UtcTime


@event("card.occupancy_changed", version=1, topic=FLEET)
class CardOccupancyChanged(EventData):
    """Whether an agent sees somebody on the card, whoever holds it."""

    node: str
    card: str
    occupied: bool
    source: str
    observed_at: UtcTime


@event("card.quarantined", version=1, topic=FLEET)
class CardQuarantined(EventData):
    """The card takes no new work until an operator clears it, whatever its sources say from now on."""

    node: str
    card: str
    reason: str
    quarantined_at: UtcTime


@event("cards.held", version=1, topic=FLEET)
class CardsHeld(EventData):
    """The cards belong to an allocation; written in the same step as `allocation.allocated`."""

    node: str
    cards: tuple[str, ...] = Field(min_length=1)
    slices: tuple[PlacedSlice, ...] | None = None
    """The parts of these cards that it holds; null: all of each."""
    order: str
    allocation: str
    cpu_milli: MilliCpu
    memory_mib: MemoryMib


@event("cards.returned", version=1, topic=FLEET)
class CardsReturned(EventData):
    """The allocation holds nothing on this node any more: `pooled` cards are free, the others isolated until
    cleared."""

    node: str
    allocation: str
    pooled: tuple[str, ...]
    quarantined: tuple[str, ...]
    reason: str = ""
    returned_at: UtcTime


@event("card.cleared", version=1, topic=FLEET)
class CardCleared(EventData):
    """An operator took the card out of quarantine."""

    node: str
    card: str
    cleared_at: UtcTime


@event("share.set", version=1, topic=FLEET)
class ShareSet(EventData):
    """How much a project's turns in the queue weigh beside those of others; 1 where nothing was said. Stream
    `share/<tenant>/<project>`."""

    tenant: DnsLabel
    project: DnsLabel
    weight: int = Field(ge=1, le=1000, strict=True)


class ExpectedUnits(Value):
    """Units of one shape that wait or run: whole cards, or (`share_milli`) a part of a shared one."""

    accelerators: tuple[DnsLabel, ...]
    cards: int = Field(ge=1, strict=True)
    share_milli: ShareMilli | None = None
    cpu_milli: MilliCpu
    units: int = Field(ge=1, strict=True)


@event("workload.learned", version=1, topic=FLEET)
class WorkloadLearned(EventData):
    """What is asked for, by shape: shared cards are given so that most of it will still fit in what is left. Written
    when it has become another than was learned last. Stream `workload/fleet`."""

    shapes: tuple[ExpectedUnits, ...]
    learned_at: UtcTime


@event("fleet.access_audited", version=1, topic=FLEET)
class FleetAccessAudited(AccessAudited):
    """A mutating call on the scheduler; stream `audit-scheduler/<tenant>`."""
