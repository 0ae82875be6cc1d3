"""An order as its facts in the queue tell it: the state of the stream `allocation/<order>`. Each state has a line in
`Phase`.

One order may hold cards several times, one allocation after the other: it gives one up and lives on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from qm_events import EventData
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
)
from qm_events.specs import Health, OrderRequest, PlacedUnit, WaitCode


class Phase(StrEnum):
    """Where the order stands, as the scheduler sees it."""

    UNKNOWN = "unknown"
    """Not heard of."""
    WAITING = "waiting"
    """In the queue."""
    ALLOCATED = "allocated"
    """Holds cards."""
    WITHDRAWN = "withdrawn"
    """Ended without cards; final."""
    PREEMPTED = "preempted"
    """Gives its cards up and holds them until they are clean; the order lives on."""
    ASIDE = "aside"
    """Gave its cards up, and is not in the queue again yet."""
    RETURNED = "returned"
    """Gave its cards back; final."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The state of an order's stream."""

    phase: Phase = Phase.UNKNOWN
    request: OrderRequest | None = None
    code: WaitCode | None = None
    submitted_at: datetime | None = None
    promise: tuple[tuple[KeptPlace, ...], datetime | None, tuple[str, ...]] = ((), None, ())
    """Where a place is kept, until when, and which allocations leave for it."""
    grants: int = 0
    """How often cards were given; numbers the allocations of the order."""
    allocation: str = ""
    units: tuple[PlacedUnit, ...] = ()
    allocated_at: datetime | None = None
    impaired: dict[str, Health] = field(default_factory=dict)
    """Cards of it that are sick."""
    suspect: tuple[str, ...] = ()
    """Cards of it that are isolated when they come back."""


FACTS: Mapping[type[EventData], Callable[[Allocation, Any], Allocation]] = {
    AllocationQueued: lambda state, fact: replace(
        state, phase=Phase.WAITING, request=state.request or fact.request, code=None, submitted_at=fact.submitted_at
    ),
    AllocationWaiting: lambda state, fact: replace(state, code=fact.reasons[0].code),
    AllocationPromised: lambda state, fact: replace(state, promise=(fact.places, fact.until, fact.victims or ())),
    AllocationAllocated: lambda state, fact: replace(
        state,
        promise=((), None, ()),
        phase=Phase.ALLOCATED,
        grants=state.grants + 1,
        allocation=fact.allocation,
        units=fact.units,
        allocated_at=fact.allocated_at,
        impaired={},
        suspect=(),
    ),
    AllocationImpaired: lambda state, fact: replace(state, impaired={**state.impaired, fact.card: fact.health}),
    AllocationWithdrawn: lambda state, _: replace(state, phase=Phase.WITHDRAWN),
    AllocationPreempted: lambda state, fact: replace(state, phase=Phase.PREEMPTED, suspect=fact.suspect or ()),
    AllocationReturned: lambda state, fact: replace(state, phase=Phase.ASIDE if fact.lives_on else Phase.RETURNED),
}


def evolve(state: Allocation, fact: Any) -> Allocation:
    """Return the state after a fact."""
    return FACTS[type(fact)](state, fact)
