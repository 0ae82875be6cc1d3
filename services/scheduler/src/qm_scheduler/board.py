"""The index of the scheduler: pool, queue, ends of leases, and what has to be looked at again because of a change.

It follows from the resident documents alone, so it is never stored. `settle` reads it and empties what has to be told.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

from sortedcontainers import SortedList

from qm_events.specs import Health, PlacedUnit
from qm_scheduler.allocation import Phase
from qm_scheduler.case import Case
from qm_scheduler.fleet import Node
from qm_scheduler.holds import Hold
from qm_scheduler.laws import Laws, next_minute
from qm_scheduler.loose import Loose, candidate_of
from qm_scheduler.placement import place, place_for
from qm_scheduler.pool import Change, Pool, Sight
from qm_scheduler.projections import OrderDoc
from qm_scheduler.queue import Line, Queue
from qm_scheduler.reasons import Ahead
from qm_scheduler.reservations import NEVER, Reservation, hold_key, hold_of, is_reserved
from qm_scheduler.shares import Share
from qm_scheduler.view import Ask, Pick, Shape, right_of, shape_of
from qm_scheduler.waiting import Waiting, waiting_of
from qm_scheduler.windows import Calendar, Window


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
    fronts: dict[str, str] = field(default_factory=dict)
    """Lane -> the order that was at its front when reasons were last told."""
    impaired: dict[tuple[str, str], None] = field(default_factory=dict)
    """(node, card) of cards in use of which the health changed."""
    lasting: set[str] = field(default_factory=set)
    """Types of which other cards could serve than before."""
    suspect: dict[str, None] = field(default_factory=dict)
    """Orders whose promise may not hold any more, or may be bettered."""
    laws: Laws = field(default_factory=Laws)
    loose: Loose = field(init=False)
    eager: dict[Ask, None] = field(default_factory=dict)
    """Lines of which the first has to be asked whether somebody should leave for it."""
    look_at: datetime | None = None
    """When time alone may change the answer to that."""
    in_vain: bool = False
    """Somebody asked so, and nobody had to leave: what others get and give up may change that within a minute."""
    leaving: dict[str, OrderDoc] = field(default_factory=dict)
    """Allocations that are given up and not yet back, with their orders."""
    timed: SortedList = field(default_factory=lambda: SortedList(key=itemgetter(0)))
    """(time, line) of lines that may be placed from then on."""
    now: datetime = NEVER
    """When `settle` looked last."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    used: dict[str, dict[str, tuple[PlacedUnit, ...]]] = field(default_factory=dict)
    """Reservation -> allocation -> what orders that named it hold."""
    naming: dict[str, dict[str, OrderDoc]] = field(default_factory=dict)
    """Reservation -> waiting orders that name it."""
    parked: set[Ask] = field(default_factory=set)
    """Those whose time has not come; they claim nothing."""

    def __post_init__(self) -> None:
        self.loose = Loose(self.pool)

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

    def claims(self, ask: Ask) -> tuple[str, ...]:
        """Return the types that a line claims now."""
        return () if ask in self.parked else self.case(ask.shape).served_by_ends

    def wake(self, now: datetime) -> None:
        """Let in whose time has come, and ask again whom time may have helped."""
        self.now = now
        while self.timed and self.timed[0][0] <= now:
            ask = self.timed.pop(0)[1]
            self.parked.discard(ask)
            if (line := self.queue.lines.get(ask)) is not None:
                self.queue.claim(line, self.claims(ask))
                self.news[ask] = None
                self.seen.update(dict.fromkeys(ask.shape.accelerators))
        if self.look_at is not None and self.look_at <= now:
            self.look_at, self.in_vain = None, False
            self.eager.update(dict.fromkeys(self.queue.lines))

    def window(
        self, shape: Shape, start: datetime, end: datetime, docs: Mapping[str, Any], without: str = ""
    ) -> Window:
        """Return where cards can be kept for a window of time; `docs` are the resident allocations."""
        leases = [self.leases.get(name, ()) for name in shape.accelerators]
        others = {name: each for name, each in self.reservations.items() if name != without}
        return Calendar(self.pool, leases, docs, others).find(shape, start, end)

    def reserved(self, now: datetime) -> dict[str, int]:
        """Return by type how many free cards are kept for reservations that have begun."""
        found: dict[str, int] = {}
        for name in (name for name, doc in self.reservations.items() if doc.starts_at <= now):
            for room in self.pool.reserved(hold_key(name)).rooms.values():
                for kind, count in room.free.items():
                    found[kind[0]] = found.get(kind[0], 0) + count
        return found

    def look_again(self, at: datetime | None) -> None:
        """Ask again at a time."""
        if at is not None:
            self.look_at = min(at, self.look_at or at)

    @property
    def due(self) -> datetime | None:
        """When `settle` has something to do though nothing happens."""
        times = [each.ends_at for each in self.reservations.values()]
        times += [self.timed[0][0]] if self.timed else []
        # Nobody waits: nobody has to be asked.
        return min([*times, self.look_at] if self.look_at and self.queue.orders else times, default=None)

    def case_of(self, line: Line) -> Case:
        """Return the shape of a line, with what is known of it already."""
        return Case(line.ask.shape, self.pool, self.next_end, served=bool(line.claims))

    def line(self, order: str) -> Ahead | None:
        """Return who is before an order, or None if nobody is in its way."""
        if self.lasting:
            self.reclaim()
        queue = self.queue
        return Ahead(*queue.ahead(order), queue.because(order)) if queue.is_behind(order) else self.kept_from(order)

    def is_behind(self, order: str) -> bool:
        """Return whether somebody must be served before an order."""
        return self.queue.is_behind(order) or self.kept_from(order) is not None

    def kept_from(self, order: str) -> Ahead | None:
        """Return for whom, though not before it, what would do for an order is kept; None: for nobody."""
        waiting = self.queue.orders[order]
        priority = -waiting.level[0]
        binding = [
            hold
            for key, hold in self.pool.holds.items()
            if not is_reserved(key) and hold.binds(waiting.ask, priority, self.now)
        ]
        if not binding or waiting.ask.reservation or place(self.pool.views[Sight.FREE], waiting.ask.shape) is None:
            return None
        if place_for(self.pool, waiting.ask, priority, self.now) is not None:
            return None
        return Ahead(len(binding), sum(hold.shape.cards * hold.shape.units for hold in binding), "kept_place")

    def note(self, change: Change) -> None:
        """Remember what a change may alter."""
        self.seen.update(dict.fromkeys(change.seen))
        self.lasting |= change.lasting
        for name, cards in change.gained.items():
            self.queue.wake(name, cards)

    def reclaim(self) -> None:
        """Let all who accept cards of which others could serve now claim anew."""
        changed, self.lasting = self.lasting, set()
        for ask, line in self.queue.lines.items():
            if not changed.isdisjoint(ask.shape.accelerators):
                self.queue.claim(line, self.claims(ask))
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
        board.loose.refresh(new.node)
    elif old is not None:
        board.pool.drop(old, change)
        board.loose.refresh(old.node)
    board.note(change)


