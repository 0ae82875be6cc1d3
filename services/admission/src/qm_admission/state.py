"""Where an order stands with admission: phases, the lawful facts of each, and their fold. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from qm_admission import holding, quota
from qm_admission.holding import Hold
from qm_admission.question import PASSED, Approval, changed, levels_of, opened
from qm_events import EventData
from qm_events.admission import (
    ApprovalDenied,
    ApprovalGranted,
    ApprovalLapsed,
    ApprovalRequested,
    OrderAdmitted,
    OrderHeld,
    OrderRejected,
    OrderResumed,
    OrderSuspended,
    OrderWithdrawn,
    QuotaClaimed,
    QuotaCommitted,
    QuotaRefunded,
    Submission,
)
from qm_events.admission_approval import (
    ApprovalEscalated,
    ApprovalReminded,
    ApprovalRerouted,
    ApprovalVoted,
    ApprovalWithdrawn,
)
from qm_events.admission_quota import QuotaAdjusted, QuotaHoursEnding, QuotaHoursExhausted
from qm_events.approval import ApprovalPolicy
from qm_events.specs import Violation


class Phase(StrEnum):
    """Where an order stands with admission; those marked → are left within the step that enters them."""

    NEW = "new"
    """Not heard of."""
    PENDING = "pending"
    """A person is asked."""
    APPROVED = "approved"
    """→ The person agreed."""
    UNAPPROVED = "unapproved"
    """→ The person refused, or nobody decided in time."""
    UNASKED = "unasked"
    """→ The question was taken back, as the policies changed."""
    HELD = "held"
    """Waits in line for quota."""
    CLAIMED = "claimed"
    """→ Quota is taken."""
    ADMITTED = "admitted"
    """May be scheduled; the claim is as asked for."""
    COMMITTED = "committed"
    """Cards are allocated; the claim is what they are."""
    SUSPENDED = "suspended"
    """Its card-hours are used up: it gives its cards up."""
    ASIDE = "aside"
    """→ They are back, and its claim is free; it stands in line again."""
    REFUNDED = "refunded"
    """Ended; nothing is held."""
    REJECTED = "rejected"
    """Ended before it held anything, by a rule or a person."""
    WITHDRAWN = "withdrawn"
    """Ended before it held anything, by its owner or its time."""


TRANSITIONS: Mapping[tuple[Phase, type[EventData]], Phase] = {
    (Phase.NEW, OrderRejected): Phase.REJECTED,
    (Phase.NEW, ApprovalRequested): Phase.PENDING,
    (Phase.NEW, OrderHeld): Phase.HELD,
    (Phase.NEW, QuotaClaimed): Phase.CLAIMED,
    (Phase.NEW, OrderWithdrawn): Phase.WITHDRAWN,
    (Phase.PENDING, ApprovalVoted): Phase.PENDING,
    (Phase.PENDING, ApprovalRerouted): Phase.PENDING,
    (Phase.PENDING, ApprovalReminded): Phase.PENDING,
    (Phase.PENDING, ApprovalEscalated): Phase.PENDING,
    (Phase.PENDING, ApprovalRequested): Phase.PENDING,
    (Phase.PENDING, ApprovalWithdrawn): Phase.UNASKED,
    (Phase.UNASKED, ApprovalRequested): Phase.PENDING,
    (Phase.UNASKED, OrderRejected): Phase.REJECTED,
    (Phase.UNASKED, OrderHeld): Phase.HELD,
    (Phase.UNASKED, QuotaClaimed): Phase.CLAIMED,
    (Phase.PENDING, ApprovalGranted): Phase.APPROVED,
    (Phase.PENDING, ApprovalDenied): Phase.UNAPPROVED,
    (Phase.PENDING, ApprovalLapsed): Phase.UNAPPROVED,
    (Phase.PENDING, OrderWithdrawn): Phase.WITHDRAWN,
    (Phase.UNAPPROVED, OrderRejected): Phase.REJECTED,
    (Phase.APPROVED, ApprovalRequested): Phase.PENDING,
    (Phase.APPROVED, OrderRejected): Phase.REJECTED,
    (Phase.APPROVED, OrderHeld): Phase.HELD,
    (Phase.APPROVED, QuotaClaimed): Phase.CLAIMED,
    (Phase.HELD, ApprovalRequested): Phase.PENDING,
    (Phase.HELD, OrderHeld): Phase.HELD,
    (Phase.HELD, OrderRejected): Phase.REJECTED,
    (Phase.HELD, QuotaClaimed): Phase.CLAIMED,
    (Phase.HELD, OrderWithdrawn): Phase.WITHDRAWN,
    (Phase.CLAIMED, OrderAdmitted): Phase.ADMITTED,
    (Phase.ADMITTED, QuotaCommitted): Phase.COMMITTED,
    (Phase.ADMITTED, QuotaRefunded): Phase.REFUNDED,
    (Phase.COMMITTED, QuotaRefunded): Phase.REFUNDED,
    (Phase.COMMITTED, OrderSuspended): Phase.SUSPENDED,
    (Phase.ADMITTED, OrderSuspended): Phase.SUSPENDED,
    (Phase.SUSPENDED, QuotaRefunded): Phase.REFUNDED,
    (Phase.ASIDE, OrderHeld): Phase.HELD,
    (Phase.ASIDE, QuotaClaimed): Phase.CLAIMED,
    (Phase.CLAIMED, OrderResumed): Phase.ADMITTED,
    (Phase.HELD, QuotaAdjusted): Phase.HELD,
    (Phase.WITHDRAWN, QuotaAdjusted): Phase.WITHDRAWN,
    **{
        (phase, said): phase
        for phase in (Phase.ADMITTED, Phase.COMMITTED, Phase.SUSPENDED, Phase.REFUNDED)
        for said in (QuotaAdjusted, QuotaHoursEnding, QuotaHoursExhausted)
    },
}

ABOUT_THE_QUESTION = (
    ApprovalVoted,
    ApprovalRerouted,
    ApprovalReminded,
    ApprovalEscalated,
    ApprovalWithdrawn,
    ApprovalGranted,
    ApprovalDenied,
    ApprovalLapsed,
)
ABOUT_THE_HOURS = (
    OrderAdmitted,
    QuotaAdjusted,
    QuotaHoursEnding,
    QuotaHoursExhausted,
    OrderSuspended,
    OrderResumed,
)
WAITING = (Phase.PENDING, Phase.HELD)
RUNNING = (Phase.ADMITTED, Phase.COMMITTED)
HOLDING = (*RUNNING, Phase.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Admission:
    """An order as admission knows it."""

    phase: Phase = Phase.NEW
    submission: Submission | None = None
    """Known while the order waits."""
    asked: Approval | None = None
    """The last question to people."""
    earlier: tuple[Approval, ...] = ()
    """Those before it."""
    blocked: tuple[Violation, ...] = ()
    scopes: tuple[str, ...] = ()
    claim: Mapping[str, int] = field(default_factory=dict)
    """What is held at each of the scopes."""
    hold: Hold = field(default_factory=Hold)
    """What is known of the card-hours that it holds ahead."""
    admitted: OrderAdmitted | None = None
    """As it was admitted first."""


def passed(state: Admission, policy: ApprovalPolicy, digest: str) -> int:
    """Return how many of a policy's levels, from the first on, were passed: with the same rule, on the same digest."""
    questions = [asked for asked in (*state.earlier, state.asked) if asked and asked.status in PASSED]
    done = {
        (asked.level, asked.rule.model_dump_json())
        for asked in questions
        if asked.digest == digest and asked.by.self_approval == policy.self_approval
    }
    levels = levels_of(policy)
    keys = [(number, level.model_dump_json()) for number, level in enumerate(levels, 1)]
    return next((place for place, key in enumerate(keys) if key not in done), len(levels))


