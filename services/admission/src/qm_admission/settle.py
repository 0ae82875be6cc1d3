"""What admission does by itself: end approvals whose time is over, examine held orders whose turn it is. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from qm_admission import quota
from qm_admission.domain import Reexamine
from qm_admission.index import Waiting
from qm_admission.quota import Answer
from qm_admission.votes import Lapse
from qm_service.model import Act, Context


def settle(ctx: Context) -> Sequence[Act]:
    """Return what to do next. One held order at a time: what it takes decides about all younger ones."""
    if lapsed := ctx.index.take_lapsed(ctx.now):
        return [_act(waiting, Lapse(waiting.order)) for waiting in lapsed]
    while woken := ctx.index.next_woken():
        if _answer_changed(woken, ctx):
            return [_act(woken, Reexamine(woken.order))]
    return []


def _answer_changed(waiting: Waiting, ctx: Context) -> bool:
    """Whether there is something new to say; where not, the stream need not even be loaded."""
    path, ahead = quota.path_of(waiting.tenant, waiting.project), ctx.index.lines.ahead_of(waiting.place)
    answer, violations = quota.assess(path, ctx.docs.resident("scopes"), waiting.amounts, ahead)
    return answer is not Answer.HELD or not quota.unchanged(waiting.blocked, violations)


def due(ctx: Context) -> datetime | None:
    """Return when the next approval lapses."""
    lapse: datetime | None = ctx.index.next_lapse()
    return lapse


def _act(waiting: Waiting, command: Any) -> Act:
    return Act(f"admission/{waiting.order}", command, waiting.tenant, waiting.project, waiting.order)
