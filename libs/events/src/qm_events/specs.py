"""Words that the facts of several services share."""

from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from qm_events.envelope import UtcTime
from qm_events.units import Cards, DnsLabel, MemoryMib, MilliCpu, Ratio


class Value(BaseModel):
    """Base of the frozen values inside facts."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ServiceModel(StrEnum):
    """How the cards reach the user; each has a simulated twin with the same contract."""

    BARE_METAL = "bare_metal"
    VM = "vm"
    KUBERNETES = "kubernetes"
    MAAS = "maas"


class Role(StrEnum):
    """What a subject may do in a project, in a tenant, or (operator, auditor) on the platform."""

    VIEWER = "viewer"
    DEVELOPER = "developer"
    PROJECT_OWNER = "project_owner"
    APPROVER = "approver"
    TENANT_ADMIN = "tenant_admin"
    OPERATOR = "operator"
    AUDITOR = "auditor"


class CatalogueStatus(StrEnum):
    """A deprecated item is still delivered to those who name it and warned about; a retired one is not delivered."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    RETIRED = "retired"


Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Labels = dict[DnsLabel, Annotated[str, StringConstraints(max_length=200)]]
Parameters = dict[Annotated[str, StringConstraints(min_length=1, max_length=100)], Any]


ProfileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+_-]{0,62}$")]
ResourceName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9./_+-]{0,199}$")]
ShareMilli = Annotated[int, Field(ge=1, le=999, strict=True)]
"""Thousandths of a card; all of it is a whole card."""
Position = Annotated[int, Field(ge=0, le=63, strict=True)]


class Slice(Value):
    """The part of a card that a unit takes: a profile of its geometry, or thousandths of a shared card.

    The catalogue resolves it when the specification is published, so an order says all that decides where it fits.
    """

    share: Ratio
    """What it counts of a card in quota and usage: a figure of the catalogue, never derived from the name."""
    profile: ProfileName | None = None
    milli: ShareMilli | None = None
    positions: int | None = Field(default=None, ge=1, le=64, strict=True)
    """Of the card, as the geometry divides it."""
    size: int | None = Field(default=None, ge=1, le=64, strict=True)
    """Positions that the profile takes."""
    starts: tuple[Position, ...] = Field(default=(), max_length=64)
    """Where the profile may begin, in the order in which this is tried."""
    card_memory_mib: MemoryMib = 0
    """What the card must have."""
    resource: ResourceName | None = None
    """What Kubernetes calls it."""


class Specification(Value):
    """What a developer orders instead of a server. One unit sits on one node."""

    name: DnsLabel
    version: int = Field(ge=1, strict=True)
    accelerators: tuple[DnsLabel, ...] = Field(min_length=1, max_length=32)
    """Types that serve equally well; a claim counts against each until the placement settles which."""
    cards_per_unit: Cards
    """1 for a slice: a unit is one."""
    accelerator_memory_mib: MemoryMib
    """Of one card, or of the slice."""
    cpu_milli: MilliCpu
    """Of one unit."""
    memory_mib: MemoryMib
    """Of one unit."""
    traits: tuple[DnsLabel, ...] | None = Field(default=None, max_length=32)
    """What the node of each unit must have, in any order."""
    slice: Slice | None = None
    """The part of a card that a unit takes instead of whole cards."""

    @property
    def share(self) -> Fraction:
        """What one card or slice counts of a card."""
        return Fraction(self.slice.share) if self.slice else Fraction(1)


def lawful(specification: Specification) -> Specification:
    """Return a specification that somebody wrote whole. Raises ValueError for a slice that cannot be."""
    one = specification.slice
    if one is None:
        return specification
    if specification.cards_per_unit != 1:
        raise ValueError("a unit takes one slice: order more units")
    if (one.milli is None) == (one.positions is None) or (one.milli is None and not (one.size and one.starts)):
        raise ValueError("a slice is a size with its starts and the positions of the card, or thousandths of a card")
    if one.milli is None:
        check_places(one.positions or 0, one.size or 0, one.starts)
    return specification


def check_places(positions: int, size: int, starts: tuple[int, ...]) -> None:
    """Raise ValueError where slices of one profile overlap, for then first fit is not exact, or leave the card."""
    ordered = sorted(starts)
    if ordered[-1] + size > positions:
        raise ValueError("a profile does not lie within the positions of the card")
    if any(after - before < size for before, after in pairwise(ordered)):
        raise ValueError("two places of a profile overlap")


class TopologyLevel(StrEnum):
    """The domain that all units of an order share."""

    NODE = "node"
    DOMAIN = "domain"
    RACK = "rack"


class Topology(Value):
    """Where the units may lie apart. A preference never makes an order wait."""

    within: TopologyLevel
    required: bool = Field(default=True, strict=True)


