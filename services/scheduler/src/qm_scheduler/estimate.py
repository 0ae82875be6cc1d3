"""When a waiting order may start, as far as the ends of leases tell."""

from collections.abc import Mapping
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

from qm_events.units import SHARES_OF_A_CARD
from qm_scheduler.board import Board
from qm_scheduler.cuts import shares_of
from qm_scheduler.projections import OrderDoc
from qm_scheduler.promise import LEASES_MAX, earliest


def estimate(board: Board, docs: Mapping[str, Any], order: str, now: datetime) -> datetime | None:
    """Return when it may start if leases end as promised and nobody better ranked comes; None = unknown.

    A promise says it. Else, and if nobody is before it: the first end by which it fits. Else the first end by which
    there are cards for all who are due before it and for itself. `docs` are the resident allocations.
    """
    waiting = board.queue.orders[order]
    doc: OrderDoc = docs[order]
    if waiting.ask in board.parked:
        return waiting.ask.after
    if not board.queue.lines[waiting.ask].claims:
        return None
    if doc.promise is not None:
        return max(doc.promise.until, now) if doc.promise.until else None
    first = earliest(board, docs, waiting, now)
    if first is None or first.at is None or not board.queue.is_behind(order):
        return first.at if first else None
    after = _when_free(board, docs, order)
    return max(first.at, after) if after else None


def _when_free(board: Board, docs: Mapping[str, Any], order: str) -> datetime | None:
    """Return the end of the lease by which as many cards have become free as it and those before it ask for."""
    types = board.queue.orders[order].ask.shape.accelerators
    free = board.pool.count(types, "free", "cleaning") * SHARES_OF_A_CARD
    short = board.queue.ahead(order)[1] + board.queue.orders[order].ask.shape.shares - free
    at: datetime
    last = ""
    for at, holder in islice(merge(*(board.leases.get(name, ()) for name in types)), LEASES_MAX):
        if holder == last:
            continue
        last = holder
        short -= sum(shares_of(unit.portion) for unit in docs[holder].units if unit.accelerator in types)
        if short <= 0:
            return at
    return None
