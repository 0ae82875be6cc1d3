"""Facts of admission: the topics `admissions` (what became of each order) and `quotas` (limits and policies)."""

from typing import Literal

from pydantic import Field

from qm_events.approval import ApprovalPolicy
from qm_events.audit import AccessAudited
from qm_events.envelope import EventData, UtcTime
from qm_events.registry import ADMISSIONS, QUOTAS, event
from qm_events.specs import Amounts, OrderRequest, Remedy, Role, Text, Value, Violation
from qm_events.units import DnsLabel

# ---- admissions: streams `admission/<order>`


class Submission(Value):
    """What was asked for, carried by the facts after which an order waits: the stream alone tells how to go on."""

    request: OrderRequest
    digest: str
    submitted_at: UtcTime


@event("approval.requested", version=1, topic=ADMISSIONS)
class ApprovalRequested(EventData):
    """A person must agree. `digest` is the order's: a vote binds to it."""

    order: str
    approval: str
    policy: DnsLabel
    level: int = Field(ge=1)
    approvers: tuple[str, ...]
    """Subjects who may decide, at the time of asking; the decision checks the directory again."""
    digest: str
    requested_at: UtcTime
    lapses_at: UtcTime | None = None
    approver_role: Role | None = None
    approver_subjects: tuple[str, ...] = ()
    self_approval: bool = False
    """With the two before it the policy's rule, by which the decision checks the directory again."""
    submission: Submission | None = None
    by: ApprovalPolicy | None = None
    """The policy that asks, as it was then: the stream alone tells which levels follow."""
    levels: int | None = Field(default=None, ge=1)
    """How many there are."""
    needed: int | None = Field(default=None, ge=1)
    """How many people must agree at this level."""
    awaited: tuple[str, ...] | None = None
    """Those of the approvers who are counted on now; the others may decide too."""
    escalates_at: UtcTime | None = None
    remind_at: UtcTime | None = None


@event("approval.granted", version=1, topic=ADMISSIONS)
class ApprovalGranted(EventData):
    """Someone entitled agreed."""

    order: str
    approval: str
    level: int
    approver: str
    comment: str = ""
    digest: str
    decided_at: UtcTime
    on_behalf_of: str | None = None
    last: bool | None = None
    """Whether no other level is asked. None: not said, in facts of the first release."""


@event("approval.denied", version=1, topic=ADMISSIONS)
class ApprovalDenied(EventData):
    """Someone entitled refused; the order is rejected in the same step."""

    order: str
    approval: str
    level: int
    approver: str
    comment: str = ""
    digest: str
    decided_at: UtcTime
    on_behalf_of: str | None = None


@event("approval.lapsed", version=1, topic=ADMISSIONS)
class ApprovalLapsed(EventData):
    """Nobody decided in time; the order is rejected in the same step."""

    order: str
    approval: str
    level: int
    lapsed_at: UtcTime


@event("quota.claimed", version=1, topic=ADMISSIONS)
class QuotaClaimed(EventData):
    """The amounts are held at every scope of the path, the tenant first."""

    order: str
    scopes: tuple[str, ...]
    amounts: Amounts
    borrowed: Amounts | None = None
    """What of it is beyond the nominal quota of the project and lent by others: it may be reclaimed."""
    reclaims: Amounts | None = None
    """What of it is the project's own and lent out now: the borrowers have to give it back."""
    reported: tuple[Violation, ...] | None = None
    """Limits that it passes and that only report so far."""
    covered_until: UtcTime | None = None
    """The order has no end, or its end is not covered: card-hours of the month are held up to here."""
    looks_at: UtcTime | None = None
    """When the card-hours that are held are looked at again."""


@event("quota.committed", version=1, topic=ADMISSIONS)
class QuotaCommitted(EventData):
    """Cards are allocated; what the placement did not use of the claim (`returned`) is free again."""

    order: str
    scopes: tuple[str, ...]
    amounts: Amounts
    returned: Amounts


@event("quota.refunded", version=1, topic=ADMISSIONS)
class QuotaRefunded(EventData):
    """The order ended: all that it still held is free, at every scope."""

    order: str
    scopes: tuple[str, ...]
    amounts: Amounts


