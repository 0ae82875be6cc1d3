"""The index of the scheduler: pool, queue, ends of leases, and what has to be looked at again because of a change.

It follows from the resident documents alone, so it is never stored. `settle` reads it and empties `open` and `news`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sortedcontainers import SortedList

from qm_scheduler.fleet import Node
from qm_scheduler.pool import Change, Pool
from qm_scheduler.projections import OrderDoc
from qm_scheduler.queue import Queue, Rank, WaitClass, waiting_of
from qm_scheduler.reasons import Case, Line
from qm_scheduler.view import Shape


@dataclass(slots=True)
class Board:
    """The whole as `settle` sees it."""

    pool: Pool = field(default_factory=Pool)
    queue: Queue = field(default_factory=Queue)
    leases: dict[str, SortedList] = field(default_factory=dict)
    """accelerator -> (end, order) of the leases on its cards."""
    blockers: dict[str, Rank] = field(default_factory=dict)
    """accelerator -> the best ranked order that claims it: none ranked below may take such cards."""
    fronts: dict[str, set[Shape]] = field(default_factory=dict)
    """accelerator -> the classes that were at or before the blocker when reasons were last told."""
    open: set[str] = field(default_factory=set)
    """Lanes in which somebody may fit now."""
    seen: set[str] = field(default_factory=set)
    """Lanes of which the figures changed."""
    inventory: set[str] = field(default_factory=set)
    """Lanes of which the inventory changed."""
    news: set[Shape] = field(default_factory=set)
    """Classes with orders that were told no reason yet."""

    def changed(self, projection: str, key: str, old: Any | None, new: Any | None) -> None:
        """Follow one resident document."""
        follow = _FOLLOWERS.get(projection)
        if follow is not None:
            follow(self, key, old, new)

    def home_of(self, card: str) -> str | None:
        """Return the node of a card."""
        return self.pool.homes.get(card)

    def next_end(self, accelerators: tuple[str, ...]) -> datetime | None:
        """Return when the first lease on cards of these types ends, as far as is known."""
        ends = (self.leases[name][0][0] for name in accelerators if self.leases.get(name))
        return min(ends, default=None)

    def case(self, shape: Shape) -> Case:
        """Return a shape with what decides whether it fits."""
        return Case(shape, self.pool, self.next_end)

    def blocker(self, accelerators: tuple[str, ...]) -> Rank | None:
        """Return the best rank that claims one of these types."""
        return min((self.blockers[name] for name in accelerators if name in self.blockers), default=None)

    def line(self, order: str) -> Line | None:
        """Return who is before an order, or None if nobody is in its way."""
        waiting = self.queue.orders[order]
        rank = self.blocker(waiting.shape.accelerators)
        return Line(self.queue.ahead(order)) if rank is not None and rank < waiting.rank else None

    def claims(self, group: WaitClass) -> tuple[str, ...]:
        """Return the types that the class claims: those that ends of leases would give it; see `queue`."""
        shape = group.shape
        gains = self.gains(shape.accelerators)
        if group.claimed is None or group.claimed[0] != gains:
            group.claimed = (gains, self.case(shape).served_by_ends)
        return group.claimed[1]

    def gains(self, accelerators: tuple[str, ...]) -> tuple[int, ...]:
        """Return a mark that moves whenever a shape of these types may fit where it did not."""
        return tuple(self.pool.gains[name] for name in accelerators)

    def note(self, change: Change) -> None:
        """Remember what a change may alter."""
        self.queue.wake(change.inventory)
        self.open |= change.gained | change.inventory
        self.seen |= change.seen
        self.inventory |= change.inventory

    def walked(self, lanes: Sequence[str], claimed: Mapping[str, Rank]) -> None:
        """Note that nobody else fits in these lanes now, and who claims them."""
        self.open.clear()
        self.seen.update(lanes)
        for name in lanes:
            self.blockers.pop(name, None)
        self.blockers.update(claimed)


def _node(board: Board, _: str, _old: Node | None, new: Node | None) -> None:
    if new is not None:
        board.note(board.pool.put(new))


def _order(board: Board, key: str, old: OrderDoc | None, new: OrderDoc | None) -> None:
    before = old if old is not None and old.is_holding else None
    after = new if new is not None and new.is_holding else None
    _leases(board, before, after)
    _cleaning(board, before, after)
    waiting = waiting_of(new)
    lanes = board.queue.put(key, waiting)
    board.note(Change(gained=lanes, seen=lanes))
    if waiting is not None and waiting.code is None:
        board.news.add(waiting.shape)


def _leases(board: Board, old: OrderDoc | None, new: OrderDoc | None) -> None:
    before, after = _ends(old), _ends(new)
    for name, end in before - after:
        board.leases[name].remove(end)
    for name, end in after - before:
        board.leases.setdefault(name, SortedList()).add(end)


def _ends(doc: OrderDoc | None) -> set[tuple[str, tuple[datetime, str]]]:
    if doc is None or doc.ends_at is None:
        return set()
    return {(unit.accelerator, (doc.ends_at, doc.order)) for unit in doc.units}


def _cleaning(board: Board, old: OrderDoc | None, new: OrderDoc | None) -> None:
    was, now = old is not None and old.releasing, new is not None and new.releasing
    doc = new or old
    if was != now and doc is not None:
        nodes = tuple(sorted({unit.node for unit in doc.units}))
        board.note(board.pool.clean(doc.allocation, now, nodes))


_FOLLOWERS: Mapping[str, Callable[[Board, str, Any, Any], None]] = {"nodes": _node, "allocations": _order}
