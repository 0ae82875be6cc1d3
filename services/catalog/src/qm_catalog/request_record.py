"""The record of an order as it is kept: one section for each topic that speaks about it.

A section is a fold of one stream, so it depends on nothing but the order of facts in that stream; no section reads
another. What a person reads (phase, conditions, reasons) is derived from all sections at the moment of reading, in
`record_view`, so that any interleaving of the topics gives the same record.
"""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from qm_catalog.approval_record import Approval
from qm_events.provisioner import ReceiptLine
from qm_events.specs import (
    EndCause,
    FaultReport,
    Health,
    OrderRequest,
    PlacedUnit,
    Probe,
    Remedy,
    Violation,
    WaitReason,
)

HISTORY_LIMIT = 50
"""Waits kept in a record; of older ones only the number is kept, for a record must not grow without end."""
ANOMALY_LIMIT = 20


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A fact that came after the end of its stream. It is shown and changes nothing."""

    type: str
    version: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Section:
    """What all sections have. `version` is that of the last fact folded: one seen again is passed over."""

    version: int = 0
    anomalies: tuple[Anomaly, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked(Section):
    """Topic `orders`: what was asked, and when its end was asked for."""

    request: OrderRequest | None = None
    digest: str = ""
    submitted_at: datetime | None = None
    extended_to: datetime | None = None
    ended_at: datetime | None = None
    """The first request to end it, or the promised end that was reached."""
    ended_by: EndCause | None = None
    end_reason: str = ""
    fault: FaultReport | None = None


@dataclass(frozen=True, slots=True)
class Vetted(Section):
    """Topic `admissions`: approval and quota."""

    approvals: tuple[Approval, ...] = ()
    gate: Literal["approval", "quota"] | None = None
    """What it waits for now."""
    violations: tuple[Violation, ...] = ()
    remedy: str = ""
    remedies: tuple[Remedy, ...] = ()
    held_at: datetime | None = None
    claimed_at: datetime | None = None
    committed_at: datetime | None = None
    refunded_at: datetime | None = None
    admitted_at: datetime | None = None
    rejected_at: datetime | None = None
    reject_code: str = ""
    withdrawn_at: datetime | None = None
    withdrawn_by: EndCause | None = None
    covered_until: datetime | None = None
    """The monthly card-hours of an order without an end are held up to here."""
    exhausted_at: datetime | None = None
    """They are used up."""
    hours_end_at: datetime | None = None
    """They are, and the quota says that this ends the order."""
    suspended_at: datetime | None = None
    """They are, and it waits for more."""
    renews_at: datetime | None = None
    """When the month turns, as said when it was suspended."""


@dataclass(frozen=True, slots=True)
class QueueNote:
    """From `at` on the order was in this state of the queue: `Queued`, a wait code, `Allocated`, `Preempted`,
    `Reclaimed`, `Replaced`, `Suspended` or `Withdrawn`."""

    code: str
    at: datetime
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why the order gave cards up and lives on."""

    cause: Literal["preempted", "reclaimed", "replaced", "suspended"]
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PastAllocation:
    """Cards that the order had before."""

    allocation: str | None
    units: tuple[PlacedUnit, ...]
    allocated_at: datetime | None
    given_up: GivenUp | None
    returned_at: datetime | None
    quarantined: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Impaired:
    """A card that is seen to be sick while the order holds it."""

    card: str
    health: Health
    code: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Placed(Section):
    """Topic `allocations`: the wait, and the cards."""

    queued_at: datetime | None = None
    reasons: tuple[WaitReason, ...] = ()
    waiting_since: datetime | None = None
    history: tuple[QueueNote, ...] = ()
    history_dropped: int = 0
    allocation: str | None = None
    units: tuple[PlacedUnit, ...] = ()
    allocated_at: datetime | None = None
    given_up: GivenUp | None = None
    impaired: tuple[Impaired, ...] = ()
    earlier: tuple[PastAllocation, ...] = ()
    withdrawn_at: datetime | None = None
    withdrawn_by: EndCause | None = None
    returned_at: datetime | None = None
    pooled: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the build (`do`) or of the release (`undo`), with its last attempt."""

    step: str
    direction: Literal["do", "undo"]
    status: Literal["running", "done", "retrying", "failed"]
    attempts: int
    started_at: datetime
    ended_at: datetime | None = None
    external_name: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of the release."""

    cause: EndCause
    outcome: Literal["clean", "quarantined"]
    lines: tuple[ReceiptLine, ...]
    digest: str
    released_at: datetime


@dataclass(frozen=True, slots=True)
class PastEnvironment:
    """An environment that the order had on other cards."""

    allocation: str
    ready_at: datetime | None
    error: str
    probes: tuple[Probe, ...]
    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class Built(Section):
    """Topic `environments`: what the user enters, and how it was taken down. The last environment, and those before."""

    allocation: str = ""
    earlier: tuple[PastEnvironment, ...] = ()
    planned: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    started_at: datetime | None = None
    probes: tuple[Probe, ...] = ()
    verified_at: datetime | None = None
    endpoint: dict[str, Any] | None = None
    ready_at: datetime | None = None
    failed_at: datetime | None = None
    failed_step: str = ""
    error: str = ""
    release_cause: EndCause | None = None
    release_started_at: datetime | None = None
    revoked_at: datetime | None = None
    wiped_at: datetime | None = None
    validated_at: datetime | None = None
    suspect: tuple[str, ...] = ()
    quarantined_at: datetime | None = None
    quarantine_step: str = ""
    quarantine_error: str = ""
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval of a meter, in card-microseconds."""

    record: str
    from_at: datetime
    to_at: datetime
    card_us: int
    rates: tuple[tuple[datetime, datetime, Decimal], ...] | None = None
    """(from, to, price of a card-hour), as metering rated it; None: it was not."""
    share: str | None = None
    """What of a card each card of it was; None = all of it."""

    @property
    def used_us(self) -> Fraction:
        """What was used, slices as the exact part of a card that they are."""
        return self.card_us * Fraction(self.share or 1)


@dataclass(frozen=True, slots=True)
class Metered(Section):
    """Topic `usage`: a stream for each allocation, so that `versions` tells what was folded, and `version` how much."""

    versions: dict[str, int] = field(default_factory=dict)
    held: tuple[Interval, ...] = ()
    billable: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One order, from click to recycle."""

    order: str
    asked: Asked = Asked()
    vetted: Vetted = Vetted()
    placed: Placed = Placed()
    built: Built = Built()
    metered: Metered = Metered()

    @property
    def tenant(self) -> str | None:
        """Return the tenant; None until the order itself was read."""
        return self.asked.request.tenant if self.asked.request else None

    @property
    def project(self) -> str | None:
        """Return the project within the tenant."""
        return self.asked.request.project if self.asked.request else None
