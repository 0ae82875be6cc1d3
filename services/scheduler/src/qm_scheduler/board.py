"""The index of the scheduler: the sheet, kept in step with one document at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sortedcontainers import SortedList

from qm_events.specs import Health
from qm_scheduler.allocation import Phase
from qm_scheduler.cuts import shares_of
from qm_scheduler.fleet import Node
from qm_scheduler.fragments import Fragments
from qm_scheduler.holds import Hold
from qm_scheduler.laws import next_minute
from qm_scheduler.loose import candidate_of
from qm_scheduler.pool import Change, Sight
from qm_scheduler.projections import OrderDoc
from qm_scheduler.reservations import Reservation, hold_key, hold_of
from qm_scheduler.shares import Share
from qm_scheduler.sheet import Sheet
from qm_scheduler.view import Ask, Pick, right_of, shape_of
from qm_scheduler.waiting import Waiting, waiting_of
from qm_scheduler.workload import Workload


@dataclass(slots=True)
class Board(Sheet):
    """The whole as `settle` sees it."""

    def changed(self, projection: str, key: str, old: Any | None, new: Any | None) -> None:
        """Follow one resident document."""
        follow = _FOLLOWERS.get(projection)
        if follow is not None:
            follow(self, key, old, new)


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
        if card.holders and card.health is not was:
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
    _loosened(board, before, after)
    if old is None or new is None or old.request is not new.request:
        _asked(board, old, new)
    _kept(board, key, old, new, change)
    waiting = waiting_of(new, board.reservations)
    _named(board, key, old, new)
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
    shares = sum(shares_of(unit.portion) for unit in doc.units)
    lanes = board.queue.weigh(f"{doc.tenant}/{doc.project}", held=shares if new else -shares)
    board.seen.update(dict.fromkeys(lanes))
    # Who is not bound by a promise may have taken what was kept, and who gives cards back may better one.
    board.doubt(doc)


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
        # What is being given back may be an earlier place.
        board.doubt_types({unit.accelerator for unit in doc.units})
        nodes = tuple(sorted({unit.node for unit in doc.units}))
        board.pool.clean(doc.allocation, now, nodes, change)


def _share(board: Board, key: str, _old: Share | None, new: Share | None) -> None:
    board.seen.update(dict.fromkeys(board.queue.weigh(key, weight=new.weight if new else 1)))


_FOLLOWERS: Mapping[str, Callable[[Board, str, Any, Any], None]] = {
    "nodes": _node,
    "allocations": _order,
    "shares": _share,
    "reservations": _reservation,
    "workloads": _workload,
}
