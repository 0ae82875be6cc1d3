"""Facts of others, and what they ask of the scheduler; and the service as one value (`SCHEDULER`).

Each reaction is harmless when its fact comes late, early or twice.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from qm_events import Event, EventData
from qm_events.admission import OrderAdmitted, OrderResumed, OrderSuspended
from qm_events.catalog import (
    OrderCancelRequested,
    OrderExpired,
    OrderReleaseRequested,
    OrderReplacementRequested,
)
from qm_events.ids import stream_name
from qm_events.provisioner import EnvironmentFailed, EnvironmentQuarantined, EnvironmentReleased, EnvironmentValidated
from qm_events.scheduler import AllocationReturned
from qm_scheduler.board import Board
from qm_scheduler.domain import DECIDERS, Enqueue, Preempt, QueueAgain, Return, Withdraw
from qm_scheduler.inventory import ReturnCards
from qm_scheduler.projections import ALLOCATIONS, PROJECTIONS
from qm_scheduler.settle import settle
from qm_service.model import Act, Definition, Reaction


def _on_order(order: str, command: Any) -> Sequence[Act]:
    return (Act(stream_name("allocation", order), command),)


def _withdraw(order: str, cause: Literal["cancelled", "expired", "released"], at: datetime) -> Sequence[Act]:
    return _on_order(order, Withdraw(order, cause, at))


def _admitted(event: Event[OrderAdmitted]) -> Sequence[Act]:
    fact = event.data
    return _on_order(fact.order, Enqueue(fact.order, fact.request, fact.submitted_at))


def _suspended(event: Event[OrderSuspended]) -> Sequence[Act]:
    return _on_order(event.data.order, Preempt(event.data.order, None, "suspended", event.data.why))


def _resumed(event: Event[OrderResumed]) -> Sequence[Act]:
    return _queue_again(event.data.order, anywhere=True)


def _cancel(event: Event[OrderCancelRequested]) -> Sequence[Act]:
    return _withdraw(event.data.order, "cancelled", event.data.requested_at)


def _release(event: Event[OrderReleaseRequested]) -> Sequence[Act]:
    return _withdraw(event.data.order, "released", event.data.requested_at)


def _expired(event: Event[OrderExpired]) -> Sequence[Act]:
    return _withdraw(event.data.order, "expired", event.data.expired_at)


def _replacement(event: Event[OrderReplacementRequested]) -> Sequence[Act]:
    fact = event.data
    why = fact.reason or f"Its owner asked for others in the place of {', '.join(fact.cards)}."[:500]
    return _on_order(fact.order, Preempt(fact.order, fact.allocation, "replaced", why, fact.cards))


def _failed(event: Event[EnvironmentFailed]) -> Sequence[Act]:
    fact = event.data
    if not fact.elsewhere:
        return ()
    return _on_order(fact.order, Preempt(fact.order, fact.allocation, "replaced", fact.error[:500]))


def _validated(event: Event[EnvironmentValidated]) -> Sequence[Act]:
    fact = event.data
    clean = tuple(card for card in fact.clean if card not in fact.suspect)
    reason = "reported suspect, or sick when it came back"
    return _on_order(fact.order, Return(fact.order, fact.allocation, clean, reason, fact.validated_at))


def _quarantined(event: Event[EnvironmentQuarantined]) -> Sequence[Act]:
    fact = event.data
    reason = f"{fact.step}: {fact.error}"
    return _on_order(fact.order, Return(fact.order, fact.allocation, (), reason, fact.quarantined_at))


def _released(event: Event[EnvironmentReleased]) -> Sequence[Act]:
    # A clean environment was gone when it was validated.
    return _queue_again(event.data.order) if event.data.outcome == "quarantined" else ()


def _queue_again(order: str, *, anywhere: bool = False) -> Sequence[Act]:
    command = QueueAgain(order, anywhere)
    return (Act(stream_name("allocation", order), command, needs=((ALLOCATIONS.name, order),)),)


def _returned(event: Event[AllocationReturned]) -> Sequence[Act]:
    fact = event.data
    command = ReturnCards(fact.allocation, fact.pooled, fact.reason, fact.returned_at)
    return tuple(Act(stream_name("node", node), command) for node in fact.nodes)


REACTIONS: Mapping[type[EventData], Reaction] = {
    OrderAdmitted: _admitted,
    OrderSuspended: _suspended,
    OrderResumed: _resumed,
    OrderCancelRequested: _cancel,
    OrderReleaseRequested: _release,
    OrderExpired: _expired,
    OrderReplacementRequested: _replacement,
    EnvironmentFailed: _failed,
    EnvironmentValidated: _validated,
    EnvironmentQuarantined: _quarantined,
    EnvironmentReleased: _released,
    AllocationReturned: _returned,
}

SCHEDULER = Definition(
    name="scheduler",
    deciders=DECIDERS,
    projections=PROJECTIONS,
    reactions=REACTIONS,
    settle=settle,
    due=lambda ctx: ctx.index.due,
    new_index=Board,
)
