"""More facts of admission: card-hours that are held ahead (`admissions`), thresholds and requests (`quotas`)."""

from typing import Literal

from pydantic import Field

from qm_events.envelope import EventData, UtcTime
from qm_events.registry import ADMISSIONS, QUOTAS, event
from qm_events.specs import Amounts, Text
from qm_events.units import DnsLabel

# ---- admissions: streams `admission/<order>`


@event("quota.adjusted", version=1, topic=ADMISSIONS)
class QuotaAdjusted(EventData):
    """The card-hours that count for an order changed, at every scope: `taken` is added, `returned` is free again."""

    order: str
    scopes: tuple[str, ...]
    taken: Amounts
    returned: Amounts
    cause: Literal["ready", "extended", "renewed", "used", "corrected", "closed"]
    """`used` and `corrected`: metering said what was used, so `taken` is settled use; else it is held ahead."""
    record: str | None = None
    """The line of metering that it settles; each once."""
    runs_on: bool | None = None
    """True: the line ends with a month, not with the order, which runs on."""
    starts_at: UtcTime | None = None
    """Billing began; from here the duration counts."""
    expires_at: UtcTime | None = None
    """The end that an extension set."""
    covered_until: UtcTime | None = None
    """Card-hours are held up to here; None = up to the end of the order."""
    looks_at: UtcTime | None = None
    """When the order is looked at again; None = never."""


@event("quota.hours_ending", version=1, topic=ADMISSIONS)
class QuotaHoursEnding(EventData):
    """The notice: the monthly card-hours of a running order are used up at `covered_until`, unless some become free."""

    order: str
    scopes: tuple[str, ...]
    covered_until: UtcTime
    action: Literal["warn", "end"]
    """What will happen then."""
    remedy: str
    noticed_at: UtcTime
    looks_at: UtcTime


@event("quota.hours_exhausted", version=1, topic=ADMISSIONS)
class QuotaHoursExhausted(EventData):
    """The monthly card-hours of a running order are used up. `end`: it expires, says the catalog; `warn`: it runs
    on, and what it uses counts."""

    order: str
    scopes: tuple[str, ...]
    action: Literal["warn", "end"]
    exhausted_at: UtcTime
    """The promised instant, however late it was noticed."""
    looks_at: UtcTime | None = None


# ---- quotas: streams `quota/<tenant>`


@event("quota_threshold.reached", version=1, topic=QUOTAS)
class QuotaThresholdReached(EventData):
    """So much of a month's card-hours is used or held ahead."""

    tenant: DnsLabel
    scope: str
    dimension: str
    """With its month, as `card_hours_month@2026-06`."""
    percent: Literal[80, 95, 100]
    limit: int
    """In card-microseconds, as the two that follow."""
    used: int
    settled: int
    """What of it was used already; the rest is held ahead."""
    reached_at: UtcTime


@event("quota_request.opened", version=1, topic=QUOTAS)
class QuotaRequestOpened(EventData):
    """Somebody asks for other limits of his project, or (project None) of his tenant."""

    request: str
    tenant: DnsLabel
    project: DnsLabel | None = None
    limits: Amounts
    """What the named dimensions are to be; the others stay."""
    reason: str
    requester: str
    requested_at: UtcTime


@event("quota_request.approved", version=1, topic=QUOTAS)
class QuotaRequestApproved(EventData):
    """It was granted, with these limits; `quota_limit.set` follows in the same step."""

    request: str
    tenant: DnsLabel
    project: DnsLabel | None = None
    granted: Amounts
    approver: Text
    comment: str = ""
    decided_at: UtcTime


@event("quota_request.denied", version=1, topic=QUOTAS)
class QuotaRequestDenied(EventData):
    """It was refused; the limits stay."""

    request: str
    tenant: DnsLabel
    project: DnsLabel | None = None
    approver: Text
    comment: str = Field(default="")
    decided_at: UtcTime
