"""An order in the queue and its allocation: streams `allocation/<order>`. Each state has a line in `Phase`.

The end of an order may overtake its beginning: then `allocation.withdrawn` is the first fact and nothing follows it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from qm_events import EventData
from qm_events.ids import derived_id
from qm_events.scheduler import (
    AllocationAllocated,
    AllocationImpaired,
    AllocationPromised,
    AllocationQueued,
    AllocationReturned,
    AllocationWaiting,
    AllocationWithdrawn,
    KeptPlace,
)
from qm_events.specs import Health, OrderRequest, PlacedUnit, WaitCode, WaitReason
from qm_scheduler.inventory import NODE
from qm_scheduler.shares import SHARE
from qm_scheduler.workload import WORKLOAD
from qm_service.model import Context, Decider, Decision


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
    RETURNED = "returned"
    """Gave its cards back; final."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The state of an order's stream."""

    phase: Phase = Phase.UNKNOWN
    request: OrderRequest | None = None
    code: WaitCode | None = None
    promise: tuple[tuple[KeptPlace, ...], datetime | None] = ((), None)
    """Where a place is kept, and until when."""
    grants: int = 0
    """How often cards were given; numbers the allocations of the order."""
    allocation: str = ""
    units: tuple[PlacedUnit, ...] = ()
    allocated_at: datetime | None = None
    impaired: dict[str, Health] = field(default_factory=dict)
    """Cards of it that are sick."""


# ---- commands


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Admission let the order in."""

    order: str
    request: OrderRequest
    submitted_at: datetime


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The order ended; means something only while it holds no cards."""

    order: str
    cause: Literal["cancelled", "expired", "released"]
    withdrawn_at: datetime


@dataclass(frozen=True, slots=True)
class Allocate:
    """Give these cards."""

    order: str
    units: tuple[PlacedUnit, ...]


@dataclass(frozen=True, slots=True)
class Promise:
    """Keep this place, instead of that which was kept before."""

    order: str
    places: tuple[KeptPlace, ...]
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Impair:
    """A card that it holds is sick, or (healthy) no longer."""

    order: str
    node: str
    card: str
    health: Health
    code: str


@dataclass(frozen=True, slots=True)
class Explain:
    """Say why it waits."""

    order: str
    reasons: tuple[WaitReason, ...]


@dataclass(frozen=True, slots=True)
class Return:
    """The provisioner let go of the cards; only `clean` ones may serve again."""

    order: str
    allocation: str
    clean: tuple[str, ...]
    reason: str
    """Why the others may not."""
    returned_at: datetime


@lru_cache(maxsize=1 << 10)
def allocation_id(order: str, grant: int) -> str:
    """Return the id of the `grant`-th allocation of an order, from 1."""
    return derived_id(order, grant)


def _enqueue(state: Allocation, command: Enqueue, ctx: Context) -> Decision:
    if state.phase is not Phase.UNKNOWN:
        return []
    return [
        AllocationQueued(
            order=command.order, request=command.request, submitted_at=command.submitted_at, queued_at=ctx.now
        )
    ]


def _withdraw(state: Allocation, command: Withdraw, _: Context) -> Decision:
    if state.phase not in (Phase.UNKNOWN, Phase.WAITING):
        return []
    return [AllocationWithdrawn(order=command.order, cause=command.cause, withdrawn_at=command.withdrawn_at)]


def _allocate(state: Allocation, command: Allocate, ctx: Context) -> Decision:
    if state.phase is not Phase.WAITING or state.request is None:
        return []
    return [
        AllocationAllocated(
            order=command.order,
            allocation=allocation_id(command.order, state.grants + 1),
            request=state.request,
            units=command.units,
            allocated_at=ctx.now,
        )
    ]


def _promise(state: Allocation, command: Promise, ctx: Context) -> Decision:
    if state.phase is not Phase.WAITING or state.promise == (command.places, command.until):
        return []
    return [AllocationPromised(order=command.order, places=command.places, until=command.until, promised_at=ctx.now)]


def _impair(state: Allocation, command: Impair, ctx: Context) -> Decision:
    known = state.impaired.get(command.card, Health.HEALTHY)
    if state.phase is not Phase.ALLOCATED or known is command.health:
        return []
    return [
        AllocationImpaired(
            order=command.order,
            allocation=state.allocation,
            node=command.node,
            card=command.card,
            health=command.health,
            code=command.code,
            impaired_at=ctx.now,
        )
    ]


def _explain(state: Allocation, command: Explain, ctx: Context) -> Decision:
    if state.phase is not Phase.WAITING or state.code is command.reasons[0].code:
        return []
    return [AllocationWaiting(order=command.order, reasons=command.reasons, since=ctx.now)]


def _return(state: Allocation, command: Return, ctx: Context) -> Decision:
    if state.phase is not Phase.ALLOCATED or state.allocation != command.allocation or state.allocated_at is None:
        return []
    # Slices of one card are one card here.
    cards = dict.fromkeys((unit.node, card) for unit in state.units for card in unit.cards)
    pooled = tuple(card for node, card in cards if card in command.clean and not _is_sick(ctx, node, card))
    isolated = tuple(card for _, card in cards if card not in pooled)
    return [
        AllocationReturned(
            order=command.order,
            allocation=state.allocation,
            nodes=tuple(sorted({node for node, _ in cards})),
            pooled=pooled,
            quarantined=isolated,
            reason=command.reason if isolated else "",
            # A clock that ran backwards between two services must not make a negative interval.
            returned_at=max(command.returned_at, state.allocated_at),
        )
    ]


def _is_sick(ctx: Context, node: str, card: str) -> bool:
    """Unknown is not sick: such a card is pooled, and is free once it is seen to be well."""
    known = ctx.docs.resident("nodes")[node].cards[card]
    return known.health in (Health.SUSPECT, Health.FAILED)


RULES: Mapping[type, Callable[[Allocation, Any, Context], Decision]] = {
    Enqueue: _enqueue,
    Withdraw: _withdraw,
    Allocate: _allocate,
    Promise: _promise,
    Impair: _impair,
    Explain: _explain,
    Return: _return,
}


def decide(state: Allocation, command: Any, ctx: Context) -> Decision:
    """Answer one command on an order. What is late, repeated or unknown leads to nothing."""
    return RULES[type(command)](state, command, ctx)


# ---- facts

FACTS: Mapping[type[EventData], Callable[[Allocation, Any], Allocation]] = {
    AllocationQueued: lambda state, fact: replace(state, phase=Phase.WAITING, request=fact.request),
    AllocationWaiting: lambda state, fact: replace(state, code=fact.reasons[0].code),
    AllocationPromised: lambda state, fact: replace(state, promise=(fact.places, fact.until)),
    AllocationAllocated: lambda state, fact: replace(
        state,
        promise=((), None),
        phase=Phase.ALLOCATED,
        grants=state.grants + 1,
        allocation=fact.allocation,
        units=fact.units,
        allocated_at=fact.allocated_at,
    ),
    AllocationImpaired: lambda state, fact: replace(state, impaired={**state.impaired, fact.card: fact.health}),
    AllocationWithdrawn: lambda state, _: replace(state, phase=Phase.WITHDRAWN),
    AllocationReturned: lambda state, _: replace(state, phase=Phase.RETURNED),
}


def evolve(state: Allocation, fact: Any) -> Allocation:
    """Return the state after a fact."""
    return FACTS[type(fact)](state, fact)


ALLOCATION = Decider("allocation", Allocation(), decide, evolve)

DECIDERS = (ALLOCATION, NODE, SHARE, WORKLOAD)
