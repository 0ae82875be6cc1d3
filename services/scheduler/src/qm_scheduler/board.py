"""The index of the scheduler: pool, queue, ends of leases, and what has to be looked at again because of a change.

It follows from the resident documents alone, so it is never stored. `settle` reads it and empties what has to be told.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sortedcontainers import SortedList

from qm_events.specs import Health
from qm_scheduler.case import Case
from qm_scheduler.cuts import shares_of
from qm_scheduler.fleet import Node
from qm_scheduler.fragments import Fragments
from qm_scheduler.holds import Hold
from qm_scheduler.pool import Change, Pool, Sight
from qm_scheduler.projections import OrderDoc
from qm_scheduler.queue import Line, Queue
from qm_scheduler.reasons import Ahead
from qm_scheduler.shares import Share
from qm_scheduler.view import Ask, Pick, Shape, shape_of
from qm_scheduler.waiting import Waiting, waiting_of
from qm_scheduler.workload import Demand, Workload


@dataclass(slots=True)
class Board:
    """The whole as `settle` sees it."""

    pool: Pool = field(default_factory=Pool)
    queue: Queue = field(default_factory=Queue)
    leases: dict[str, SortedList] = field(default_factory=dict)
    """accelerator -> (end, order) of the leases on its cards."""
    returning: dict[str, dict[str, None]] = field(default_factory=dict)
    """accelerator -> orders whose cards of it are being given back."""
    seen: dict[str, None] = field(default_factory=dict)
    """Lanes of which figures or the order changed since reasons were told."""
    news: dict[Ask, None] = field(default_factory=dict)
    """Lines of which some may have been told no reason yet, or another than holds now."""
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Order -> those before it and their cards, as they were when it began to be told to very many."""
    fronts: dict[str, str | None] = field(default_factory=dict)
    """Lane -> the order that was at its front when reasons were last told."""
    impaired: dict[tuple[str, str], None] = field(default_factory=dict)
    """(node, card) of cards in use of which the health changed."""
    lasting: set[str] = field(default_factory=set)
    """Types of which other cards could serve than before."""
    demand: Demand = field(default_factory=Demand)
    suspect: dict[str, None] = field(default_factory=dict)
    """Orders whose promise may not hold any more, or may be bettered."""

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

    def case_of(self, line: Line) -> Case:
        """Return the shape of a line, with what is known of it already."""
        return Case(line.ask.shape, self.pool, self.next_end, served=bool(line.claims))

    def line(self, order: str) -> Ahead | None:
        """Return who is before an order, or None if nobody is in its way."""
        if self.lasting:
            self.reclaim()
        queue = self.queue
        return Ahead(*queue.ahead(order), queue.because(order)) if queue.is_behind(order) else None

    def note(self, change: Change) -> None:
        """Remember what a change may alter."""
        self.seen.update(dict.fromkeys(change.seen))
        self.lasting |= change.lasting
        for name, cards in change.gained.items():
            self.queue.wake(name, cards)

    def doubt(self, holder: OrderDoc) -> None:
        """Let promises be looked at again of places where this order holds cards, or did."""
        for unit in holder.units:
            self.suspect.update(dict.fromkeys(self.pool.kept.get(unit.node, ())))

    def reclaim(self) -> None:
        """Let all who accept cards of which others could serve now claim anew."""
        changed, self.lasting = self.lasting, set()
        for ask, line in self.queue.lines.items():
            if not changed.isdisjoint(ask.shape.accelerators):
                before = line.claims
                self.queue.claim(line, self.case(ask.shape).served_by_ends)
                self.seen.update(dict.fromkeys((*before, *line.claims)))
                self.news[ask] = None
        for order, hold in self.pool.holds.items():
            if not changed.isdisjoint(hold.shape.accelerators):
                self.suspect[order] = None


def _node(board: Board, _: str, old: Node | None, new: Node | None) -> None:
    change = Change()
    if new is not None:
        board.pool.put(new, change)
        if old is None or old.holdings is new.holdings:
            _impaired(board, old, new)
    elif old is not None:
        board.pool.drop(old, change)
    board.note(change)


def _impaired(board: Board, old: Node | None, new: Node) -> None:
    for card in new.cards.values():
        before = old.cards.get(card.card) if old else None
        was = before.health if before else Health.HEALTHY
        if card.holders and card.health is not was:
            board.impaired[new.node, card.card] = None


