"""When a month's card-hours come near their limit: said once for each step, month and limit. Pure.

What counts is what is spoken for: used already, or held ahead for the rest of the month. A month that is over is not
spoken of: nothing can be spared in it any more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from qm_admission.hours import key
from qm_admission.months import month_of
from qm_admission.quota import EMPTY, HOURS, Scope, limit_of
from qm_events.admission_quota import QuotaThresholdReached
from qm_service.model import Context, Decision

Percent = Literal[80, 95, 100]
STEPS: tuple[Percent, ...] = (100, 95, 80)
Spot = tuple[str, str]
"""(scope, dimension with its month)."""
Said = Mapping[Spot, tuple[int, int]]
"""By spot: the highest step that was said, and the limit at which."""


@dataclass(frozen=True, slots=True)
class Note:
    """A step may have been reached."""

    scope: str
    dimension: str


def level(scope: Scope, dimension: str) -> Percent | None:
    """Return the highest step that is reached; None where there is no limit or it is far."""
    limit, used = limit_of(scope, dimension), scope.used.get(dimension, 0)
    if limit is None:
        return None
    return next((step for step in STEPS if used * 100 >= limit * step), None)


def crossed(name: str, old: Scope | None, new: Scope | None) -> Iterator[Spot]:
    """Yield where a change of a ledger reached a step."""
    old, new = old or EMPTY, new or EMPTY
    if HOURS not in new.limits:
        return
    same = old.limits.get(HOURS) == new.limits[HOURS]
    for dimension in new.used:
        if dimension.startswith(HOURS) and not (same and old.used.get(dimension) == new.used[dimension]):
            reached = level(new, dimension)
            if reached is not None and not (same and reached == level(old, dimension)):
                yield name, dimension


def note(said: Said, command: Note, ctx: Context) -> Decision:
    """Return the step that is reached, where it was not said at this limit."""
    scope = ctx.docs.resident("scopes").get(command.scope, EMPTY)
    if _is_over(command.dimension, ctx.now):
        return []
    reached, limit = level(scope, command.dimension), limit_of(scope, command.dimension)
    before, at_limit = said.get((command.scope, command.dimension), (0, limit))
    if reached is None or limit is None or (at_limit == limit and before >= reached):
        return []
    return [
        QuotaThresholdReached(
            tenant=command.scope.partition("/")[0],
            scope=command.scope,
            dimension=command.dimension,
            percent=reached,
            limit=limit,
            used=scope.used.get(command.dimension, 0),
            settled=scope.settled.get(command.dimension, 0),
            reached_at=ctx.now,
        )
    ]


def remember(said: Said, data: QuotaThresholdReached) -> Said:
    """Return what was said, this included; months that are over are forgotten."""
    kept = {spot: it for spot, it in said.items() if not _is_over(spot[1], data.reached_at)}
    return {**kept, (data.scope, data.dimension): (data.percent, data.limit)}


def _is_over(dimension: str, at: datetime) -> bool:
    """Whether the month is over in every zone of the world, the last of which is twelve hours behind UTC."""
    return dimension < key(month_of(at - timedelta(hours=12), "UTC"))
