"""An order that gives its cards up and lives on. Pure.

Its claim stays: it is in the queue again and counts as if it began now, up to the end that was promised when it was
first ready. An order that is suspended, as its card-hours are used up, gives its claim back with its cards and stands
in line for it like any other, in the place that its submission gives it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from qm_admission import claims, gates, holds, hours, quota
from qm_admission.hours import Cover, Life
from qm_admission.state import HOLDING, Admission, Phase, evolve
from qm_events import EventData
from qm_events.admission import Submission
from qm_events.admission_quota import QuotaAdjusted
from qm_events.specs import Amounts, PlacedUnit
from qm_service.model import Context, Decision


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It gives the cards of an allocation up: what it uses of hours ends here."""

    order: str
    allocation: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SetAside:
    """The cards that it gave up are back."""

    order: str


def begin(state: Admission, command: holds.Begin, ctx: Context) -> Decision:
    """Hold hours from here on. On other cards than before: it gave those up, which is told late."""
    hold, now = state.hold, command.allocation
    if not hold.ready_at or hold.ready_on in ("", now) or now in hold.given_up:
        return holds.begin(state, command, ctx)
    told = give_up(state, GiveUp(command.order, hold.ready_on, command.at), ctx)
    return [*told, *holds.begin(reduce(evolve, told, state), command, ctx)]


def give_up(state: Admission, command: GiveUp, ctx: Context) -> list[EventData]:
    """Hold hours as for an order that is not ready, beside those that were used and that metering will tell of."""
    hold = state.hold
    if state.phase not in HOLDING:
        # Where nothing was billed, no line will free what is held.
        never_ran = hold.ready_on == command.allocation
        return holds.close(state, holds.Close(command.order, command.at), ctx) if never_ran else []
    if hold.life is None or command.allocation in hold.given_up:
        return []
    zone, own = claims.zone_of(state.scopes[0], ctx), hours.of_months(state.claim)
    end = hold.life.end(hold.ready_at) if hold.ready_at else hold.life.expires_at
    awaited: Mapping[str, int] = {}
    if hold.ready_at and hold.ready_at < command.at and command.allocation not in hold.billed:
        # Not more than is held: a line tells the truth, whatever was expected of it.
        used = hours.held(hold.life.cards, hold.ready_at, command.at, zone)
        awaited = {name: least for name, amount in used.items() if (least := min(amount, own.get(name, 0)))}
    cover = _cover(state, Life(hold.life.cards, hold.life.seconds, end), quota.subtract(own, awaited), ctx)
    wanted = {name: cover.amounts.get(name, 0) + awaited.get(name, 0) for name in {**cover.amounts, **awaited}}
    told = {"allocation": command.allocation, "expires_at": end}
    return [holds.moved(command.order, state, Cover(wanted, cover.until), "given_up", ctx, **told)]


def _cover(state: Admission, life: Life, own: Mapping[str, int], ctx: Context) -> Cover:
    if state.phase is Phase.SUSPENDED:
        return Cover({})
    zone, end = claims.zone_of(state.scopes[0], ctx), life.end(ctx.now)
    if end is not None and state.hold.covered_until is None and own:
        return Cover(hours.held(life.cards, ctx.now, end, zone))
    return hours.cover(life.cards, ctx.now, end, zone, state.scopes, ctx.docs.resident("scopes"), own)


def set_aside(state: Admission, command: SetAside, _: Context) -> Decision:
    """Free the claim of a suspended order, but for hours that metering has not told of."""
    if state.phase is not Phase.SUSPENDED:
        return []
    free = {name: amount for name, amount in state.claim.items() if name not in hours.of_months(state.claim)}
    none, returned = Amounts(), Amounts(values=free)
    return [QuotaAdjusted(order=command.order, scopes=state.scopes, taken=none, returned=returned, cause="suspended")]


def rejoin(state: Admission, order: str, ctx: Context) -> Decision:
    """Let a suspended order through the gate of the quota again, or say what it waits for."""
    if state.admitted is None or state.hold.life is None:
        return []
    admitted = state.admitted
    submission = Submission(request=admitted.request, digest=admitted.digest, submitted_at=admitted.submitted_at)
    return gates.back_in_line(state, order, submission, state.hold.life, ctx)


def settled_elsewhere(state: Admission, order: str, units: tuple[PlacedUnit, ...]) -> Decision:
    """Follow the accelerator types of an order that has other cards than before."""
    taken, returned = quota.difference(state.claim, units)
    if not taken and not returned:
        return []
    amounts = {"taken": Amounts(values=taken), "returned": Amounts(values=returned)}
    return [QuotaAdjusted(order=order, scopes=state.scopes, **amounts, cause="placed")]
