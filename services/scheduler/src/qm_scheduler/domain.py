"""What may be asked of an order in the queue and of its allocation: streams `allocation/<order>`.

The end of an order may overtake its beginning: then `allocation.withdrawn` is the first fact and nothing follows it.
An order that gives its cards up is in the queue again, in its old place, once nothing of its environment is left there,
unless it ended meanwhile: then it is over when its cards are back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from qm_events import EventData
from qm_events.ids import derived_id
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
from qm_events.specs import Health, OrderRequest, PlacedUnit, WaitReason
from qm_scheduler.allocation import Allocation, Phase, evolve
from qm_scheduler.inventory import NODE
from qm_scheduler.reservations import RESERVATION
from qm_scheduler.shares import SHARE
from qm_scheduler.workload import WORKLOAD
from qm_service.model import Context, Decider, Decision

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
    victims: tuple[str, ...] = ()
    """Allocations that give their cards up for it."""


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
class Preempt:
    """Let the order give these cards up and live on."""

    order: str
    allocation: str | None
    """None: those that it holds."""
    cause: Literal["preempted", "reclaimed", "replaced", "suspended"]
    why: str
    suspect: tuple[str, ...] = ()
    """Cards that are isolated when they come back."""
    not_before: datetime | None = None
    """It is given nothing before this time."""


@dataclass(frozen=True, slots=True)
class QueueAgain:
    """What kept an order that gave its cards up out of the queue may be over."""

    order: str
    anywhere: bool = False
    """Its quota is claimed anew, for every type that it accepts."""


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
    if state.phase not in (Phase.UNKNOWN, Phase.WAITING, Phase.ASIDE):
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
    if state.phase is not Phase.WAITING or state.promise == (command.places, command.until, command.victims):
        return []
    return [
        AllocationPromised(
            order=command.order,
            places=command.places,
            until=command.until,
            victims=command.victims or None,
            promised_at=ctx.now,
        )
    ]


def _impair(state: Allocation, command: Impair, ctx: Context) -> Decision:
    known = state.impaired.get(command.card, Health.HEALTHY)
    if state.phase is not Phase.ALLOCATED or known is command.health:
        return []
    impaired = AllocationImpaired(
        order=command.order,
        allocation=state.allocation,
        node=command.node,
        card=command.card,
        health=command.health,
        code=command.code,
        impaired_at=ctx.now,
    )
    wanted = state.request is not None and state.request.on_card_failure == "replace"
    if not wanted or command.health is not Health.FAILED:
        return [impaired]
    why = f"Card {command.card} failed{command.code and ': '}{command.code}."[:500]
    preempted = _preempt(state, Preempt(command.order, None, "replaced", why, (command.card,)), ctx)
    return [impaired, *preempted]


def _explain(state: Allocation, command: Explain, ctx: Context) -> Decision:
    if state.phase is not Phase.WAITING or state.code is command.reasons[0].code:
        return []
    return [AllocationWaiting(order=command.order, reasons=command.reasons, since=ctx.now)]


def _preempt(state: Allocation, command: Preempt, ctx: Context) -> list[EventData]:
    if state.phase is not Phase.ALLOCATED or _is_over(ctx, command.order):
        return []
    if command.allocation not in (None, state.allocation):
        return []
    return [
        AllocationPreempted(
            order=command.order,
            allocation=state.allocation,
            cause=command.cause,
            why=command.why,
            accelerators=tuple(sorted({unit.accelerator for unit in state.units})),
            not_before=command.not_before,
            suspect=command.suspect or None,
            preempted_at=ctx.now,
        )
    ]


def _is_over(ctx: Context, order: str) -> bool:
    return ctx.docs.resident("allocations")[order].ended_at is not None


def _return(state: Allocation, command: Return, ctx: Context) -> Decision:
    if state.allocation != command.allocation or state.allocated_at is None:
        return []
    if state.phase is Phase.ALLOCATED:
        return [_returned(state, command, state.allocated_at, ctx)]
    if state.phase is not Phase.PREEMPTED:
        return []
    lives_on = not _is_over(ctx, command.order)
    returned = _returned(state, command, state.allocated_at, ctx, lives_on=lives_on or None)
    return [returned, *(_queued_again(state, command.order, ctx) if lives_on else [])]


def _queued_again(state: Allocation, order: str, ctx: Context, *, anywhere: bool = False) -> list[EventData]:
    """Put an order that holds nothing any more in its old place, if nothing speaks against it."""
    doc = ctx.docs.get("allocations", order)
    # While something of the environment is left, the next one of the order has nowhere to be built.
    if doc is None or doc.suspended or doc.gone != state.allocation:
        return []
    if state.request is None or state.submitted_at is None:
        return []
    asked = state.request if anywhere else _as_claimed(state.request, state.units)
    return [AllocationQueued(order=order, request=asked, submitted_at=state.submitted_at, queued_at=ctx.now)]


def _as_claimed(request: OrderRequest, units: tuple[PlacedUnit, ...]) -> OrderRequest:
    """Return what may be placed: of the types that the order accepts, quota is held for those it had."""
    had = {unit.accelerator for unit in units}
    specification = request.specification
    types = tuple(name for name in specification.accelerators if name in had)
    return request.model_copy(update={"specification": specification.model_copy(update={"accelerators": types})})


def _returned(
    state: Allocation, command: Return, since: datetime, ctx: Context, *, lives_on: bool | None = None
) -> AllocationReturned:
    # Slices of one card are one card here.
    cards = dict.fromkeys((unit.node, card) for unit in state.units for card in unit.cards)
    clean = set(command.clean).difference(state.suspect)
    pooled = tuple(card for node, card in cards if card in clean and not _is_sick(ctx, node, card))
    isolated = tuple(card for _, card in cards if card not in pooled)
    return AllocationReturned(
        order=command.order,
        allocation=state.allocation,
        nodes=tuple(sorted({node for node, _ in cards})),
        pooled=pooled,
        quarantined=isolated,
        reason=command.reason if isolated else "",
        lives_on=lives_on,
        # A clock that ran backwards between two services must not make a negative interval.
        returned_at=max(command.returned_at, since),
    )


def _queue_again(state: Allocation, command: QueueAgain, ctx: Context) -> Decision:
    if state.phase is not Phase.ASIDE:
        return []
    return _queued_again(state, command.order, ctx, anywhere=command.anywhere)


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
    Preempt: _preempt,
    QueueAgain: _queue_again,
    Return: _return,
}


def decide(state: Allocation, command: Any, ctx: Context) -> Decision:
    """Answer one command on an order. What is late, repeated or unknown leads to nothing."""
    return RULES[type(command)](state, command, ctx)


ALLOCATION = Decider("allocation", Allocation(), decide, evolve)

DECIDERS = (ALLOCATION, NODE, SHARE, RESERVATION, WORKLOAD)