@event("order.admitted", version=1, topic=ADMISSIONS)
class OrderAdmitted(EventData):
    """May be scheduled, with exactly these parameters."""

    order: str
    request: OrderRequest
    digest: str
    submitted_at: UtcTime
    borrowed: Amounts | None = None
    """What it takes beyond the nominal quota of its project: others may reclaim it."""
    reclaims: Amounts | None = None
    """What of it others borrow now: the scheduler may take it back from them."""
    covered_until: UtcTime | None = None
    """The monthly card-hours of an order without an end reach to here, if nothing becomes free before."""


@event("order.suspended", version=1, topic=ADMISSIONS)
class OrderSuspended(EventData):
    """Gives its cards up and waits for card-hours. Once the cards are back its claim is free and it stands in line for
    it as `order.held`, in its old place, until `order.resumed`."""

    order: str
    scopes: tuple[str, ...]
    why: Text
    renews_at: UtcTime
    """When the month turns."""
    suspended_at: UtcTime


@event("order.resumed", version=1, topic=ADMISSIONS)
class OrderResumed(EventData):
    """There are card-hours again and its quota is claimed: it is scheduled as when it was admitted."""

    order: str
    covered_until: UtcTime | None = None
    """The card-hours reach to here, if nothing becomes free before."""
    borrowed: Amounts | None = None
    reclaims: Amounts | None = None
    resumed_at: UtcTime


@event("order.held", version=1, topic=ADMISSIONS)
class OrderHeld(EventData):
    """Fits the limits but not what is left of them; examined again when a fact can change that."""

    order: str
    violations: tuple[Violation, ...]
    """`short_by` 0: the amount is free, but an older order waits for it first."""
    remedy: str
    held_at: UtcTime
    submission: Submission | None = None
    remedies: tuple[Remedy, ...] | None = None
    """The ways out one by one, the easiest first."""
    reclaims: Amounts | None = None
    """What it waits for is the project's own and borrowed by others."""
    ends_at: UtcTime | None = None
    """It was suspended: the end that was promised when it was first ready."""


@event("order.rejected", version=1, topic=ADMISSIONS)
class OrderRejected(EventData):
    """Will never be admitted as it stands."""

    order: str
    code: str
    violations: tuple[Violation, ...] = ()
    remedy: str
    rejected_at: UtcTime
    remedies: tuple[Remedy, ...] | None = None


@event("order.withdrawn", version=1, topic=ADMISSIONS)
class OrderWithdrawn(EventData):
    """Ended by its owner or by its expiry before it was admitted; may be the first fact of its stream."""

    order: str
    cause: Literal["cancelled", "expired"]
    withdrawn_at: UtcTime
    approval: str | None = None
    """The approval that was still open, and is void now."""


# ---- quotas: streams `quota/<tenant>`


@event("quota_limit.set", version=1, topic=QUOTAS)
class QuotaLimitSet(EventData):
    """The limits of one scope, all dimensions at once; a dimension that is left out is unlimited."""

    tenant: DnsLabel
    project: DnsLabel | None = None
    limits: Amounts
    over_quota: Literal["hold", "refuse"] = "hold"
    report_only: tuple[Text, ...] | None = None
    """Dimensions whose limit is told and not enforced: a limit can be adopted over existing use."""
    borrow: Amounts | None = None
    """How much beyond its limit a project may use of what others in the tenant lend; missing = nothing."""
    lend: Amounts | None = None
    """How much of what a project does not use others may borrow; missing = nothing."""
    hours_exhausted: Literal["warn", "suspend", "end"] | None = None
    """None = `warn`. What happens to a running order whose monthly card-hours are used up, after a notice."""
    notice_seconds: int | None = Field(default=None, ge=0)
    """How long before that the notice comes; None = an hour."""
    priority_at_most: int | None = Field(default=None, ge=0, le=1000)
    """The highest priority that an order may ask for; every scope of its path counts. None: 0 for a tenant, as its
    tenant for a project."""


@event("approval_policy.set", version=1, topic=QUOTAS)
class ApprovalPolicySet(EventData):
    """The policies of a tenant, in the order in which they are tried; the first that matches asks."""

    tenant: DnsLabel
    policies: tuple[ApprovalPolicy, ...]


@event("quotas.access_audited", version=1, topic=QUOTAS)
class QuotasAccessAudited(AccessAudited):
    """A mutating call on admission; stream `audit-admission/<tenant>`."""
