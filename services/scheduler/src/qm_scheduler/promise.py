"""Where a waiting order will start first, and when, if leases end as promised: the place that is kept for it."""

from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from qm_events.specs import TopologyLevel
from qm_scheduler.board import Board
from qm_scheduler.holds import freed
from qm_scheduler.placement import capacity, place
from qm_scheduler.pool import Sight, usable
from qm_scheduler.projections import OrderDoc
from qm_scheduler.view import Pick, Room, Shape, View, seat
from qm_scheduler.waiting import Waiting

LEASES_MAX = 128
"""How many ends are looked at; a place that needs more is chosen by what is free there now."""
REGIONS_MAX = 64
"""How many places are looked at then."""


class Start(NamedTuple):
    """A place and when it will be free; None: not known."""

    picks: tuple[Pick, ...]
    at: datetime | None


def earliest(board: Board, docs: Mapping[str, Any], waiting: Waiting, now: datetime) -> Start | None:
    """Return the first place by ends of leases; `docs` are the resident allocations. None: no end would let it in."""
    shape, view = waiting.ask.shape, board.pool.views[Sight.OPEN]
    priority = -waiting.level[0]
    with view.changing() as put:
        for name, room in board.pool.for_whom(waiting.ask, priority, now).items():
            put(seat(name), room)
        ended: set[str] = set()
        for at, order in _ends(board, waiting, now):
            doc: OrderDoc = docs[order]
            for name in {unit.node for unit in doc.units} if doc.allocation not in ended else ():
                put(seat(name), _without(board, view.rooms[seat(name)], waiting, now, name, doc.allocation, ended))
            ended.add(doc.allocation)
            if (picks := place(view, shape)) is not None:
                return Start(tuple(picks), at)
    return _by_room(board, waiting)


def _ends(board: Board, waiting: Waiting, now: datetime) -> Iterator[tuple[datetime, str]]:
    types = waiting.ask.shape.accelerators
    given_back = [(now, order) for order in sorted({o for name in types for o in board.returning.get(name, ())})]
    leases = merge(*(board.leases.get(name, ()) for name in types))
    last: tuple[datetime, str] | None = None
    for end in islice(merge(given_back, leases), LEASES_MAX):
        if end != last:
            yield max(end[0], now), end[1]
        last = end


def _without(
    board: Board, room: Room, waiting: Waiting, now: datetime, name: str, allocation: str, ended: Set[str]
) -> Room:
    """What ends on a node that is kept for another is his."""
    others = board.pool.kept.get(name, {}).values()
    if any(hold.binds(waiting.ask, -waiting.level[0], now) for hold in others):
        return room
    return freed(room, board.pool.nodes[name], (allocation,), usable, ended)


def _by_room(board: Board, waiting: Waiting) -> Start | None:
    """Return the place with the most free cards among those that could ever serve; its time is not known."""
    shape, idle = waiting.ask.shape, board.pool.views[Sight.IDLE]
    for keys in islice(_regions(board, shape), REGIONS_MAX):
        region = View()
        for key in keys:
            region.put(key, idle.rooms[key])
        if (picks := place(region, shape)) is not None:
            return Start(tuple(picks), None)
    picks = place(idle, shape)
    return None if picks is None else Start(tuple(picks), None)


def _regions(board: Board, shape: Shape) -> Iterator[Iterable[bytes]]:
    """Yield sets of nodes that may hold all units, the one with the most free cards first."""
    idle, free = board.pool.views[Sight.IDLE], board.pool.views[Sight.FREE]
    kinds = idle.kinds_for(shape, shape.accelerators)
    level = shape.within if shape.required else None
    if level in (TopologyLevel.RACK, TopologyLevel.DOMAIN):
        totals = free.totals[level]
        sums = {key: sum(totals.get(key, {}).get(kind, 0) for kind in kinds) for key in idle.groups[level]}
        yield from (idle.groups[level][key] for key in sorted(sums, key=lambda key: (-sums[key], key)))
        return
    fullest = (key for key in free.most_first(kinds) if capacity(idle.rooms[key], shape, kinds))
    if level is TopologyLevel.NODE:
        yield from ((key,) for key in fullest)
        return
    chosen, units = [], 0
    for key in islice(fullest, shape.units):
        chosen.append(key)
        units += capacity(idle.rooms[key], shape, kinds)
        if units >= shape.units:
            yield chosen
            return
