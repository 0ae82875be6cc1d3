"""Who waits, in which order, and for what: an index over the order documents.

Rank: priority, the highest first, then `submitted_at`, then order id. Orders of one shape form a class; only the head
of a class can be next, as all behind it fit exactly where it fits. An accelerator type is a lane: the heads of all
classes that accept the type, by rank.

The rule of passing. A waiting order *claims* a type while ends of leases alone would let it in: its shape fits the
healthy cards of the fleet with nobody on them. No order takes a card of a type that a better ranked waiting order
claims, however small it is: so a large order is not starved by a stream of small ones, and waits at most for the leases
that now run on its types. An order that no end of a lease can let in (no such card, sick cards, no such domain) claims
nothing, for holding back others would idle good cards without helping it; when the cards are well it claims again, at
its old rank. An order for other types is never held up.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from typing import NamedTuple, TypeVar

from sortedcontainers import SortedList

from qm_events.specs import WaitCode
from qm_scheduler.projections import OrderDoc
from qm_scheduler.view import Shape, shape_of

Rank = tuple[int, datetime, str]
"""What orders the queue; the smaller comes first."""


K = TypeVar("K")


class Tried(NamedTuple):
    """A placement that failed: it fails again while `gains` stand and no more types are open."""

    accelerators: tuple[str, ...]
    gains: tuple[int, ...]


@dataclass(slots=True)
class WaitClass:
    """The waiting orders of one shape."""

    shape: Shape
    members: SortedList = field(default_factory=SortedList)
    """Ranks."""
    codes: dict[WaitCode | None, SortedList] = field(default_factory=dict)
    """The same ranks, by the first reason that was told; None = none yet."""
    tried: Tried | None = None
    parked: bool = False
    """The fleet cannot hold it, whatever ends or is repaired: it is in no lane until the inventory changes."""
    claimed: tuple[tuple[int, ...], tuple[str, ...]] | None = None
    """The types that the class claims, and the gains at which that was found."""


class Waiting(NamedTuple):
    """One waiting order."""

    rank: Rank
    shape: Shape
    code: WaitCode | None
    scope: str
    """`tenant/project`."""


@dataclass(slots=True)
class Queue:
    """All waiting orders. Every change costs O(log n)."""

    orders: dict[str, Waiting] = field(default_factory=dict)
    classes: dict[Shape, WaitClass] = field(default_factory=dict)
    lanes: dict[str, SortedList] = field(default_factory=dict)
    """accelerator -> ranks of the heads of the classes that accept it."""
    parked: dict[str, set[Shape]] = field(default_factory=dict)
    """accelerator -> the parked classes that accept it."""
    lines: dict[tuple[str, ...], SortedList] = field(default_factory=dict)
    """Accepted types -> ranks of all who accept exactly these."""
    links: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Classes that accept several types: they tie lanes together."""
    scopes: dict[str, SortedList] = field(default_factory=dict)
    """`tenant/project` -> ranks."""

    def put(self, order: str, waiting: Waiting | None) -> frozenset[str]:
        """Follow one order, None = it waits no more; return the lanes whose heads changed."""
        old = self.orders.get(order)
        if old and waiting and (old.rank, old.shape) == (waiting.rank, waiting.shape):
            self._recode(old, waiting)
            return frozenset()
        moved = self._remove(old) if old else frozenset()
        return moved | self._add(waiting) if waiting else moved

    def _recode(self, old: Waiting, new: Waiting) -> None:
        codes = self.classes[old.shape].codes
        _take(codes, old.code, old.rank)
        codes.setdefault(new.code, SortedList()).add(new.rank)
        self.orders[new.rank[2]] = new

    def _add(self, waiting: Waiting) -> frozenset[str]:
        rank, shape, code, scope = waiting
        self.orders[rank[2]] = waiting
        self.scopes.setdefault(scope, SortedList()).add(rank)
        self.lines.setdefault(shape.accelerators, SortedList()).add(rank)
        group = self.classes.get(shape)
        if group is None:
            group = self.classes[shape] = WaitClass(shape)
            if len(shape.accelerators) > 1:
                self.links[shape.accelerators] += 1
        head = group.members[0] if group.members else None
        group.members.add(rank)
        group.codes.setdefault(code, SortedList()).add(rank)
        return self._new_head(group, head)

    def _remove(self, waiting: Waiting) -> frozenset[str]:
        rank, shape, code, scope = waiting
        del self.orders[rank[2]]
        _take(self.scopes, scope, rank)
        _take(self.lines, shape.accelerators, rank)
        group = self.classes[shape]
        head = group.members[0]
        group.members.remove(rank)
        _take(group.codes, code, rank)
        moved = self._new_head(group, head)
        if not group.members:
            del self.classes[shape]
            if len(shape.accelerators) > 1:
                self.links[shape.accelerators] -= 1
                self.links += Counter()
        return moved

    def _new_head(self, group: WaitClass, old: Rank | None) -> frozenset[str]:
        new = group.members[0] if group.members else None
        if group.parked:
            if new is None:
                self._unpark(group)
            return frozenset()
        if new == old:
            return frozenset()
        for name in group.shape.accelerators:
            lane = self.lanes.setdefault(name, SortedList())
            if old is not None:
                lane.remove(old)
            if new is not None:
                lane.add(new)
        return frozenset(group.shape.accelerators)

    def park(self, group: WaitClass) -> None:
        """Take a class out of its lanes until `wake`."""
        group.parked = True
        for name in group.shape.accelerators:
            self.lanes[name].remove(group.members[0])
            self.parked.setdefault(name, set()).add(group.shape)

    def wake(self, accelerators: Iterable[str]) -> None:
        """Put the parked classes of these types back into their lanes."""
        for shape in {shape for name in accelerators for shape in self.parked.get(name, ())}:
            group = self.classes[shape]
            self._unpark(group)
            for name in shape.accelerators:
                self.lanes[name].add(group.members[0])

    def _unpark(self, group: WaitClass) -> None:
        group.parked = False
        for name in group.shape.accelerators:
            self.parked[name].discard(group.shape)

    def class_of(self, rank: Rank) -> WaitClass:
        """Return the class of a waiting order."""
        return self.classes[self.orders[rank[2]].shape]

    def tied(self, lanes: set[str]) -> list[str]:
        """Return these lanes and all that a class ties to them, sorted."""
        found, grown = set(lanes), True
        while grown:
            more = {name for types in self.links if found.intersection(types) for name in types}
            grown = not more <= found
            found |= more
        return sorted(found)

    def ahead(self, order: str) -> int:
        """Return how many waiting orders rank before this one and accept one of its types."""
        rank, shape = self.orders[order][:2]
        return sum(
            line.bisect_left(rank) for types, line in self.lines.items() if set(types).intersection(shape.accelerators)
        )

    def in_order(self, scopes: Iterable[str] | None = None, after: Rank | None = None) -> Iterator[Rank]:
        """Yield those who wait in these `tenant/project`s (None = all) and rank after `after`, best rank first."""
        names = self.scopes if scopes is None else [scope for scope in scopes if scope in self.scopes]
        return merge(*(self.scopes[scope].irange(after, None, (False, True)) for scope in names))


def waiting_of(doc: OrderDoc | None) -> Waiting | None:
    """Return what the queue keeps of a document; None = it does not wait."""
    if doc is None or not doc.is_waiting or doc.request is None or doc.submitted_at is None:
        return None
    rank = (-doc.request.priority, doc.submitted_at, doc.order)
    code = doc.reasons[0].code if doc.reasons else None
    return Waiting(rank, shape_of(doc.request), code, f"{doc.tenant}/{doc.project}")


def _take(lists: dict[K, SortedList], key: K, rank: Rank) -> None:
    lists[key].remove(rank)
    if not lists[key]:
        del lists[key]
