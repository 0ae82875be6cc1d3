"""Where units go that are rated node by node: slices, and whole cards of types of which parts are asked for.

A slice by geometry goes on a card that is cut already, the first one that takes it in the order of nodes, else on a
card of the node with the fewest untouched ones, so that whole cards stay whole. A part of a shared card goes where it
adds the least fragments for all that is asked for (`fragments`), and so does a whole card of such a type; ties go to
the first node. Ratings are kept for each shape, and only nodes that changed since it was last asked for are rated
again.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from qm_events.specs import TopologyLevel
from qm_scheduler.cuts import MILLI, UNUSED, State, count, cut
from qm_scheduler.heads import Heads
from qm_scheduler.view import Kind, Kinds, Pick, Room, Shape, View, seat

RATINGS_MAX = 600_000
"""Ratings that a view keeps, about 250 bytes each; shapes that were not asked for the longest are rated anew."""


class Choice(NamedTuple):
    """What a unit takes of a node, and how good that is: the smaller rating is better."""

    rating: tuple[int, ...]
    kind: Kind
    state: State


class Table:
    """The nodes that take a unit of a shape, by rating."""

    def __init__(self) -> None:
        self.heads: Heads[bytes] = Heads()
        self.clock = 0
        """Of the view, when it was last in step."""

    def follow(self, view: View, shape: Shape, kinds: Kinds) -> None:
        """Rate again what changed."""
        for key in _moved(view, self.clock):
            room = view.rooms.get(key)
            found = choose(view, room, shape, kinds) if room else None
            self.heads.put(key, None if found is None else (found.rating, key))
        self.clock = view.clock


def _moved(view: View, since: int) -> Iterator[bytes]:
    if not since:
        yield from view.rooms
        return
    for key in reversed(view.moves):
        if view.moves[key] <= since:
            return
        yield key


def place_units(view: View, shape: Shape, kinds: Kinds) -> list[Pick] | None:
    """Return where all units go, topology apart, or None where they do not fit."""
    if shape.units == 1:
        found = _next(view, shape, kinds)
        return [found] if found else None
    unit, picks = shape._replace(units=1), list[Pick]()
    with view.changing() as put:
        for _ in range(shape.units):
            if (found := _next(view, unit, kinds)) is None:
                return None
            picks.append(found)
            key = seat(found.node)
            put(key, after(view.rooms[key], shape, found))
    return picks


def _next(view: View, shape: Shape, kinds: Kinds) -> Pick | None:
    table = view.tables.pop(shape, None) or Table()
    view.tables[shape] = table
    if len(view.tables) * len(view.rooms) > RATINGS_MAX and len(view.tables) > 1:
        del view.tables[next(iter(view.tables))]
    table.follow(view, shape, kinds)
    best = table.heads.top()
    if best is None:
        return None
    room = view.rooms[best[1]]
    found = choose(view, room, shape, kinds)
    return None if found is None else Pick(room.node, found.kind, 1, found.state)


def choose(view: View, room: Room, shape: Shape, kinds: Kinds) -> Choice | None:
    """Return what a unit takes of a node, None where it does not fit there."""
    if room.cpu_milli < shape.cpu_milli or room.memory_mib < shape.memory_mib:
        return None
    rate = _by_geometry if shape.part and not shape.part.milli else _by_fragments
    best: Choice | None = None
    for kind in room.kinds:
        if kind in kinds and (found := rate(view, room, shape, kind, kinds.index(kind))):
            best = found if best is None else min(best, found)
    return best


def _by_geometry(_: View, room: Room, shape: Shape, kind: Kind, rank: int) -> Choice | None:
    for state in room.cut.get(kind, ()):
        if takes_of(shape, state):
            return Choice((0, rank), kind, state)
    untouched = room.free.get(kind, 0)
    return Choice((1, rank, untouched), kind, UNUSED) if untouched and takes_of(shape, UNUSED) else None


def _by_fragments(view: View, room: Room, shape: Shape, kind: Kind, _: int) -> Choice | None:
    untouched, cuts = room.free.get(kind, 0), room.cut.get(kind)
    rest = [MILLI - taken for positions, taken in cuts if not positions] if cuts else []
    take = shape.part.milli if shape.part else MILLI * shape.cards
    if untouched * MILLI < take and (take > MILLI or not rest or max(rest) < take):
        return None
    if view.fragments is None:
        left, level = min((left for left in rest if left >= take), default=MILLI), 0
    else:
        cpu = (room.cpu_milli, room.cpu_milli - shape.cpu_milli)
        level, left = view.fragments.level(kind[0], cpu, untouched, rest, take)
    return Choice((-level,), kind, (0, MILLI - left))


def after(room: Room, shape: Shape, pick: Pick) -> Room:
    """Return a node after a unit was placed on it."""
    kind, free, cuts = pick.kind, dict(room.free), dict(room.cut)
    states = list(cuts.get(kind, ()))
    if pick.state == UNUSED:
        free[kind] = free.get(kind, 0) - shape.cards
    else:
        states.remove(pick.state)
    if shape.part is not None and (new := cut(shape.part, pick.state)) is not None:
        states.append(new[1])
    return room._replace(
        free={each: left for each, left in free.items() if left},
        cut={each: left for each, left in {**cuts, kind: tuple(sorted(states))}.items() if left},
        cpu_milli=room.cpu_milli - shape.cpu_milli,
        memory_mib=room.memory_mib - shape.memory_mib,
    )


def place_together(view: View, shape: Shape, kinds: Kinds) -> list[Pick] | None:
    """Return where all units go on one node, rack or domain: the one with the least room that has enough."""
    level = shape.within or TopologyLevel.NODE
    if level is TopologyLevel.NODE:
        groups: dict[bytes, set[bytes]] = {key: {key} for key in view.rooms}
    else:
        groups = view.groups[level]
    rooms = {group: sum(takes(view.rooms[key], shape, kinds) for key in keys) for group, keys in groups.items()}
    for _, group in sorted((units, group) for group, units in rooms.items() if units >= shape.units):
        region = View()
        region.expect(view.fragments)
        for key in sorted(groups[group]):
            region.put(key, view.rooms[key])
        if (picks := place_units(region, shape._replace(within=None, required=False), kinds)) is not None:
            return picks
    return None


def takes(room: Room, shape: Shape, kinds: Sequence[Kind]) -> int:
    """Return how many slices the cards of a node take, CPU and memory apart."""
    whole = takes_of(shape, UNUSED)
    return sum(
        room.free.get(kind, 0) * whole + sum(takes_of(shape, state) for state in room.cut.get(kind, ()))
        for kind in kinds
    )


def takes_of(shape: Shape, state: State) -> int:
    """Return how many slices a card in this state takes."""
    return count(shape.part, state) if shape.part else 0
