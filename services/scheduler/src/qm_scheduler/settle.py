"""After each batch: place what fits, then tell those who still wait why.

Only lanes with a change that can matter are walked, best rank first, and a lane is left at the first order that claims
it. One order is placed a step: the facts of it change the index before the next is looked at. A reason is told when its
code changes; figures are computed when somebody asks.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from sortedcontainers import SortedList

from qm_events.ids import stream_name
from qm_events.specs import PlacedUnit, WaitCode, WaitReason
from qm_scheduler.board import Board
from qm_scheduler.domain import Allocate, Explain, allocation_id
from qm_scheduler.inventory import HoldCards
from qm_scheduler.placement import place
from qm_scheduler.pool import Sight
from qm_scheduler.projections import OrderDoc
from qm_scheduler.queue import Rank, Tried, WaitClass
from qm_scheduler.reasons import Line, explain, first_code
from qm_scheduler.view import Pick
from qm_service.model import Act, Context


def settle(ctx: Context) -> Sequence[Act]:
    """Return the acts of the next placement; if there is none, those of all reasons that changed."""
    board: Board = ctx.index
    if board.open and (acts := _place_next(board, ctx)):
        return acts
    if board.seen or board.inventory or board.news:
        return tuple(_explain(board, ctx))
    return ()


# ---- placing


def _place_next(board: Board, ctx: Context) -> Sequence[Act]:
    lanes = board.queue.tied(board.open)
    claimed: dict[str, Rank] = {}
    hopeless = []
    previous: Rank | None = None
    for rank in merge(*(board.queue.lanes.get(name, ()) for name in lanes)):
        if rank == previous:
            continue
        previous = rank
        group = board.queue.class_of(rank)
        if picks := _try(board, group, claimed):
            return _grant(board, ctx, rank[2], picks)
        claims = board.claims(group)
        if not claims and not board.case(group.shape).possible:
            hopeless.append(group)
        for name in claims:
            claimed.setdefault(name, rank)
        if len(claimed) == len(lanes):
            break
    for group in hopeless:
        board.queue.park(group)
    board.walked(lanes, claimed)
    return ()


def _try(board: Board, group: WaitClass, claimed: Mapping[str, Rank]) -> list[Pick] | None:
    shape = group.shape
    allowed = tuple(name for name in shape.accelerators if name not in claimed)
    now = Tried(allowed, board.gains(shape.accelerators))
    if not allowed or group.tried == now:
        return None
    picks = place(board.pool.views[Sight.FREE], shape, allowed)
    group.tried = None if picks else now
    return picks


def _grant(board: Board, ctx: Context, order: str, picks: Sequence[Pick]) -> Sequence[Act]:
    doc: OrderDoc = ctx.docs.resident("allocations")[order]
    shape = board.queue.orders[order].shape
    units = tuple(unit for pick in picks for unit in _units(board, pick, shape.cards))
    by_node: dict[str, list[PlacedUnit]] = {}
    for unit in units:
        by_node.setdefault(unit.node, []).append(unit)
    holder = allocation_id(order, doc.grants + 1)
    about: dict[str, Any] = {"tenant": doc.tenant, "project": doc.project, "correlation": order}
    acts = [Act(stream_name("allocation", order), Allocate(order, units), **about)]
    for node, here in by_node.items():
        cards = tuple(card for unit in here for card in unit.cards)
        hold = HoldCards(order, holder, cards, shape.cpu_milli * len(here), shape.memory_mib * len(here))
        acts.append(Act(stream_name("node", node), hold, **about))
    return acts


def _units(board: Board, pick: Pick, cards: int) -> Iterator[PlacedUnit]:
    free = board.pool.free_cards(pick.node, pick.kind)
    for _ in range(pick.units):
        yield PlacedUnit(node=pick.node, accelerator=pick.kind[0], cards=tuple(islice(free, cards)))


# ---- telling why


def _explain(board: Board, ctx: Context) -> Iterator[Act]:
    docs = ctx.docs.resident("allocations")
    for group in _to_explain(board):
        for order, reasons in _changed_reasons(board, group):
            doc: OrderDoc = docs[order]
            yield Act(stream_name("allocation", order), Explain(order, reasons), doc.tenant, doc.project, order)


def _to_explain(board: Board) -> Sequence[WaitClass]:
    """Return the classes whose first reason may be another now: the new ones, those at or before the blocker of a lane
    that changed, and those that were there last time. Behind a blocker the reason is the blocker, whatever is free."""
    lanes, board.seen = board.seen | board.inventory, set()
    whole, board.inventory = board.inventory, set()
    shapes, board.news = board.news, set()
    for name in lanes:
        lane = board.queue.lanes.get(name, SortedList())
        front = {board.queue.class_of(rank).shape for rank in lane.irange(None, board.blockers.get(name))}
        shapes |= front | board.fronts.get(name, set())
        board.fronts[name] = front
        if name in whole:
            shapes |= {board.queue.class_of(rank).shape for rank in lane} | board.queue.parked.get(name, set())
    groups = (board.queue.classes[shape] for shape in shapes if shape in board.queue.classes)
    return sorted(groups, key=lambda group: group.members[0])


def _changed_reasons(board: Board, group: WaitClass) -> Iterator[tuple[str, tuple[WaitReason, ...]]]:
    # Members that rank before the blocker of their types have nobody in the way, the others have.
    case, blocker = board.case(group.shape), board.blocker(group.shape.accelerators)
    if blocker is None or group.members[0] <= blocker:
        for order in _told_otherwise(group, first_code(case, None), None, blocker):
            yield order, explain(case, None)
    if blocker is not None and blocker < group.members[-1]:
        for order in _told_otherwise(group, first_code(case, Line(0)), blocker, None):
            yield order, explain(case, Line(board.queue.ahead(order)))


def _told_otherwise(group: WaitClass, code: WaitCode | None, after: Rank | None, to: Rank | None) -> Iterator[str]:
    """Yield the orders ranked after the one and up to the other that were told another first reason."""
    for told, ranks in group.codes.items():
        if told is not code:
            yield from (rank[2] for rank in ranks.irange(after, to, (False, True)))