def evolve(state: Admission, data: EventData) -> Admission:
    """Return the order after a fact. Raises KeyError for one that TRANSITIONS does not allow."""
    phase = TRANSITIONS[state.phase, type(data)]
    match data:
        case ApprovalRequested():
            earlier = (*state.earlier, state.asked) if state.asked else state.earlier
            asked = opened(data)
            return replace(state, phase=phase, submission=data.submission, asked=asked, earlier=earlier)
        case _ if type(data) in ABOUT_THE_QUESTION:
            return replace(state, phase=phase, asked=changed(state.asked, data))
        case OrderWithdrawn():
            void = changed(state.asked, data) if state.phase is Phase.PENDING else state.asked
            return replace(state, phase=phase, asked=void)
        case OrderHeld():
            return replace(state, phase=phase, submission=data.submission or state.submission, blocked=data.violations)
        case QuotaClaimed():
            return _claimed(state, phase, data)
        case QuotaCommitted():
            return replace(state, phase=phase, claim=data.amounts.values)
        case QuotaRefunded():
            return replace(state, phase=phase, claim=quota.subtract(state.claim, data.amounts.values))
        case _ if type(data) in ABOUT_THE_HOURS:
            return _hours(state, phase, data)
        case _:
            return replace(state, phase=phase)


def _claimed(state: Admission, phase: Phase, data: QuotaClaimed) -> Admission:
    # Hours that metering has still to tell of are held from before the order was suspended.
    claim = quota.added(state.claim, data.amounts.values) if state.claim else data.amounts.values
    return replace(state, phase=phase, scopes=data.scopes, claim=claim, hold=holding.evolve(state.hold, data))


def _hours(state: Admission, phase: Phase, data: EventData) -> Admission:
    claim, hold = holding.claim_after(state.claim, data), holding.evolve(state.hold, data)
    if isinstance(data, QuotaAdjusted) and data.cause == "suspended":
        phase = Phase.ASIDE
    admitted = data if isinstance(data, OrderAdmitted) else state.admitted
    return replace(state, phase=phase, claim=claim, hold=hold, admitted=admitted)
