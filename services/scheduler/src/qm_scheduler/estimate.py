"""When a waiting order may start, as far as the ends of leases tell."""

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from qm_scheduler.board import Board
from qm_scheduler.fleet import Node
from qm_scheduler.placement import place
from qm_scheduler.pool import Sight, is_usable
from qm_scheduler.projections import OrderDoc
from qm_scheduler.queue import Waiting
from qm_scheduler.view import Room, seat

LEASES_MAX = 500
"""How many ends are looked at; an order that needs more has no estimate."""


def estimate(board: Board, docs: Mapping[str, Any], waiting: Waiting) -> datetime | None:
    """Return the first promised end of a lease by which it fits, if nobody is before it; None = unknown.

    `docs` are the resident allocations. The free view is changed on the way and put back.
    """
    if board.line(waiting.rank[2]) is not None:
        return None
    view = board.pool.views[Sight.FREE]
    ends = sorted({end for name in waiting.shape.accelerators for end in board.leases.get(name, ())})
    saved: dict[bytes, Room] = {}
    try:
        at: datetime
        for at, order in islice(ends, LEASES_MAX):
            doc: OrderDoc = docs[order]
            for name in {unit.node for unit in doc.units}:
                key = seat(name)
                room = view.rooms[key]
                saved.setdefault(key, room)
                view.put(key, _without(room, board.pool.nodes[name], doc.allocation))
            if place(view, waiting.shape) is not None:
                return at
    finally:
        for key, room in saved.items():
            view.put(key, room)
    return None


def _without(room: Room, node: Node, allocation: str) -> Room:
    """Return the room as it will be when the allocation has ended."""
    free = dict(room.free)
    for card in node.cards.values():
        if card.allocation == allocation and is_usable(node, card):
            kind = (card.accelerator, card.memory_mib)
            free[kind] = free.get(kind, 0) + 1
    holding = node.holdings[allocation]
    return room._replace(
        free=free, cpu_milli=room.cpu_milli + holding.cpu_milli, memory_mib=room.memory_mib + holding.memory_mib
    )
