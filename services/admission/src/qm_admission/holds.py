"""What moves the card-hours that an admitted order holds: its start, an extension, the time, and metering. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from qm_admission import claims, hours
from qm_admission.hours import Cover, Life
from qm_admission.months import month_end
from qm_admission.state import HOLDING, RUNNING, Admission
from qm_events import EventData
from qm_events.admission import OrderSuspended
from qm_events.admission_quota import QuotaAdjusted, QuotaHoursEnding, QuotaHoursExhausted
from qm_events.metering import UsageCorrected, UsageRecorded
from qm_events.specs import Amounts
from qm_service.model import Context, Decision


@dataclass(frozen=True, slots=True)
class Begin:
    """The environment is ready: billing begins, and the duration counts from the first time."""

    order: str
    at: datetime
    allocation: str = ""


@dataclass(frozen=True, slots=True)
class Prolong:
    """The end was moved."""

    order: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Look:
    """Its time has come: the month turns, or the hours that are held come to their end."""

    order: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Metering has said a line."""

    order: str
    line: UsageRecorded | UsageCorrected


@dataclass(frozen=True, slots=True)
class Close:
    """The cards are back: where billing never began, no line will settle the hold."""

    order: str
    at: datetime


def begin(state: Admission, command: Begin, ctx: Context) -> list[EventData]:
    """Hold the hours of the order from the instant at which they begin."""
    hold = state.hold
    if not _live(state) or hold.ready_at or hold.life is None:
        return []
    end = hold.life.end(command.at)
    if command.allocation in hold.given_up:
        # Told late: it was ready, and gave its cards up since.
        return prolong(state, Prolong(command.order, end), ctx) if end else []
    cover = _cover(state, hold.life, command.at, end, ctx, moved=hold.covered_until is None)
    return [moved(command.order, state, cover, "ready", ctx, starts_at=command.at, allocation=command.allocation)]


def prolong(state: Admission, command: Prolong, ctx: Context) -> list[EventData]:
    """Hold hours up to the new end, as far as the limits allow: what is lacking is told before it is used up."""
    hold = state.hold
    if not _live(state) or hold.life is None or hold.life.expires_at == command.expires_at:
        return []
    start = hold.ready_at or ctx.now
    cover = _cover(state, hold.life, start, command.expires_at, ctx, moved=False)
    return [moved(command.order, state, cover, "extended", ctx, expires_at=command.expires_at)]


def look(state: Admission, command: Look, ctx: Context) -> Decision:
    """Renew what is held where the month turned or hours became free; else give notice, and at the end say so."""
    hold = state.hold
    if not _live(state) or hold.life is None or hold.looks_at is None or hold.looks_at > ctx.now:
        return []
    if hold.ready_at is None:
        end = hold.life.end(ctx.now)
        same = end is not None and hold.covered_until is None
        return [moved(command.order, state, _cover(state, hold.life, ctx.now, end, ctx, same), "renewed", ctx)]
    until = hold.covered_until
    return [] if until is None else _extended(command.order, state, hold.life, hold.ready_at, until, ctx)


def _extended(
    order: str, state: Admission, life: Life, ready_at: datetime, until: datetime, ctx: Context
) -> list[EventData]:
    scopes, zone = ctx.docs.resident("scopes"), claims.zone_of(state.scopes[0], ctx)
    start = max(until, ctx.now)
    more = hours.cover(life.portion, start, life.end(ready_at), zone, state.scopes, scopes)
    if more.amounts:
        return [_said(order, state, "renewed", more.amounts, {}, more.until, ctx)]
    action = claims.action_of(state.scopes, ctx)
    if ctx.now < until and state.hold.noticed != until:
        remedy = "Release it before, or ask for a higher limit of card_hours_month with POST /v1/quota-requests."
        ending = QuotaHoursEnding(
            order=order,
            scopes=state.scopes,
            covered_until=until,
            action=action,
            remedy=remedy,
            noticed_at=ctx.now,
            looks_at=until,
        )
        return [ending]
    turn = month_end(ctx.now, zone)
    if state.hold.exhausted:
        return [_said(order, state, "renewed", {}, {}, until, ctx, looks_at=turn)]
    about: dict[str, Any] = {"order": order, "scopes": state.scopes}
    exhausted = QuotaHoursExhausted(**about, action=action, exhausted_at=until, looks_at=turn)
    if action != "suspend":
        return [exhausted]
    why = "The monthly card-hours of its quota are used up."
    return [exhausted, OrderSuspended(**about, why=why, renews_at=turn, suspended_at=ctx.now)]


