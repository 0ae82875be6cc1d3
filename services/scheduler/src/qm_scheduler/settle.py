"""After each batch: place what fits, then tell those who still wait why.

The best ranked of those who may fit is tried first. Before anybody passes a better ranked order that claims the same
cards, a place is kept for that one: where it will start first if leases end as promised (`promise`). So a large order
is not starved by a stream of small ones, and nothing else stands idle for it. One order is placed a step: the facts of
it change the index before the next is looked at. A reason is told when its code changes; figures are computed when
somebody asks.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from qm_events.ids import stream_name
from qm_events.scheduler import KeptPlace
from qm_events.specs import Health, PlacedUnit
from qm_scheduler.board import Board
from qm_scheduler.domain import Allocate, Impair, Promise, allocation_id
from qm_scheduler.fleet import SICK, Node
from qm_scheduler.inventory import HoldCards
from qm_scheduler.placement import place_for
from qm_scheduler.projections import OrderDoc
from qm_scheduler.promise import earliest
from qm_scheduler.queue import Line, Rank
from qm_scheduler.telling import tell
from qm_scheduler.view import Pick
from qm_service.model import Act, Context


def settle(ctx: Context) -> Sequence[Act]:
    """Return the acts of the next placement or promise; if there is none, those of all reasons that changed."""
    board: Board = ctx.index
    if board.lasting:
        board.reclaim()
    if board.impaired and (acts := _impaired(board, ctx)):
        return acts
    if board.suspect and (acts := _renew(board, ctx)):
        return acts
    if acts := _place_next(board, ctx):
        return acts
    if board.seen or board.news:
        return tell(board, ctx)
    return ()


# ---- placing


def _place_next(board: Board, ctx: Context) -> Sequence[Act]:
    queue, pool = board.queue, board.pool
    for rank, line in queue.candidates(pool.reach, pool.mark):
        picks = place_for(pool, line.ask, -rank[0][0], ctx.now)
        if picks is None:
            queue.sleep(line, pool.mark)
            continue
        for passed in _passed(board, rank, picks):
            if acts := _promise(board, ctx, passed):
                return acts
        return _grant(board, ctx, rank[2][1], line, picks)
    return ()


def _passed(board: Board, rank: Rank, picks: Sequence[Pick]) -> Iterator[str]:
    """Yield better ranked orders that claim the same cards and for which no place is kept yet."""
    for name in {pick.kind[0]: None for pick in picks}:
        front = board.queue.front(name)
        if front is not None and front < rank and front[2][1] not in board.pool.holds:
            yield front[2][1]


def _grant(board: Board, ctx: Context, order: str, line: Line, picks: Sequence[Pick]) -> Sequence[Act]:
    doc: OrderDoc = ctx.docs.resident("allocations")[order]
    shape = line.ask.shape
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


# ---- promising


def _promise(board: Board, ctx: Context, order: str) -> Sequence[Act]:
    """Keep the earliest place for an order, or take back a promise that nothing can keep."""
    doc: OrderDoc = ctx.docs.resident("allocations")[order]
    start = earliest(board, ctx.docs.resident("allocations"), board.queue.orders[order], ctx.now)
    places = tuple(
        KeptPlace(node=pick.node, accelerator=pick.kind[0], card_memory_mib=pick.kind[1], units=pick.units)
        for pick in (start.picks if start else ())
    )
    until = start.at if start else None
    known, since = (doc.promise.places, doc.promise.until) if doc.promise else ((), None)
    if places == known and (until == since or (until and since and max(until, since) <= ctx.now)):
        return ()
    command = Promise(order, places, until)
    return (Act(stream_name("allocation", order), command, doc.tenant, doc.project, order),)


def _renew(board: Board, ctx: Context) -> Sequence[Act]:
    """Look again at promises that a change may have broken or bettered."""
    orders, board.suspect = sorted(board.suspect), {}
    return [act for order in orders if order in board.pool.holds for act in _promise(board, ctx, order)]


# ---- telling of sick cards


def _impaired(board: Board, ctx: Context) -> Sequence[Act]:
    """Tell orders of cards that they hold and that fell sick or are well again."""
    noted, board.impaired = sorted(board.impaired), {}
    docs = ctx.docs.resident("allocations")
    return [act for name, card in noted if (node := board.pool.nodes.get(name)) for act in _told_of(node, card, docs)]


def _told_of(node: Node, name: str, docs: Mapping[str, OrderDoc]) -> Iterator[Act]:
    card = node.cards.get(name)
    holding = node.holdings.get(card.allocation or "") if card else None
    if card is None or holding is None:
        return
    doc, health = docs[holding.order], card.health if card.health in SICK else Health.HEALTHY
    if doc.impaired.get(name, Health.HEALTHY) is not health:
        code = next((told.code for told in card.seen.values() if told.health is health), "")
        command = Impair(doc.order, node.node, name, health, code)
        yield Act(stream_name("allocation", doc.order), command, doc.tenant, doc.project, doc.order)
