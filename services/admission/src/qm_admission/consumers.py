"""What facts of others mean for an order here, and the service whole.

All reactions are idempotent by the order's phase: told twice, decided once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from qm_admission.again import GiveUp, SetAside
from qm_admission.book import BOOKS
from qm_admission.delegations import DELEGATIONS
from qm_admission.domain import ORDERS, Admit, Commit, End, Reexamine, Withdraw, WithdrawCause
from qm_admission.holds import Begin, Close, Prolong, Settle
from qm_admission.index import AdmissionIndex
from qm_admission.projections import PROJECTIONS
from qm_admission.settle import due, settle
from qm_events import Event, EventData
from qm_events.admission import Submission
from qm_events.catalog import (
    OrderCancelRequested,
    OrderExpired,
    OrderExtensionRequested,
    OrderReleaseRequested,
    OrderSubmitted,
)
from qm_events.metering import UsageCorrected, UsageRecorded
from qm_events.provisioner import EnvironmentQuarantined, EnvironmentReady, EnvironmentReleased
from qm_events.scheduler import AllocationAllocated, AllocationPreempted, AllocationReturned, AllocationWithdrawn
from qm_events.specs import EndCause
from qm_service.directory import DIRECTORY_PROJECTIONS
from qm_service.model import Act, Definition, Reaction


def _act(order: str, command: Any) -> Sequence[Act]:
    return (Act(f"admission/{order}", command),)


def submitted(event: Event[OrderSubmitted]) -> Sequence[Act]:
    """Let the order through the gates."""
    data = event.data
    submission = Submission(request=data.request, digest=data.digest, submitted_at=data.submitted_at)
    return _act(data.order, Admit(data.order, submission))


def given_up(event: Event[OrderCancelRequested] | Event[OrderReleaseRequested]) -> Sequence[Act]:
    """End the order unless it is admitted: before hand-over a release is a cancel."""
    return _act(event.data.order, Withdraw(event.data.order, "cancelled", event.data.requested_at))


def expired(event: Event[OrderExpired]) -> Sequence[Act]:
    """End the order unless it is admitted."""
    return _act(event.data.order, Withdraw(event.data.order, "expired", event.data.expired_at))


def allocated(event: Event[AllocationAllocated]) -> Sequence[Act]:
    """Commit the claim."""
    return _act(event.data.order, Commit(event.data.order, event.data.units))


def left_the_queue(event: Event[AllocationWithdrawn]) -> Sequence[Act]:
    """Refund: the scheduler will never hold cards for it."""
    cause: WithdrawCause = "expired" if event.data.cause == "expired" else "cancelled"
    return _act(event.data.order, End(event.data.order, cause, event.data.withdrawn_at))


def preempted(event: Event[AllocationPreempted]) -> Sequence[Act]:
    """Keep the claim: the order lives on, and uses no hours."""
    return _act(event.data.order, GiveUp(event.data.order, event.data.allocation, event.data.preempted_at))


def released(event: Event[EnvironmentReleased]) -> Sequence[Act]:
    """Refund, unless the order lives on."""
    if event.data.cause is EndCause.PREEMPTED:
        return ()
    return _act(event.data.order, End(event.data.order, "cancelled", event.data.released_at))


def quarantined(event: Event[EnvironmentQuarantined]) -> Sequence[Act]:
    """Refund: a card that cannot be cleaned is no burden of the project."""
    if event.data.lives_on:
        return ()
    return _act(event.data.order, End(event.data.order, "cancelled", event.data.quarantined_at))


def ready(event: Event[EnvironmentReady]) -> Sequence[Act]:
    """Hold card-hours from here on."""
    return _act(event.data.order, Begin(event.data.order, event.data.ready_at, event.data.allocation))


def extended(event: Event[OrderExtensionRequested]) -> Sequence[Act]:
    """Hold card-hours up to the new end."""
    return _act(event.data.order, Prolong(event.data.order, event.data.expires_at))


def used(event: Event[UsageRecorded] | Event[UsageCorrected]) -> Sequence[Act]:
    """Settle card-hours by what metering says."""
    return _act(event.data.order, Settle(event.data.order, event.data))


def returned(event: Event[AllocationReturned]) -> Sequence[Act]:
    """Refund, and free card-hours of an order that never ran; one that is suspended stands in line for its quota."""
    order, at = event.data.order, event.data.returned_at
    if event.data.lives_on:
        return (*_act(order, SetAside(order)), *_act(order, Reexamine(order)))
    return (*_act(order, Close(order, at)), *_act(order, End(order, "cancelled", at)))


REACTIONS: Mapping[type[EventData], Reaction] = {
    OrderSubmitted: submitted,
    OrderCancelRequested: given_up,
    OrderReleaseRequested: given_up,
    OrderExpired: expired,
    AllocationAllocated: allocated,
    AllocationPreempted: preempted,
    AllocationWithdrawn: left_the_queue,
    EnvironmentReleased: released,
    EnvironmentQuarantined: quarantined,
    EnvironmentReady: ready,
    OrderExtensionRequested: extended,
    UsageRecorded: used,
    UsageCorrected: used,
    AllocationReturned: returned,
}

ADMISSION = Definition(
    name="admission",
    deciders=(ORDERS, BOOKS, DELEGATIONS),
    projections=(*DIRECTORY_PROJECTIONS, *PROJECTIONS),
    reactions=REACTIONS,
    settle=settle,
    due=due,
    new_index=AdmissionIndex,
)
