"""What becomes of an order before it is scheduled, and what gives its quota back. Pure.

`gates` answers an order that was submitted, `votes` a person, `holds` moves its card-hours; here is the rest. A claim
is committed once, when cards are allocated, and refunded once, by whichever end is heard of first. No order is promised
across topics: an end may come before the order does, and then it is the first fact of the stream (a tombstone) and the
order is never admitted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from qm_admission import again, gates, holds, quota
from qm_admission.state import HOLDING, WAITING, Admission, Phase, evolve
from qm_admission.upkeep import Alarm, Reroute, Review, alarm, reroute, review
from qm_admission.votes import Vote, vote
from qm_events.admission import OrderWithdrawn, QuotaCommitted, QuotaRefunded, Submission
from qm_events.specs import Amounts, PlacedUnit
from qm_service.model import Context, Decider, Decision

WithdrawCause = Literal["cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class Admit:
    """An order was submitted."""

    order: str
    submission: Submission


@dataclass(frozen=True, slots=True)
class Reexamine:
    """Something that a held order waited for may have changed, or a suspended one is to stand in line."""

    order: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The owner wants it no more, or its end was reached; nothing to do here once it is admitted."""

    order: str
    cause: WithdrawCause
    at: datetime


@dataclass(frozen=True, slots=True)
class Commit:
    """Cards are allocated."""

    order: str
    units: tuple[PlacedUnit, ...]


@dataclass(frozen=True, slots=True)
class End:
    """Another service has ended the order: refund what it holds, or withdraw what never held."""

    order: str
    cause: WithdrawCause
    at: datetime


def _admit(state: Admission, command: Admit, ctx: Context) -> Decision:
    if state.phase is not Phase.NEW:
        return []
    policies = ctx.docs.resident("policies").get(command.submission.request.tenant, ())
    return gates.pass_through(state, command.order, command.submission, ctx, policies)


def _reexamine(state: Admission, command: Reexamine, ctx: Context) -> Decision:
    if state.phase is Phase.ASIDE or (state.phase is Phase.HELD and state.hold.suspended):
        return again.rejoin(state, command.order, ctx)
    if state.phase is not Phase.HELD or state.submission is None:
        return []
    return gates.pass_through(state, command.order, state.submission, ctx)


def _withdraw(state: Admission, command: Withdraw | End, _: Context) -> Decision:
    if state.phase is not Phase.NEW and state.phase not in WAITING:
        return []
    void = state.asked.approval if state.phase is Phase.PENDING and state.asked else None
    return [OrderWithdrawn(order=command.order, cause=command.cause, withdrawn_at=command.at, approval=void)]


def _commit(state: Admission, command: Commit, _: Context) -> Decision:
    if state.phase is Phase.COMMITTED and state.hold.given_up:
        return again.settled_elsewhere(state, command.order, command.units)
    if state.phase is not Phase.ADMITTED:
        return []
    returned = quota.unused(state.claim, command.units)
    kept = quota.subtract(state.claim, returned)
    return [
        QuotaCommitted(
            order=command.order,
            scopes=state.scopes,
            amounts=Amounts(values=kept),
            returned=Amounts(values=returned),
        )
    ]


def _end(state: Admission, command: End, ctx: Context) -> Decision:
    if state.phase not in HOLDING:
        return _withdraw(state, command, ctx)
    refunded = Amounts(values=holds.refundable(state))
    return [QuotaRefunded(order=command.order, scopes=state.scopes, amounts=refunded)]


DECISIONS: Mapping[type[Any], Callable[[Admission, Any, Context], Decision]] = {
    Admit: _admit,
    Reexamine: _reexamine,
    Vote: vote,
    Alarm: alarm,
    Reroute: reroute,
    Review: review,
    Withdraw: _withdraw,
    Commit: _commit,
    End: _end,
    holds.Begin: again.begin,
    holds.Prolong: holds.prolong,
    holds.Look: holds.look,
    holds.Settle: holds.settle_line,
    holds.Close: holds.close,
    again.GiveUp: again.give_up,
    again.SetAside: again.set_aside,
}


def decide(state: Admission, command: Any, ctx: Context) -> Decision:
    """Return what a command leads to."""
    return DECISIONS[type(command)](state, command, ctx)


ORDERS = Decider(kind="admission", initial=Admission(), decide=decide, evolve=evolve)
