"""What the catalog does by itself: it ends orders at their promised instant, or when their card-hours are used up.

Facts of others call for no command of the catalog; they only change the records.
"""

import heapq
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from qm_catalog.directory import TENANT
from qm_catalog.domain import ORDER, RECORDS, Expire, act
from qm_catalog.projections import PROJECTIONS
from qm_catalog.request_record import Record
from qm_catalog.standing import finished, promised_end
from qm_service.model import Act, Context, Definition


class Expiries:
    """The promised ends of all orders that have one and were not ended yet, the next first (`model.Index`).

    The heap may hold instants that no longer count; `_ends` tells which do.
    """

    def __init__(self) -> None:
        self._ends: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def changed(self, projection: str, key: str, old: Any | None, new: Any | None) -> None:  # noqa: ARG002 - of the port
        """Follow one document."""
        if projection != RECORDS:
            return
        known, end = self._ends.pop(key, None), _open_end(new)
        if end is None:
            return
        self._ends[key] = end
        if end != known:
            heapq.heappush(self._heap, (end, key))

    def next(self) -> datetime | None:
        """Return the next promised end."""
        while self._heap and self._ends.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def reached(self, now: datetime) -> Sequence[tuple[datetime, str]]:
        """Return the ends that are reached and their orders, the earliest first.

        They stay due until the record says that the order ended.
        """
        found = []
        while (end := self.next()) is not None and end <= now:
            found.append(heapq.heappop(self._heap))
        # An end may have been pushed twice, by an extension that was taken back: a set would lose the order.
        found = list(dict.fromkeys(found))
        for entry in found:
            heapq.heappush(self._heap, entry)
        return found


def _open_end(record: Record | None) -> datetime | None:
    if record is None or record.asked.ended_at or record.built.failed_at or finished(record):
        return None
    # Card-hours that are used up end an order where its quota says so, as an end that was promised.
    ends = (promised_end(record), record.vetted.hours_end_at)
    return min((end for end in ends if end is not None), default=None)


def settle(ctx: Context) -> Sequence[Act]:
    """Return the ends that are reached, each with the promised instant, however late it was noticed."""
    records = ctx.docs.resident(RECORDS)
    return [_expire(records[order], end) for end, order in ctx.index.reached(ctx.now)]


def _expire(record: Record, end: datetime) -> Act:
    return act(Expire(record.order, end), record.tenant, record.project)


def due(ctx: Context) -> datetime | None:
    """Return the next promised end."""
    end: datetime | None = ctx.index.next()
    return end


CATALOG = Definition(
    name="catalog",
    deciders=(ORDER, TENANT),
    projections=PROJECTIONS,
    reactions={},
    settle=settle,
    due=due,
    new_index=Expiries,
)
