"""Whether somebody has to leave for an order that waits: the place, its promise and the word to each victim, in one
step.

Who may be placed is placed first, and an order whose place comes by itself for less than the victims cost waits for it.
A better ranked order that claims the same cards is promised a place first, as when it is passed. An order has victims
once in a wait: what becomes of its place later moves the promise, and takes cards from nobody again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from qm_events.ids import stream_name
from qm_events.scheduler import KeptPlace
from qm_scheduler.board import Board
from qm_scheduler.domain import Preempt, Promise
from qm_scheduler.holds import GIVE_BACK
from qm_scheduler.loose import Candidate, Who, who_is
from qm_scheduler.projections import OrderDoc
from qm_scheduler.promise import earliest
from qm_scheduler.queue import Line, Rank
from qm_scheduler.victims import Asker, Plan, Search
from qm_scheduler.view import Kind, Pick, Shape
from qm_service.model import Act, Context

ASKED_MAX = 64
"""So many lines are asked in one step, the best ranked first; the others when time is looked at again."""


def kept_places(picks: Sequence[Pick]) -> tuple[KeptPlace, ...]:
    """Return a place as it is promised. Slices are picked one by one."""
    units: dict[tuple[str, Kind], int] = {}
    for pick in picks:
        units[pick.node, pick.kind] = units.get((pick.node, pick.kind), 0) + pick.units
    return tuple(
        KeptPlace(node=node, accelerator=kind[0], card_memory_mib=kind[1], units=count)
        for (node, kind), count in units.items()
    )


def evict_next(board: Board, ctx: Context, first: Callable[[Rank, Sequence[Pick]], Sequence[Act]]) -> Sequence[Act]:
    """Return the acts of the next eviction. `first` tells what has to be done before somebody gets this place."""
    docs = ctx.docs.resident("allocations")
    for rank, line in _askers(board, docs):
        doc: OrderDoc = docs[rank[2][1]]
        plan = _plan(board, ctx, doc, line)
        if plan is None:
            board.eager.pop(line.ask, None)
            board.in_vain = True
            continue
        return first(rank, plan.picks) or list(_told(board, ctx, doc, line, plan))
    return ()


def _askers(board: Board, docs: Mapping[str, Any]) -> Sequence[tuple[Rank, Line]]:
    """Return the first of each line that asks, the best ranked first; those who can take nothing are left out."""
    found = []
    for ask in board.eager:
        line = board.queue.lines.get(ask)
        rank = line.heads.top() if line is not None and line.claims else None
        if line is not None and rank is not None and _may_ask(board, line, docs[rank[2][1]]):
            found.append((rank, line))
    found.sort(key=lambda each: each[0])
    board.eager = {line.ask: None for _, line in found[:ASKED_MAX]}
    return found[:ASKED_MAX]


def _may_ask(board: Board, line: Line, doc: OrderDoc) -> bool:
    # Nobody leaves for a slice: what it needs of a card is soon to be had beside others.
    if line.ask.shape.part is not None or (doc.promise and doc.promise.victims):
        return False
    return board.loose.may_take(who_is(doc.asked.priority, line.ask.right))


def _plan(board: Board, ctx: Context, doc: OrderDoc, line: Line) -> Plan | None:
    docs = ctx.docs.resident("allocations")
    asker = Asker(line.ask, who_is(doc.asked.priority, line.ask.right))
    lately = {name: each.times for name, each in ctx.docs.resident("evictions").items()}
    returning = dict.fromkeys(key for name in line.ask.shape.accelerators for key in board.returning.get(name, ()))
    coming = dict.fromkeys(unit.node for key in returning for unit in docs[key].units)
    search = Search(board.pool, board.loose, board.laws, asker, lately, ctx.now, tuple(coming))
    plan = search.plan()
    board.look_again(search.again_at)
    if plan is None:
        return None
    start = earliest(board, docs, board.queue.orders[doc.order], ctx.now)
    if start is not None and start.at is not None and _is_worth_waiting(start.at, plan, line.ask.shape, ctx.now):
        board.look_again(start.at + GIVE_BACK)
        return None
    return plan


def _is_worth_waiting(at: datetime, plan: Plan, shape: Shape, now: datetime) -> bool:
    """Both ways it waits until cards are clean; what it waits longer is weighed against what the victims lose."""
    longer = max(int((at - now - GIVE_BACK).total_seconds()), 0)
    return shape.cards * shape.units * longer <= plan.cost


def _told(board: Board, ctx: Context, doc: OrderDoc, line: Line, plan: Plan) -> Iterator[Act]:
    who = who_is(doc.asked.priority, line.ask.right)
    promise = Promise(
        doc.order,
        kept_places(plan.picks),
        ctx.now + GIVE_BACK,
        tuple(each.allocation for each in plan.victims),
    )
    yield Act(stream_name("allocation", doc.order), promise, doc.tenant, doc.project, doc.order)
    docs = ctx.docs.resident("allocations")
    for each in plan.victims:
        victim: OrderDoc = docs[each.order]
        command = _word(board, ctx, who, victim, each)
        yield Act(stream_name("allocation", each.order), command, victim.tenant, victim.project, each.order)


def _word(board: Board, ctx: Context, who: Who, victim: OrderDoc, each: Candidate) -> Preempt:
    """Say why, by class: never whose order it is for."""
    after = "It is in the queue again, in its old place, when its cards are clean"
    if not each.owes(who):
        why = f"An order of priority {who.priority} needs the place; this one is preemptible and of priority "
        return Preempt(each.order, each.allocation, "preempted", f"{why}{each.priority}. {after}.")
    out_until = board.laws.out_until((*victim.reclaimed, ctx.now))
    why = "The project that lent its quota takes it back; this order runs on borrowed quota. "
    until = f", and is given cards from {out_until:%Y-%m-%dT%H:%M:%SZ} on" if out_until else ""
    return Preempt(each.order, each.allocation, "reclaimed", f"{why}{after}{until}.", not_before=out_until)
