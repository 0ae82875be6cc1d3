"""What admission does by itself: keep open questions in step with time, people and policies, look after the hours of
running orders, say which thresholds are reached, examine held orders whose turn it is. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from qm_admission import claims, quota
from qm_admission.domain import Reexamine
from qm_admission.holds import Look
from qm_admission.index import Waiting
from qm_admission.levels import rerouted
from qm_admission.quota import Answer
from qm_admission.thresholds import Note
from qm_admission.upkeep import Alarm, Reroute, Review
from qm_service.model import Act, Context


def settle(ctx: Context) -> Sequence[Act]:
    """Return what to do next. One held order at a time: what it takes decides about all younger ones."""
    if acts := _questions(ctx):
        return acts
    # Before anybody who waits: what runs has its hours renewed first.
    if looks := ctx.index.looks.take(ctx.now):
        return [Act(f"admission/{order}", Look(order), it.tenant, it.project, order) for order, it in looks]
    if reached := ctx.index.take_reached():
        return [_noted(scope, dimension) for scope, dimension in reached]
    ctx.index.wake_due(ctx.now)
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
    path = quota.path_of(waiting.tenant, waiting.project)
    verdict = claims.weigh(path, waiting.amounts, waiting.life, waiting.place, ctx)
    return verdict.answer is not Answer.HELD or not quota.unchanged(waiting.blocked, verdict.violations)


def due(ctx: Context) -> datetime | None:
    """Return when something about an open question is due next, the next month turns for who waits, or hours are to be
    looked at; now while somebody was woken and not examined."""
    index = ctx.index
    if index.questions.again or index.unexamined:
        # A round that leads to no fact is the last of its batch, whatever the others would have found.
        return ctx.now
    return min((at for it in (index.questions, index.looks, index.wakes) if (at := it.next_at())), default=None)


def _noted(scope: str, dimension: str) -> Act:
    tenant, _, project = scope.partition("/")
    return Act(f"quota/{tenant}", Note(scope, dimension), tenant, project or None)


def _act(waiting: Waiting, command: Any) -> Act:
    return Act(f"admission/{waiting.order}", command, waiting.tenant, waiting.project, waiting.order)
