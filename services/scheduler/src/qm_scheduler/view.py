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

from qm_events.specs import Amounts, OrderRequest, TopologyLevel
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


class Right(NamedTuple):
    """What an order may take from others beside what its priority gives."""

    owes_in: str = ""
    """The tenant of an order that borrows; empty: it is in quota."""
    owed_in: str = ""
    """The tenant whose borrowers owe it cards; empty: none do."""
    due: tuple[tuple[str, int], ...] = ()
    """How many, by dimension, sorted."""


NO_RIGHT = Right()


class Ask(NamedTuple):
    """All that decides whether and when an order may be placed: orders that ask the same are answered the same."""

    shape: Shape
    seconds: int | None
    """How long it runs from READY, as far as that is known."""
    until: datetime | None
    """When it ends at the latest."""
    owner: str
    """The order that a place is kept for, else empty."""
    after: datetime | None = None
    """It may be placed from this time on; None = at once."""
    right: Right = NO_RIGHT
    reservation: str = ""
    """That it runs on."""


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


def lent_cards(amounts: Amounts | None) -> dict[str, int]:
    """Return what of these amounts is cards, by dimension (`cards`, `cards/<accelerator>`)."""
    values = amounts.values if amounts else {}
    return {name: count for name, count in values.items() if name.partition("/")[0] == "cards" and count > 0}


def right_of(tenant: str, borrowed: Amounts | None, reclaims: Amounts | None) -> Right:
    """Return what admission says of borrowed quota, as it counts here."""
    if lent_cards(borrowed):
        return Right(owes_in=tenant)
    due = tuple(sorted(lent_cards(reclaims).items()))
    return Right(owed_in=tenant, due=due) if due else NO_RIGHT


@lru_cache(maxsize=1 << 18)
def seat(name: str) -> bytes:
    """Return the place of a node, rack or domain in the fixed order in which ties are broken."""
    return blake2b(name.encode(), digest_size=8).digest() + name.encode()


VAIN_MAX = 64
"""Nodes without CPU or memory that one search may pass; then those that have them are kept apart."""
NEEDS_MAX = 16
"""Kinds with CPU and memory for which they are; a change of a node costs for each."""


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
        self._needs: dict[tuple[Kind, int, int], SortedDict] = {}
        """(kind, CPU and memory of a unit) -> `levels` of the nodes that have both: for what was looked for in vain."""
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
        for (kind, cpu_milli, memory_mib), levels in self._needs.items():
            _shift(levels, key, *(_offer(each, kind, cpu_milli, memory_mib) for each in (old, room)))
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
        _shift(self._levels(kind), key, before, after)

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

    def best_fit(self, kind: Kind, least: int, cpu_milli: int = 0, memory_mib: int = 0) -> Iterator[Room]:
        """Yield the nodes with at least `least` free cards of the kind, and CPU and memory, the fullest first."""
        levels, vain = self._needs.get((kind, cpu_milli, memory_mib)), 0
        if levels is None:
            levels = self.levels.get(kind, SortedDict())
        for count in levels.irange(least):
            for key in levels[count]:
                room = self.rooms[key]
                if suffices(room, cpu_milli, memory_mib):
                    yield room
                    continue
                vain += 1
                if vain == VAIN_MAX:
                    self._keep_apart(kind, cpu_milli, memory_mib)

    def _keep_apart(self, kind: Kind, cpu_milli: int, memory_mib: int) -> None:
        """Know from now on which nodes have CPU and memory for such a unit: cards are free where these are gone."""
        if len(self._needs) == NEEDS_MAX:
            del self._needs[next(iter(self._needs))]
        levels = self._needs[kind, cpu_milli, memory_mib] = SortedDict()
        for key, room in self.rooms.items():
            _shift(levels, key, None, _offer(room, kind, cpu_milli, memory_mib))

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


def suffices(room: Room, cpu_milli: int, memory_mib: int) -> bool:
    """Return whether a node has so much CPU and memory. One that was described anew with less than is in use has less
    than none, and still serves whoever needs none."""
    return (not cpu_milli or room.cpu_milli >= cpu_milli) and (not memory_mib or room.memory_mib >= memory_mib)


def _offer(room: Room | None, kind: Kind, cpu_milli: int, memory_mib: int) -> int | None:
    """Return the free cards of a kind on a node that has so much CPU and memory."""
    return room.free.get(kind) if room is not None and suffices(room, cpu_milli, memory_mib) else None


def _shift(levels: SortedDict, key: bytes, before: int | None, after: int | None) -> None:
    """Move a node to the level of its free cards; None: it is in none."""
    if before == after:
        return
    if before is not None:
        levels[before].remove(key)
        if not levels[before]:
            del levels[before]
    if after is not None:
        levels.setdefault(after, SortedList()).add(key)


def group_of(room: Room | None, level: TopologyLevel) -> bytes | None:
    """Return the rack or domain of a node; a node that names none is one by itself."""
    if room is None:
        return None
    return room.rack if level is TopologyLevel.RACK else room.domain