def _impaired(board: Board, old: Node | None, new: Node) -> None:
    for card in new.cards.values():
        before = old.cards.get(card.card) if old else None
        was = before.health if before else Health.HEALTHY
        if card.allocation is not None and card.health is not was:
            board.impaired[new.node, card.card] = None


def _order(board: Board, key: str, old: OrderDoc | None, new: OrderDoc | None) -> None:
    change = Change()
    before = old if old is not None and old.is_holding else None
    after = new if new is not None and new.is_holding else None
    kept = (old.promise if old else None) is not (new.promise if new else None)
    if board.in_vain and (kept or before is not after):
        board.look_again(next_minute(board.now))
    if before is not after and (before or after):
        _leases(board, before, after, change)
        _cleaning(board, before, after, change)
        _held(board, before, after)
        _given_up(board, before, after)
        if before is None and after is not None:
            _taken(board, after)
    _loosened(board, before, after)
    _kept(board, key, old, new, change)
    waiting = waiting_of(new, board.reservations)
    _named(board, key, old, new)
    if waiting is not None or key in board.queue.orders:
        _queued(board, key, waiting)
    board.note(change)


def _queued(board: Board, key: str, waiting: Waiting | None) -> None:
    queue, was = board.queue, board.queue.orders.get(key)
    is_new = waiting is not None and waiting.ask not in queue.lines
    queue.put(key, waiting)
    if waiting is not None:
        line = queue.lines[waiting.ask]
        board.eager[waiting.ask] = None
        if is_new:
            _timed(board, waiting.ask)
            queue.claim(line, board.claims(waiting.ask))
        elif was is None and any(hold.priority < -waiting.level[0] for hold in board.pool.holds.values()):
            # Places that bound the others of its line may not bind this one.
            queue.rouse(line)
        if waiting.code is None:
            board.news[waiting.ask] = None
    if was is None or waiting is None or was.ask != waiting.ask:
        for each in (was, waiting):
            board.seen.update(dict.fromkeys(each.ask.shape.accelerators if each else ()))


def _timed(board: Board, ask: Ask) -> None:
    """Only `Board.wake` knows what time it is: until then a line with a time waits for it."""
    if ask.after is not None:
        board.parked.add(ask)
        board.timed.add((ask.after, ask))