class OrderRequest(Value):
    """The parameters of an order, with the specification resolved: what is approved is what is executed."""

    tenant: DnsLabel
    project: DnsLabel
    requester: str
    specification: Specification
    service_model: ServiceModel
    image: DnsLabel | None = None
    model: DnsLabel | None = None
    count: int = Field(default=1, ge=1, le=10_000, strict=True)
    parameters: Parameters = Field(default_factory=dict)
    ssh_keys: tuple[str, ...] = Field(default=(), max_length=32)
    priority: int = Field(default=0, ge=-1000, le=1000, strict=True)
    preemptible: bool = False
    topology: Topology | None = None
    duration_seconds: int | None = Field(default=None, ge=1, le=10 * 366 * 86_400, strict=True)
    expires_at: UtcTime | None = None
    reservation: str | None = Field(default=None, min_length=1, max_length=100)
    """Run on what is kept for this reservation, from its start on."""
    on_card_failure: Literal["tell", "replace"] | None = None
    """When a card that it holds has failed. None = `tell`; `replace`: it gives its cards up at once and gets others."""
    labels: Labels = Field(default_factory=dict)

    @property
    def cards(self) -> int:
        """Cards in all units together, each slice counted as one."""
        return self.specification.cards_per_unit * self.count

    @property
    def portion(self) -> Fraction:
        """Cards in all units together, slices as the exact part of a card that they are."""
        return self.specification.share * self.cards


class Amounts(Value):
    """What an order takes from a quota, or a limit allows. A missing limit does not limit."""

    values: dict[str, int] = Field(default_factory=dict)
    """By dimension: `cards`, `cards/<accelerator>`, `accelerator_memory_mib`, `cpu_milli`, `memory_mib`,
    `concurrent_orders`, `card_hours_month`. A limit on `card_hours_month` is in card-hours; what is taken of it is
    named with its month, `card_hours_month@2026-06`, in card-microseconds. Slices are taken of `card_shares` and
    `card_shares/<accelerator>`, in parts of 1/126,000 of a card, and count against the limit on cards."""


class Violation(Value):
    """One limit in the way, at one scope."""

    scope: str
    """`tenant` or `tenant/project`."""
    dimension: str
    limit: int
    used: int
    requested: int
    short_by: int
    unit: str | None = None
    """Of the four figures, where the name of the dimension does not tell: `card_us`, `card/126000`."""
    why: Literal["older_first", "lent_out"] | None = None
    """None: too little is left. `older_first`: it is free, but an older order waits for it. `lent_out`: what the
    project would borrow is not to be had now."""
    renews_at: UtcTime | None = None
    """When the month of `card_hours_month` ends."""


class Remedy(Value):
    """One way out of a refusal or a wait."""

    kind: Literal["order_less", "smaller_specification", "other_project", "ask_for_quota", "wait_until", "wait"]
    text: str
    count: int | None = None
    """Units that fit."""
    specification: str | None = None
    project: str | None = None
    at: UtcTime | None = None
    limits: Amounts | None = None
    """What to ask for, as `POST /v1/quota-requests` takes it."""


class WaitCode(StrEnum):
    """Why an order waits, ranked: the first that holds is the reason."""

    SPECIFICATION_UNAVAILABLE = "SpecificationUnavailable"
    QUOTA_EXHAUSTED = "QuotaExhausted"
    OLDER_ORDER_AHEAD = "OlderOrderAhead"
    APPROVAL_PENDING = "ApprovalPending"
    RESERVATION_NOT_STARTED = "ReservationNotStarted"
    MAINTENANCE_WINDOW = "MaintenanceWindow"
    BACKEND_UNAVAILABLE = "BackendUnavailable"
    WAITING_FOR_PREEMPTION = "WaitingForPreemption"
    RECENTLY_RECLAIMED = "RecentlyReclaimed"
    HIGHER_PRIORITY_AHEAD = "HigherPriorityAhead"
    HEALTHY_CAPACITY_INSUFFICIENT = "HealthyCapacityInsufficient"
    TOPOLOGY_UNSATISFIABLE = "TopologyUnsatisfiable"
    CAPACITY_FRAGMENTED = "CapacityFragmented"
    CAPACITY_IN_USE = "CapacityInUse"


class WaitReason(Value):
    """One true reason: figures, what would have to change (counterfactual) and what the reader can do (remedy)."""

    code: WaitCode
    figures: dict[str, Any] = Field(default_factory=dict)
    counterfactual: str
    remedy: str


class Health(StrEnum):
    """Of a card. Only healthy and clean counts as free; unknown takes no new work but does not stop work that runs."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED = "failed"
    UNKNOWN = "unknown"


class PlacedSlice(Value):
    """A slice where it was cut: `size` of the card's `positions` from `start`, or `milli` thousandths of it."""

    card: str
    share: Ratio
    profile: ProfileName | None = None
    positions: int | None = None
    start: Position | None = None
    size: int | None = None
    milli: ShareMilli | None = None


class PlacedUnit(Value):
    """One unit of an order on one node, with the cards that it holds."""

    node: str
    accelerator: DnsLabel
    cards: tuple[str, ...] = Field(min_length=1)
    slice: PlacedSlice | None = None
    """What it holds of its one card; null: all of its cards."""

    @property
    def portion(self) -> Fraction:
        """What it holds, in cards."""
        return Fraction(self.slice.share) if self.slice else Fraction(len(self.cards))


class Probe(Value):
    """One check, run as the user with the issued credential."""

    name: str
    passed: bool
    detail: str = ""
    suspect: tuple[str, ...] = ()
    """The cards that a failed check speaks against."""


class FaultReport(Value):
    """What a tenant saw wrong with a card; it quarantines the card at release."""

    card: str | None = None
    category: Text
    summary: Text


class EndCause(StrEnum):
    """Why an order ends, or (preempted) gives its cards up and lives on."""

    CANCELLED = "cancelled"
    RELEASED = "released"
    EXPIRED = "expired"
    FAILED = "failed"
    PREEMPTED = "preempted"
