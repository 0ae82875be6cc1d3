"""Facts of others, turned into commands: cards to build on, cards to give up, and ends of orders."""

from collections.abc import Sequence
from typing import Any

from qm_events import Event
from qm_events.catalog import OrderCancelRequested, OrderExpired, OrderReleaseRequested
from qm_events.scheduler import AllocationAllocated, AllocationPreempted
from qm_events.specs import EndCause
from qm_provisioner.commands import Begin, NoteEnd
from qm_provisioner.domain import DECIDER
from qm_provisioner.models import MODELS
from qm_provisioner.projections import PROJECTIONS
from qm_service.model import Act, Definition


def _allocated(event: Event[AllocationAllocated]) -> Sequence[Act]:
    data = event.data
    model = MODELS.get(data.request.service_model)
    # A model that this release does not know has no steps and no checks: it fails, and the cards go back.
    steps = tuple(step.name for step in model.steps) if model else ()
    return _act(event, Begin(data.order, data.allocation, data.request, data.units, steps))


def _preempted(event: Event[AllocationPreempted]) -> Sequence[Act]:
    data = event.data
    return _act(event, NoteEnd(data.order, EndCause.PREEMPTED, data.preempted_at, allocation=data.allocation))


def _cancelled(event: Event[OrderCancelRequested]) -> Sequence[Act]:
    return _act(event, NoteEnd(event.data.order, EndCause.CANCELLED, event.data.requested_at))


def _released(event: Event[OrderReleaseRequested]) -> Sequence[Act]:
    return _act(event, NoteEnd(event.data.order, EndCause.RELEASED, event.data.requested_at, event.data.fault))


def _expired(event: Event[OrderExpired]) -> Sequence[Act]:
    return _act(event, NoteEnd(event.data.order, EndCause.EXPIRED, event.data.expired_at))


def _act(event: Event[Any], command: Begin | NoteEnd) -> Sequence[Act]:
    return (Act(f"{DECIDER.kind}/{event.data.order}", command),)


PROVISIONER = Definition(
    name="provisioner",
    deciders=(DECIDER,),
    projections=PROJECTIONS,
    reactions={
        AllocationAllocated: _allocated,
        AllocationPreempted: _preempted,
        OrderCancelRequested: _cancelled,
        OrderReleaseRequested: _released,
        OrderExpired: _expired,
    },
)
