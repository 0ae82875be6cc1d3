"""What fits where: pure functions over a `View` of the fleet.

A unit sits on one node with cards of one kind (accelerator type and memory). All units are placed or none. Types are
tried in the order of the specification, the whole order on one type first, then mixed. Best fit: the node with the
least free cards that takes a unit, and on it as many units as fit; a tie is broken by the hash of the node id.
Filling is exact: all units are equal, so a node takes as many as it takes in whichever order nodes are visited.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial

from qm_events.specs import TopologyLevel
from qm_scheduler.cuts import UNUSED, loose
from qm_scheduler.pool import Pool, Sight
from qm_scheduler.units import place_together, place_units, takes
from qm_scheduler.view import Ask, Kind, Kinds, Pick, Room, Shape, View, seat

Rooms = Callable[[Kind], Iterable[Room]]
"""The nodes to fill with cards of a kind, the best fit first."""


def place(view: View, shape: Shape, accelerators: tuple[str, ...] | None = None) -> list[Pick] | None:
    """Return where all units go, on these types only (default: all of the shape's), or None where they do not fit."""
    if accelerators is not None:
        shape = shape._replace(accelerators=accelerators)
    kinds = view.kinds_for(shape, shape.accelerators)
    if shape.part is not None:
        return _place_slices(view, shape, kinds)
    if shape.units > 1 and not view.may_hold(shape, kinds):
        return None
    if shape.units == 1 and view.fragments and not view.fragments.shared.isdisjoint(shape.accelerators):
        return place_units(view, anywhere(shape), kinds)
    if shape.within is not None:
        picks = _together(view, shape, kinds)
        if picks is not None or shape.required:
            return picks
    return _tried(
        kinds,
        lambda some: _fill(
            shape, some, lambda kind: view.best_fit(kind, shape.cards, shape.cpu_milli, shape.memory_mib)
        ),
    )


def _place_slices(view: View, shape: Shape, kinds: Kinds) -> list[Pick] | None:
    if shape.within is not None:
        picks = place_together(view, shape, kinds)
        if picks is not None or shape.required:
            return picks
    return place_units(view, anywhere(shape), kinds)


def place_for(pool: Pool, ask: Ask, priority: int, now: datetime) -> list[Pick] | None:
    """Return where an order goes: on what is open to all, else with what is kept and does not bind it. One that runs on
    a reservation goes on what is kept for that."""
    view, shape = pool.views[Sight.OPEN], ask.shape
    if ask.reservation:
        return place(pool.reserved(ask.reservation), shape)
    picks = place(view, shape)
    if picks is not None or not pool.holds:
        return picks
    with view.changing() as put:
        for name, room in pool.for_whom(ask, priority, now).items():
            put(seat(name), room)
        return place(view, shape)


def anywhere(shape: Shape) -> Shape:
    """Return the shape without its topology."""
    return shape._replace(within=None, required=False)


def capacity(room: Room, shape: Shape, kinds: Kinds) -> int:
    """Return how many units fit on the node."""
    cards = (
        takes(room, shape, kinds)
        if shape.part is not None
        else sum(room.free.get(kind, 0) // shape.cards for kind in kinds)
    )
    return min(cards, _limit(room, shape))


def _limit(room: Room, shape: Shape) -> int:
    units = shape.units
    if shape.cpu_milli:
        units = min(units, room.cpu_milli // shape.cpu_milli)
    if shape.memory_mib:
        units = min(units, room.memory_mib // shape.memory_mib)
    return max(units, 0)


def _tried(kinds: Kinds, attempt: Callable[[Kinds], list[Pick] | None]) -> list[Pick] | None:
    """Each kind alone, in order, then all together."""
    for kind in kinds:
        if (picks := attempt((kind,))) is not None:
            return picks
    return attempt(kinds) if len(kinds) > 1 else None


def _fill(shape: Shape, kinds: Kinds, rooms: Rooms) -> list[Pick] | None:
    left, picks = shape.units, []
    used: dict[str, int] = {}
    for kind in kinds:
        for room in rooms(kind):
            spare = _limit(room, shape) - used.get(room.node, 0)
            units = min(left, room.free[kind] // shape.cards, spare)
            if units > 0:
                picks.append(Pick(room.node, kind, units))
                used[room.node] = used.get(room.node, 0) + units
                left -= units
            if not left:
                return picks
    return None


def _together(view: View, shape: Shape, kinds: Kinds) -> list[Pick] | None:
    if shape.within is TopologyLevel.NODE:
        return _tried(kinds, lambda some: _on_one_node(view, shape, some))
    return _tried(kinds, lambda some: _in_one_group(view, shape, some))


def _on_one_node(view: View, shape: Shape, kinds: Kinds) -> list[Pick] | None:
    least = shape.cards * shape.units
    if len(kinds) == 1:
        rooms: Iterable[Room] = view.best_fit(
            kinds[0], least, shape.cpu_milli * shape.units, shape.memory_mib * shape.units
        )
    else:
        keys = {key for kind in kinds for level in view.levels[kind].values() for key in level}
        rooms = (view.rooms[key] for key in _by_best_fit(view, keys, kinds, least))
    for room in rooms:
        if capacity(room, shape, kinds) >= shape.units:
            return _fill(shape, kinds, partial(_just, room))
    return None


def _by_best_fit(view: View, keys: Iterable[bytes], kinds: Kinds, least: int) -> Iterator[bytes]:
    totals = ((sum(view.rooms[key].free.get(kind, 0) for kind in kinds), key) for key in keys)
    return (key for total, key in sorted(totals) if total >= least)


def _in_one_group(view: View, shape: Shape, kinds: Kinds) -> list[Pick] | None:
    level = TopologyLevel(shape.within or TopologyLevel.RACK)
    groups, least = view.groups[level], shape.cards * shape.units
    sums = ((sum(by_kind.get(kind, 0) for kind in kinds), key) for key, by_kind in view.totals[level].items())
    for _, group in sorted(each for each in sums if each[0] >= least):
        members = groups[group]
        if (picks := _fill(shape, kinds, partial(_best_of, view, members, shape.cards))) is not None:
            return picks
    return None


def _just(room: Room, kind: Kind) -> Iterable[Room]:
    return (room,) if kind in room.free else ()


def _best_of(view: View, members: set[bytes], least: int, kind: Kind) -> Iterator[Room]:
    counts = ((view.rooms[key].free.get(kind, 0), key) for key in members)
    return (view.rooms[key] for count, key in sorted(counts) if count >= least)


def largest(view: View, shape: Shape, level: TopologyLevel) -> int:
    """Return how many units fit in the best single node, rack or domain."""
    kinds = view.kinds_for(shape, shape.accelerators)
    groups: Iterable[set[bytes]] = (
        ({key} for key in view.rooms) if level is TopologyLevel.NODE else view.groups[level].values()
    )
    return max((sum(capacity(view.rooms[key], shape, kinds) for key in group) for group in groups), default=0)


def fitting(view: View, shape: Shape) -> int:
    """Return the largest number of units, fewer than asked, that fit with the topology that is required."""
    low, high = 0, shape.units - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if place(view, shape._replace(units=middle)) is not None else (low, middle - 1)
    return low if low and place(view, shape._replace(units=low)) is not None else 0


def total(view: View, shape: Shape) -> int:
    """Return how many units fit at most, wherever they lie."""
    kinds = view.kinds_for(shape, shape.accelerators)
    endless = shape._replace(units=cards(view, shape))
    return sum(capacity(room, endless, kinds) for room in view.rooms.values())


def cards(view: View, shape: Shape) -> int:
    """Return how many cards of the accepted kinds the view has; for slices, how many would fit in all that is left."""
    kinds = view.kinds_for(shape, shape.accelerators)
    untouched = sum(int(n) * len(keys) for kind in kinds for n, keys in view.levels[kind].items())
    if shape.part is None:
        return untouched
    part, left = shape.part, untouched * loose(shape.part, UNUSED)
    left += sum(
        loose(part, state) for room in view.rooms.values() for kind in kinds for state in room.cut.get(kind, ())
    )
    return left // (part.milli or part.size)


def most_on_one_node(view: View, shape: Shape) -> int:
    """Return the most cards, or slices, of one accepted kind on one node."""
    kinds = view.kinds_for(shape, shape.accelerators)
    if shape.part is not None:
        return max((takes(room, shape, (kind,)) for room in view.rooms.values() for kind in kinds), default=0)
    return max((view.levels[kind].keys()[-1] for kind in kinds if view.levels[kind]), default=0)
