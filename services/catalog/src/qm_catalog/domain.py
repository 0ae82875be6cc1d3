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

from qm_catalog.request_record import Record, finished, promised_end
from qm_events import EventData
from qm_events.catalog import (
    OrderCancelRequested,
    OrderExpired,
    OrderExtensionRequested,
    OrderReleaseRequested,
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
class Expire:
    """Its promised end was reached."""

    order: str
    at: datetime


Command = Submit | Cancel | Release | Extend | Expire


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


def _extend(_: Order, command: Extend, ctx: Context) -> Decision:
    record: Record | None = ctx.docs.get(RECORDS, command.order)
    end, wanted = promised_end(record) if record else None, command.expires_at
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


def _expire(_: Order, command: Expire, __: Context) -> Decision:
    return (OrderExpired(order=command.order, expired_at=command.at),)


_DECIDE: Mapping[type, Callable[[Order, Any, Context], Decision]] = {
    Cancel: _cancel,
    Release: _release,
    Extend: _extend,
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
    if isinstance(command, Extend):
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
    OrderExpired: lambda state, _: replace(state, ended=True),
}


def evolve(state: Order, data: EventData) -> Order:
    """Return the order after a fact of its stream; a fact of another kind raises KeyError."""
    return _EVOLVE[type(data)](state, data)


ORDER = Decider("order", Order(), decide, evolve)
