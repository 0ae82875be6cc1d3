"""The fleet as one question sees it: which node offers how many cards, found without a scan.

A `View` keeps nodes by kind and count of free cards; ties are in the order of a hash of the node id, computed once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from sortedcontainers import SortedDict, SortedList

from qm_events.specs import OrderRequest, TopologyLevel
from qm_events.units import SHARES_OF_A_CARD
from qm_scheduler.cuts import UNUSED, Part, State, part_of
from qm_scheduler.fragments import Fragments

Kind = tuple[str, int, tuple[str, ...]]
"""Accelerator type, memory of one card in MiB, and the traits of the node, sorted."""


Kinds = tuple[Kind, ...]
_NONE: Mapping[Kind, tuple[State, ...]] = {}


class Shape(NamedTuple):
    """All that decides where an order fits: orders of one shape fit in the same places."""

    accelerators: tuple[str, ...]
    card_memory_mib: int
    cards: int
    """Per unit, as the next two."""
    cpu_milli: int
    memory_mib: int
    units: int
    within: TopologyLevel | None
    required: bool
    traits: tuple[str, ...] = ()
    part: Part | None = None
    """What a unit takes instead of whole cards; then `cards` is 1."""

    @property
    def least(self) -> int:
        """Untouched cards that a node must have for a unit; a slice may find room on cards that are in use."""
        return self.cards if self.part is None else 0

    @property
    def shares(self) -> int:
        """What all units count, in 1/126,000 of a card."""
        return self.units * (self.cards * SHARES_OF_A_CARD if self.part is None else self.part.shares)


class Ask(NamedTuple):
    """All that decides whether and when an order may be placed: orders that ask the same are answered the same."""

    shape: Shape
    seconds: int | None
    """How long it runs from READY, as far as that is known."""
    until: datetime | None
    """When it ends at the latest."""
    owner: str
    """The order that a place is kept for, else empty."""


class Room(NamedTuple):
    """What a node offers in one view."""

    node: str
    free: Mapping[Kind, int]
    """Cards by kind; no zeros."""
    cpu_milli: int
    memory_mib: int
    rack: bytes
    domain: bytes
    traits: tuple[str, ...] = ()
    cut: Mapping[Kind, tuple[State, ...]] = _NONE
    """Cards that are used in part, by kind, sorted."""

    @property
    def kinds(self) -> Iterable[Kind]:
        """The kinds of all that it offers."""
        return {**self.free, **self.cut} if self.cut else self.free


class Pick(NamedTuple):
    """Units on a node, with cards of a kind."""

    node: str
    kind: Kind
    units: int
    state: State = UNUSED
    """For a slice: how the card that it is taken of is used before."""


def shape_of(request: OrderRequest) -> Shape:
    """Return the shape of an order."""
    spec, topology = request.specification, request.topology
    return Shape(
        spec.accelerators,
        spec.slice.card_memory_mib if spec.slice else spec.accelerator_memory_mib,
        spec.cards_per_unit,
        spec.cpu_milli,
        spec.memory_mib,
        request.count,
        topology.within if topology else None,
        topology.required if topology else False,
        tuple(sorted(spec.traits or ())),
        part_of(spec.slice),
    )


def ask_of(request: OrderRequest, owner: str = "") -> Ask:
    """Return what an order asks for; `owner`: its id if a place is kept for it."""
    return Ask(shape_of(request), request.duration_seconds, request.expires_at, owner)


@lru_cache(maxsize=1 << 18)
def seat(name: str) -> bytes:
    """Return the place of a node, rack or domain in the fixed order in which ties are broken."""
    return blake2b(name.encode(), digest_size=8).digest() + name.encode()


class View:
    """Nodes by kind and count of free cards, kept in step by `put`; one answer of placement costs O(levels)."""

    def __init__(self) -> None:
        self.rooms: dict[bytes, Room] = {}
        self.levels: dict[Kind, SortedDict] = {}
        """kind -> cards free on a node -> seats of the nodes."""
        self.kinds: dict[str, SortedList] = {}
        """accelerator -> (memory, number of traits, traits) that were ever seen: what has least is given first."""
        self.groups: dict[TopologyLevel, dict[bytes, set[bytes]]] = {TopologyLevel.RACK: {}, TopologyLevel.DOMAIN: {}}
        self.totals: dict[TopologyLevel, dict[bytes, dict[Kind, int]]] = {level: {} for level in self.groups}
        """rack or domain -> cards by kind."""
        self._types: dict[str, list[SortedDict]] = {}
        """accelerator -> the `levels` of its kinds."""
        self._accepted: dict[tuple[Any, ...], Kinds] = {}
        """Answers of `kinds_for`, which are asked for all the time; a kind that was never seen makes them void."""
        self.fragments: Fragments | None = None
        """What is asked for of shared cards; None: that decides nothing here."""
        self.tables: dict[Any, Any] = {}
        """Shape -> where a unit of it goes next (`units`); a memory of answers only."""
        self.moves: dict[bytes, int] = {}
        """Seat -> when it changed last, the last one at the end."""
        self.clock = 0

    def expect(self, fragments: Fragments | None) -> None:
        """Rate places by what is asked for from now on."""
        self.fragments = fragments
        self.tables.clear()

    def put(self, key: bytes, room: Room | None) -> None:
        """Set what the node at seat `key` offers; None = it is gone."""
        old = self.rooms.pop(key, None)
        if room is not None:
            self.rooms[key] = room
        self.clock += 1
        self.moves.pop(key, None)
        self.moves[key] = self.clock
        for kind in room.cut if room else ():
            self._levels(kind)
        before, after = (old.free if old else {}), (room.free if room else {})
        for kind in {*before, *after}:
            if before.get(kind) != after.get(kind):
                self._move(key, kind, before.get(kind), after.get(kind))
        self._regroup(key, old, room)

    @contextmanager
    def changing(self) -> Iterator[Callable[[bytes, Room], None]]:
        """Give a `put` that is undone at the end."""
        saved: dict[bytes, Room | None] = {}

        def put(key: bytes, room: Room) -> None:
            saved.setdefault(key, self.rooms.get(key))
            self.put(key, room)

        try:
            yield put
        finally:
            for key, room in saved.items():
                self.put(key, room)

    def _move(self, key: bytes, kind: Kind, before: int | None, after: int | None) -> None:
        levels = self._levels(kind)
        if before is not None:
            levels[before].remove(key)
            if not levels[before]:
                del levels[before]
        if after is not None:
            levels.setdefault(after, SortedList()).add(key)

    def _levels(self, kind: Kind) -> SortedDict:
        levels = self.levels.get(kind)
        if levels is None:
            levels = self.levels[kind] = SortedDict()
            self.kinds.setdefault(kind[0], SortedList()).add((kind[1], len(kind[2]), kind[2]))
            self._types.setdefault(kind[0], []).append(levels)
            self._accepted.clear()
            self.tables.clear()
        return levels

    def _regroup(self, key: bytes, old: Room | None, new: Room | None) -> None:
        for level, groups in self.groups.items():
            before, after = group_of(old, level), group_of(new, level)
            self._total(level, before, old, -1)
            self._total(level, after, new, +1)
            if before == after:
                continue
            if before is not None:
                groups[before].discard(key)
                if not groups[before]:
                    del groups[before]
            if after is not None:
                groups.setdefault(after, set()).add(key)

    def _total(self, level: TopologyLevel, group: bytes | None, room: Room | None, sign: int) -> None:
        if group is not None and room is not None:
            totals = self.totals[level].setdefault(group, {})
            for kind, count in room.free.items():
                totals[kind] = totals.get(kind, 0) + sign * count

    def kinds_for(self, shape: Shape, accelerators: tuple[str, ...]) -> Kinds:
        """Return the kinds of these types that have the memory, the smallest first."""
        asked = (accelerators, shape.card_memory_mib, shape.traits)
        found = self._accepted.get(asked)
        if found is None:
            found = self._accepted[asked] = tuple(
                (accelerator, memory, traits)
                for accelerator in accelerators
                for memory, _, traits in self.kinds.get(accelerator, ())
                if memory >= shape.card_memory_mib and set(shape.traits) <= set(traits)
            )
        return found

    def most(self, accelerator: str) -> int:
        """Return the most cards of one kind of a type on one node."""
        return max((next(reversed(levels)) for levels in self._types.get(accelerator, ()) if levels), default=0)

    def best_fit(self, kind: Kind, least: int) -> Iterator[Room]:
        """Yield the nodes with at least `least` free cards of the kind, the fullest first."""
        levels = self.levels.get(kind)
        if levels:
            for count in levels.irange(least):
                for key in levels[count]:
                    yield self.rooms[key]

    def most_first(self, kinds: Kinds) -> Iterator[bytes]:
        """Yield the seats of nodes with free cards of these kinds, the most cards of one kind first."""
        counts = sorted({count for kind in kinds for count in self.levels.get(kind, ())}, reverse=True)
        for count in counts:
            for kind in kinds:
                yield from self.levels.get(kind, {}).get(count, ())

    def may_hold(self, shape: Shape, kinds: Iterable[Kind]) -> bool:
        """Return whether the cards alone suffice, node by node: exact but for CPU, memory and topology."""
        units = 0
        for kind in kinds:
            levels = self.levels.get(kind)
            if levels:
                units += sum(count // shape.cards * len(levels[count]) for count in levels.irange(shape.cards))
            if units >= shape.units:
                return True
        return False


def group_of(room: Room | None, level: TopologyLevel) -> bytes | None:
    """Return the rack or domain of a node; a node that names none is one by itself."""
    if room is None:
        return None
    return room.rack if level is TopologyLevel.RACK else room.domain