def settle_line(state: Admission, command: Settle, ctx: Context) -> Decision:
    """Book what metering says of a month as used, and free what was held for it. Each line once."""
    line = command.line
    # An order that has claimed, whatever became of it.
    if not state.scopes or line.record in state.hold.lines:
        return []
    said = hours.held(line.portion, line.from_at, line.to_at, claims.zone_of(state.scopes[0], ctx))
    held = hours.of_months(state.claim)
    if line.meter == "held":
        # A line that goes on is cut where a month was closed: the order still holds its cards.
        goes_on = line.goes_on or (line.allocation in state.hold.given_up and state.phase in HOLDING)
        over = (held or _live(state)) and isinstance(line, UsageRecorded) and not goes_on
        return [_line(command, state, "closed", {}, held)] if over else []
    if isinstance(line, UsageCorrected):
        return [_line(command, state, "corrected", {}, said)] if line.reverses in state.hold.lines else []
    if state.phase in HOLDING:
        held = {name: least for name, amount in held.items() if (least := min(amount, said.get(name, 0)))}
    return [_line(command, state, "used", said, held)]


def close(state: Admission, command: Close, _: Context) -> list[EventData]:
    """Free the hours of an order whose cards are back before billing began, as far as is known: a line counts all the
    same."""
    held, ready_at = hours.of_months(state.claim), state.hold.ready_at
    if not (held or _live(state)) or (ready_at is not None and command.at > ready_at):
        return []
    none, returned = Amounts(), Amounts(values=held)
    return [QuotaAdjusted(order=command.order, scopes=state.scopes, taken=none, returned=returned, cause="closed")]


def refundable(state: Admission) -> dict[str, int]:
    """Return what an end gives back at once: hours of an order that ran wait for what metering says of them."""
    waits = state.hold.ready_at is not None and set(state.hold.billed) <= set(state.hold.given_up)
    kept = hours.of_months(state.claim) if waits else {}
    return {name: amount for name, amount in state.claim.items() if name not in kept}


def _live(state: Admission) -> bool:
    return state.phase in RUNNING and not state.hold.ended


def _cover(state: Admission, life: Life, start: datetime, end: datetime | None, ctx: Context, moved: bool) -> Cover:
    """Return what is to be held from `start`. Hours that are only `moved` in time are the order's, limit or not."""
    zone, own = claims.zone_of(state.scopes[0], ctx), hours.of_months(state.claim)
    if end is not None and moved:
        return Cover(hours.held(life.portion, start, end, zone))
    return hours.cover(life.portion, start, end, zone, state.scopes, ctx.docs.resident("scopes"), own)


def moved(
    order: str,
    state: Admission,
    cover: Cover,
    cause: Literal["ready", "extended", "renewed", "given_up"],
    ctx: Context,
    **more: Any,
) -> QuotaAdjusted:
    """Return the fact by which an order holds what `cover` says instead of what it held."""
    own, wanted = hours.of_months(state.claim), cover.amounts
    names = sorted({*own, *wanted})
    change = {name: wanted.get(name, 0) - own.get(name, 0) for name in names}
    taken = {name: amount for name, amount in change.items() if amount > 0}
    returned = {name: -amount for name, amount in change.items() if amount < 0}
    return _said(order, state, cause, taken, returned, cover.until, ctx, **more)


def _said(
    order: str,
    state: Admission,
    cause: Literal["ready", "extended", "renewed", "given_up"],
    taken: Mapping[str, int],
    returned: Mapping[str, int],
    until: datetime | None,
    ctx: Context,
    **more: Any,
) -> QuotaAdjusted:
    runs = cause == "ready" or (cause != "given_up" and state.hold.ready_at is not None)
    later = None if until is None and runs else claims.looks_at(state.scopes, until, ctx)
    return QuotaAdjusted(
        **{
            "order": order,
            "scopes": state.scopes,
            "taken": Amounts(values=dict(taken)),
            "returned": Amounts(values=dict(returned)),
            "cause": cause,
            "covered_until": until,
            "looks_at": later,
        }
        | more
    )


def _line(
    command: Settle,
    state: Admission,
    cause: Literal["used", "corrected", "closed"],
    taken: Mapping[str, int],
    returned: Mapping[str, int],
) -> QuotaAdjusted:
    return QuotaAdjusted(
        order=command.order,
        scopes=state.scopes,
        taken=Amounts(values=dict(taken)),
        returned=Amounts(values=dict(returned)),
        cause=cause,
        record=command.line.record,
        allocation=command.line.allocation,
        looks_at=state.hold.looks_at if _live(state) and command.line.allocation in state.hold.given_up else None,
        runs_on=command.line.goes_on,
    )
