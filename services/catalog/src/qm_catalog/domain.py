"""What a command on an order leads to: streams `order/<order>`.

An order is asked for once and ended once: the first cancel, release or expiry is the end, and every later one leads to
nothing new. All that happens in between is told by others; what a decision needs of it is in the record.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from qm_catalog.record_phase import Phase, phase
from qm_catalog.request_record import Record
from qm_catalog.standing import finished, promised_end
from qm_events import EventData
from qm_events.catalog import (
    OrderCancelRequested,
    OrderExpired,
    OrderExtensionRequested,
    OrderReleaseRequested,
    OrderReplacementRequested,
    OrderSubmitted,
)
from qm_events.envelope import utc_text
from qm_events.ids import stream_name
from qm_events.specs import FaultReport, OrderRequest
from qm_service.model import Act, Context, Decider, Decision, Rejected

RECORDS = "records"
"""The projection that holds the records."""
LIFE_MAX = timedelta(days=3660)
"""How far ahead an order may end."""


@dataclass(frozen=True, slots=True)
class Order:
    """As much of an order as the catalog's own facts say."""

    id: str = ""
    submitted: bool = False
    ended: bool = False
    replaced: str = ""
    """The last allocation for which other cards were asked."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Take the order."""

    order: str
    request: OrderRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """End it: wanted no more."""

    order: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """End it: done with it."""

    order: str
    fault: FaultReport | None = None


@dataclass(frozen=True, slots=True)
class Extend:
    """Move its end."""

    order: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Replace:
    """Have other cards in the place of the sick ones, or of the one named."""

    order: str
    card: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Expire:
    """Its promised end was reached."""

    order: str
    at: datetime


Command = Submit | Cancel | Release | Extend | Replace | Expire


def digest_of(request: OrderRequest) -> str:
    """Return the SHA-256 of the canonical JSON of the parameters, in hex; an approval is bound to it."""
    body = request.model_dump(mode="json")
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def act(command: Command, tenant: str | None = None, project: str | None = None) -> Act:
    """Return the act that brings a command to its order."""
    order = command.order
    return Act(stream_name("order", order), command, tenant, project, correlation=order, needs=((RECORDS, order),))


def _submit(state: Order, command: Submit, ctx: Context) -> Decision:
    if state.submitted:
        return ()
    request = command.request
    return (OrderSubmitted(order=command.order, request=request, digest=digest_of(request), submitted_at=ctx.now),)


def _cancel(_: Order, command: Cancel, ctx: Context) -> Decision:
    return (OrderCancelRequested(order=command.order, requested_at=ctx.now, reason=command.reason),)


def _release(_: Order, command: Release, ctx: Context) -> Decision:
    return (OrderReleaseRequested(order=command.order, requested_at=ctx.now, fault=command.fault),)


_UNDECIDED = (Phase.SUBMITTED, Phase.PENDING_APPROVAL, Phase.HELD)


def _extend(_: Order, command: Extend, ctx: Context) -> Decision:
    record: Record | None = ctx.docs.get(RECORDS, command.order)
    if record is None or phase(record) in _UNDECIDED:
        # People and quota decide on what was asked for: a later end is not slipped in under their decision.
        stands = phase(record) if record else Phase.SUBMITTED
        detail = f"order {command.order} is {stands.value}"
        return Rejected("order-waiting", detail, "Move its end once it is admitted; or cancel it and order again.")
    end, wanted = promised_end(record), command.expires_at
    if wanted == end:
        return ()
    if wanted <= ctx.now or (end is not None and wanted < end):
        return Rejected(
            "not-an-extension",
            f"{utc_text(wanted)} is not after {utc_text(end or ctx.now)}",
            "Name a later end; to end the order sooner, release it.",
        )
    if wanted > ctx.now + LIFE_MAX:
        return Rejected("not-an-extension", f"{utc_text(wanted)} is more than ten years ahead", "Name a nearer end.")
    return (OrderExtensionRequested(order=command.order, expires_at=wanted, requested_at=ctx.now),)


def _replace(state: Order, command: Replace, ctx: Context) -> Decision:
    record: Record | None = ctx.docs.get(RECORDS, command.order)
    placed = record.placed if record else None
    if placed is None or placed.allocation is None:
        return Rejected("nothing-to-replace", f"order {command.order} has no cards now", "Wait until it has.")
    if placed.given_up or state.replaced == placed.allocation:
        return ()
    sick = tuple(impaired.card for impaired in placed.impaired)
    cards = (command.card,) if command.card else sick
    if not cards:
        detail = f"no card of order {command.order} was seen to be sick"
        return Rejected("nothing-to-replace", detail, "Name the card that is at fault, and say what is wrong with it.")
    return (
        OrderReplacementRequested(
            order=command.order,
            allocation=placed.allocation,
            cards=cards,
            reason=command.reason,
            requested_at=ctx.now,
        ),
    )


def _expire(_: Order, command: Expire, __: Context) -> Decision:
    return (OrderExpired(order=command.order, expired_at=command.at),)


_DECIDE: Mapping[type, Callable[[Order, Any, Context], Decision]] = {
    Cancel: _cancel,
    Release: _release,
    Extend: _extend,
    Replace: _replace,
    Expire: _expire,
}


def decide(state: Order, command: Command, ctx: Context) -> Decision:
    """Return what the command leads to: nothing where the order is unknown or ends already."""
    if isinstance(command, Submit):
        return _submit(state, command, ctx)
    if not state.submitted:
        return Rejected("not-found", f"there is no order {command.order}")
    record: Record | None = ctx.docs.get(RECORDS, command.order)
    if state.ended or (record is not None and finished(record)):
        return _after_the_end(command)
    return _DECIDE[type(command)](state, command, ctx)


def _after_the_end(command: Command) -> Decision:
    if isinstance(command, Extend | Replace):
        return Rejected("order-ended", f"order {command.order} is at its end", "Place a new order.")
    return ()


def _submitted(state: Order, data: OrderSubmitted) -> Order:
    if state.submitted:
        raise ValueError(f"order {data.order} was submitted twice")
    return replace(state, id=data.order, submitted=True)


_EVOLVE: Mapping[type[EventData], Callable[[Order, Any], Order]] = {
    OrderSubmitted: _submitted,
    OrderCancelRequested: lambda state, _: replace(state, ended=True),
    OrderReleaseRequested: lambda state, _: replace(state, ended=True),
    OrderExtensionRequested: lambda state, _: state,
    OrderReplacementRequested: lambda state, data: replace(state, replaced=data.allocation),
    OrderExpired: lambda state, _: replace(state, ended=True),
}


def evolve(state: Order, data: EventData) -> Order:
    """Return the order after a fact of its stream; a fact of another kind raises KeyError."""
    return _EVOLVE[type(data)](state, data)


ORDER = Decider("order", Order(), decide, evolve)