def _taken(board: Board, new: OrderDoc) -> None:
    """Who ranks higher may have taken what was kept: then another place has to be found."""
    for name in dict.fromkeys(unit.node for unit in new.units):
        holds = board.pool.kept.get(name, {})
        board.suspect.update(dict.fromkeys(key for key, each in holds.items() if each.priority < new.asked.priority))


def _given_up(board: Board, old: OrderDoc | None, new: OrderDoc | None) -> None:
    for doc, leaves in ((old, False), (new, True)):
        if doc is not None and doc.asked.reservation:
            _use(board, doc.asked.reservation, doc, leaves)
        if doc is None or doc.phase is not Phase.PREEMPTED:
            continue
        if leaves:
            board.leaving[doc.allocation] = doc
        else:
            board.leaving.pop(doc.allocation, None)
        for order, hold in board.pool.holds.items():
            if doc.allocation in hold.victims and order in board.queue.orders:
                board.news[board.queue.orders[order].ask] = None
                board.suspect[order] = None


def _use(board: Board, name: str, doc: OrderDoc, uses: bool) -> None:
    there = board.used.setdefault(name, {})
    if uses:
        there[doc.allocation] = doc.units
    else:
        there.pop(doc.allocation, None)
    _reserve(board, name)


def _named(board: Board, key: str, old: OrderDoc | None, new: OrderDoc | None) -> None:
    for doc in (old, new):
        name = doc.asked.reservation if doc is not None and doc.is_waiting else None
        if name is not None and doc is old:
            board.naming.get(name, {}).pop(key, None)
        elif name is not None and new is not None:
            board.naming.setdefault(name, {})[key] = new


def _reservation(board: Board, key: str, _: Reservation | None, new: Reservation | None) -> None:
    if new is None:
        board.reservations.pop(key, None)
    else:
        board.reservations[key] = new
    _reserve(board, key)
    for order, doc in list(board.naming.get(key, {}).items()):
        _queued(board, order, waiting_of(doc, board.reservations))


def _reserve(board: Board, name: str) -> None:
    """Keep what of a reservation its orders do not hold."""
    change, key = Change(), hold_key(name)
    hold = hold_of(board.reservations.get(name), board.used.get(name, {}))
    if hold != board.pool.holds.get(key):
        board.pool.keep(key, hold, change)
        board.note(change)


def _loosened(board: Board, old: OrderDoc | None, new: OrderDoc | None) -> None:
    was, now = candidate_of(old), candidate_of(new)
    if was == now:
        return
    if was is not None:
        board.loose.put(was.allocation, None)
    if now is not None:
        board.loose.put(now.allocation, now)
        board.look_again(board.laws.ripe_at(now.since))


def _held(board: Board, old: OrderDoc | None, new: OrderDoc | None) -> None:
    doc = new or old
    if doc is None or (old is not None and new is not None):
        return
    cards = sum(len(unit.cards) for unit in doc.units)
    lanes = board.queue.weigh(f"{doc.tenant}/{doc.project}", held=cards if new else -cards)
    board.seen.update(dict.fromkeys(lanes))


def _kept(board: Board, key: str, old: OrderDoc | None, new: OrderDoc | None, change: Change) -> None:
    was, now = old.promise if old else None, new.promise if new else None
    if was is now or was == now:
        return
    hold = None
    if now is not None and new is not None:
        picks = tuple(Pick(at.node, (at.accelerator, at.card_memory_mib, ()), at.units) for at in now.places)
        right = right_of(new.tenant, new.borrowed, new.reclaims)
        hold = Hold(
            key,
            new.asked.priority,
            shape_of(new.asked),
            picks,
            now.until,
            now.victims,
            right,
        )
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
        for unit in doc.units:
            board.suspect.update(dict.fromkeys(board.pool.kept.get(unit.node, ())))


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
        _bettered(board, {unit.accelerator for unit in doc.units})
        nodes = tuple(sorted({unit.node for unit in doc.units}))
        board.pool.clean(doc.allocation, now, nodes, change)


def _bettered(board: Board, types: set[str]) -> None:
    """What is being given back may be an earlier place."""
    board.suspect.update(
        (order, None) for order, hold in board.pool.holds.items() if not types.isdisjoint(hold.shape.accelerators)
    )


def _share(board: Board, key: str, _old: Share | None, new: Share | None) -> None:
    board.seen.update(dict.fromkeys(board.queue.weigh(key, weight=new.weight if new else 1)))


_FOLLOWERS: Mapping[str, Callable[[Board, str, Any, Any], None]] = {
    "nodes": _node,
    "allocations": _order,
    "shares": _share,
    "reservations": _reservation,
}