def _order(board: Board, key: str, old: OrderDoc | None, new: OrderDoc | None) -> None:
    change = Change()
    before = old if old is not None and old.is_holding else None
    after = new if new is not None and new.is_holding else None
    if before is not after and (before or after):
        _leases(board, before, after, change)
        _cleaning(board, before, after, change)
        _held(board, before, after)
    if old is None or new is None or old.request is not new.request:
        _asked(board, old, new)
    _kept(board, key, old, new, change)
    waiting = waiting_of(new)
    if waiting is not None or key in board.queue.orders:
        _queued(board, key, waiting)
    board.note(change)


def _asked(board: Board, old: OrderDoc | None, new: OrderDoc | None) -> None:
    """A document that is here waits or holds; one that is over is not."""
    for doc, sign in ((old, -1), (new, 1)):
        if doc is not None and doc.request is not None:
            board.demand.add(doc.request, sign)


def _workload(board: Board, _: str, __: Workload | None, new: Workload | None) -> None:
    shapes = new.shapes if new else ()
    board.demand.learn(shapes)
    board.pool.views[Sight.OPEN].expect(Fragments(shapes) if shapes else None)


def _queued(board: Board, key: str, waiting: Waiting | None) -> None:
    queue, was = board.queue, board.queue.orders.get(key)
    is_new = waiting is not None and waiting.ask not in queue.lines
    queue.put(key, waiting)
    if waiting is not None:
        line = queue.lines[waiting.ask]
        if is_new:
            queue.claim(line, board.case(waiting.ask.shape).served_by_ends)
        elif was is None and any(hold.priority < -waiting.level[0] for hold in board.pool.holds.values()):
            # Places that bound the others of its line may not bind this one.
            queue.rouse(line)
        if waiting.code is None:
            board.news[waiting.ask] = None
    if was is None or waiting is None or was.ask != waiting.ask:
        for each in (was, waiting):
            board.seen.update(dict.fromkeys(each.ask.shape.accelerators if each else ()))


def _held(board: Board, old: OrderDoc | None, new: OrderDoc | None) -> None:
    doc = new or old
    if doc is None or (old is not None and new is not None):
        return
    shares = sum(shares_of(unit.portion) for unit in doc.units)
    lanes = board.queue.weigh(f"{doc.tenant}/{doc.project}", held=shares if new else -shares)
    board.seen.update(dict.fromkeys(lanes))
    # Who is not bound by a promise may have taken what was kept, for longer than was promised.
    board.doubt(doc)


def _kept(board: Board, key: str, old: OrderDoc | None, new: OrderDoc | None, change: Change) -> None:
    was, now = old.promise if old else None, new.promise if new else None
    if was is now or was == now:
        return
    hold = None
    if now is not None and new is not None:
        picks = tuple(Pick(at.node, (at.accelerator, at.card_memory_mib, ()), at.units) for at in now.places)
        hold = Hold(key, new.asked.priority, shape_of(new.asked), picks, now.until)
    board.pool.keep(key, hold, change)
    board.suspect.pop(key, None)


def _leases(board: Board, old: OrderDoc | None, new: OrderDoc | None, change: Change) -> None:
    before, after = _ends(old), _ends(new)
    for name, end in before - after:
        board.leases[name].remove(end)
    for name, end in after - before:
        board.leases.setdefault(name, SortedList()).add(end)
    doc = new or old
    end_at = new.ends_at if new else None
    if doc is not None and end_at != board.pool.ends.get(doc.allocation):
        board.pool.ends_at(doc.allocation, end_at, {unit.node for unit in doc.units}, change)
        board.doubt(doc)


def _ends(doc: OrderDoc | None) -> set[tuple[str, tuple[datetime, str]]]:
    if doc is None or doc.ends_at is None:
        return set()
    return {(unit.accelerator, (doc.ends_at, doc.order)) for unit in doc.units}


def _cleaning(board: Board, old: OrderDoc | None, new: OrderDoc | None, change: Change) -> None:
    was, now = old is not None and old.releasing, new is not None and new.releasing
    doc = new or old
    if was != now and doc is not None:
        for name in {unit.accelerator for unit in doc.units}:
            there = board.returning.setdefault(name, {})
            if now:
                there[doc.order] = None
            else:
                there.pop(doc.order, None)
        nodes = tuple(sorted({unit.node for unit in doc.units}))
        board.pool.clean(doc.allocation, now, nodes, change)
        board.doubt(doc)


def _share(board: Board, key: str, _old: Share | None, new: Share | None) -> None:
    board.seen.update(dict.fromkeys(board.queue.weigh(key, weight=new.weight if new else 1)))


_FOLLOWERS: Mapping[str, Callable[[Board, str, Any, Any], None]] = {
    "nodes": _node,
    "allocations": _order,
    "shares": _share,
    "workloads": _workload,
}
