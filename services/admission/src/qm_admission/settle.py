"""What admission does by itself: keep open questions in step with time, people and policies, examine held orders whose
turn it is. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from qm_admission import quota
from qm_admission.domain import Reexamine
from qm_admission.index import Waiting
from qm_admission.levels import rerouted
from qm_admission.quota import Answer
from qm_admission.upkeep import Alarm, Reroute, Review
from qm_service.model import Act, Context


def settle(ctx: Context) -> Sequence[Act]:
    """Return what to do next. One held order at a time: what it takes decides about all younger ones."""
    if acts := _questions(ctx):
        return acts
    while woken := ctx.index.next_woken():
        if _answer_changed(woken, ctx):
            return [_act(woken, Reexamine(woken.order))]
    return []


def _questions(ctx: Context) -> Sequence[Act]:
    """Return what open questions call for. All orders of a tenant whose policies changed are reviewed in one step, so
    that none is lost between two; what that leads to is known only by the streams of the held ones."""
    questions, waiting = ctx.index.questions, ctx.docs.resident("waiting")
    reviewed = [order for _, orders in questions.take_reviewed() for order in orders]
    questions.again = bool(reviewed)
    acts = [_act(waiting[order], Review(order)) for order in reviewed]
    acts += [_act(waiting[asked.order], Alarm(asked.order)) for asked in questions.take_alarms(ctx.now)]
    touched = [asked for asked in questions.take_touched(ctx.now) if rerouted(asked, ctx)]
    return acts + [_act(waiting[asked.order], Reroute(asked.order)) for asked in touched]


def _answer_changed(waiting: Waiting, ctx: Context) -> bool:
    """Whether there is something new to say; where not, the stream need not even be loaded."""
    path, ahead = quota.path_of(waiting.tenant, waiting.project), ctx.index.lines.ahead_of(waiting.place)
    answer, violations = quota.assess(path, ctx.docs.resident("scopes"), waiting.amounts, ahead)
    return answer is not Answer.HELD or not quota.unchanged(waiting.blocked, violations)


def due(ctx: Context) -> datetime | None:
    """Return when something about an open question is due next."""
    if ctx.index.questions.again:
        return ctx.now
    at: datetime | None = ctx.index.questions.next_at()
    return at


def _act(waiting: Waiting, command: Any) -> Act:
    return Act(f"admission/{waiting.order}", command, waiting.tenant, waiting.project, waiting.order)
