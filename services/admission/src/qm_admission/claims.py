"""The gate of the quota: what an order asks of the ledger now, what the ledger says, and the facts of a claim. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from qm_admission import hours, lending, precedence, quota
from qm_admission.hours import Life
from qm_admission.lines import Place
from qm_admission.months import month_end
from qm_admission.quota import EMPTY, Answer, Quantities
from qm_events import EventData
from qm_events.admission import OrderAdmitted, OrderResumed, QuotaClaimed, Submission
from qm_events.specs import Amounts, Violation
from qm_service.model import Context


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the ledger says to an order now."""

    path: tuple[str, ...]
    amounts: Quantities
    answer: Answer
    violations: tuple[Violation, ...]
    covered_until: datetime | None


def zone_of(tenant: str, ctx: Context) -> str:
    """Return the zone in which the months of a tenant are counted."""
    doc = ctx.docs.resident("tenants").get(tenant)
    return doc.timezone if doc else "UTC"


def weigh(path: tuple[str, ...], fixed: Quantities, life: Life, place: Place, priority: int, ctx: Context) -> Verdict:
    """Return the answer to a claim of the `fixed` amounts and of the hours of `life`, were it made now."""
    scopes, zone = ctx.docs.resident("scopes"), zone_of(path[0], ctx)
    ahead, room = ctx.index.lines.ahead_of(place), ctx.index.lending.room
    taken, until = hours.asked(life, ctx.now, zone, path, scopes)
    amounts = {**fixed, **taken}
    if urgent := precedence.above(path, scopes, priority):
        answer, violations = Answer.NEVER_FITS, (*urgent, *quota.never_fits(path, scopes, amounts))
    else:
        answer, violations = quota.assess(path, scopes, amounts, ahead, room)
    return Verdict(path, amounts, answer, tuple(_dated(it, zone) for it in violations), until)


def _dated(violation: Violation, zone: str) -> Violation:
    if not violation.dimension.startswith(quota.HOURS):
        return violation
    return violation.model_copy(update={"renews_at": hours.renews_at(violation.dimension, zone)})


def claimed(order: str, submission: Submission, verdict: Verdict, ctx: Context) -> list[EventData]:
    """Return the claim, at all scopes at once, and the admission."""
    claim = _claim(order, verdict, ctx)
    about: dict[str, Any] = {name: getattr(claim, name) for name in ("borrowed", "reclaims", "covered_until")}
    return [claim, OrderAdmitted(order=order, **dict(submission), **about)]


def resumed(order: str, verdict: Verdict, ctx: Context) -> list[EventData]:
    """Return the claim, at all scopes at once, and the end of the suspension."""
    claim = _claim(order, verdict, ctx)
    about: dict[str, Any] = {name: getattr(claim, name) for name in ("borrowed", "reclaims", "covered_until")}
    return [claim, OrderResumed(order=order, resumed_at=ctx.now, **about)]


def _claim(order: str, verdict: Verdict, ctx: Context) -> QuotaClaimed:
    path, amounts, until = verdict.path, verdict.amounts, verdict.covered_until
    scopes = ctx.docs.resident("scopes")
    reclaims = lent_out(path, amounts, ctx)
    borrowed = _some(lending.beyond(scopes.get(path[-1], EMPTY), amounts))
    return QuotaClaimed(
        order=order,
        scopes=path,
        amounts=Amounts(values=dict(amounts)),
        borrowed=borrowed,
        reclaims=reclaims,
        reported=quota.reported(path, scopes, amounts) or None,
        covered_until=until,
        looks_at=looks_at(path, until, ctx),
    )


def lent_out(path: tuple[str, ...], amounts: Quantities, ctx: Context) -> Amounts | None:
    """Return what of a claim is the project's own and lent to others now."""
    scope = ctx.docs.resident("scopes").get(path[-1], EMPTY)
    return _some(ctx.index.lending.lent_out(path[-1], scope, amounts)) if scope.lend else None


def looks_at(path: tuple[str, ...], until: datetime | None, ctx: Context) -> datetime:
    """Return when the hours of an order that is not ready are to be looked at: before they end, or the month does."""
    turn = month_end(ctx.now, zone_of(path[0], ctx))
    if until is None or until <= ctx.now:
        return turn
    noticed = until - notice_of(path, ctx)
    return min(turn, noticed if noticed > ctx.now else until)


def notice_of(path: tuple[str, ...], ctx: Context) -> timedelta:
    """Return how long before the end of its hours an order is noticed: the nearest scope that limits hours decides."""
    scopes = ctx.docs.resident("scopes")
    said = [it.notice_seconds for name in path if (it := scopes.get(name)) and quota.HOURS in it.limits]
    return timedelta(seconds=said[-1] if said else quota.NOTICE_SECONDS)


def action_of(path: tuple[str, ...], ctx: Context) -> Any:
    """Return what happens to a running order whose hours are used up: the nearest scope that says so decides."""
    scopes = ctx.docs.resident("scopes")
    said = [it.exhausted for name in path if (it := scopes.get(name)) and it.exhausted and quota.HOURS in it.limits]
    return said[-1] if said else "warn"


def _some(amounts: Quantities) -> Amounts | None:
    return Amounts(values=dict(amounts)) if amounts else None
