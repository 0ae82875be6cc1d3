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

from qm_events.ids import PLATFORM, stream_name
from qm_events.scheduler import KeptPlace
from qm_events.specs import Health, PlacedUnit, Slice, WaitCode, WaitReason
from qm_scheduler.board import Board
from qm_scheduler.cuts import State, cut, part_of, placed
from qm_scheduler.domain import Allocate, Explain, Impair, Promise, allocation_id
from qm_scheduler.fleet import SICK, Node
from qm_scheduler.inventory import HoldCards
from qm_scheduler.placement import place_for
from qm_scheduler.projections import OrderDoc
from qm_scheduler.promise import earliest
from qm_scheduler.queue import Line, Rank
from qm_scheduler.reasons import Ahead, explain, first_code
from qm_scheduler.view import Kind, Pick, Shape
from qm_scheduler.workload import Learn
from qm_service.model import Act, Context

MANY = 32
"""From so many orders on, the places of all are worked out at once."""


def settle(ctx: Context) -> Sequence[Act]:
    """Return the acts of the next placement or promise; if there is none, those of all reasons that changed."""
    board: Board = ctx.index
    if board.lasting:
        board.reclaim()
    if board.impaired and (acts := _impaired(board, ctx)):
        return acts
    if board.suspect and (acts := _renew(board, ctx)):
        return acts
    if (shapes := board.demand.news()) is not None:
        return (Act(stream_name("workload", "fleet"), Learn(shapes), PLATFORM, correlation="workload"),)
    if acts := _place_next(board, ctx):
        return acts
    if board.seen or board.news:
        return tuple(_explain(board, ctx))
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
    units = tuple(_units(board, picks, shape.cards, doc.asked.specification.slice))
    by_node: dict[str, list[PlacedUnit]] = {}
    for unit in units:
        by_node.setdefault(unit.node, []).append(unit)
    holder = allocation_id(order, doc.grants + 1)
    about: dict[str, Any] = {"tenant": doc.tenant, "project": doc.project, "correlation": order}
    acts = [Act(stream_name("allocation", order), Allocate(order, units), **about)]
    for node, here in by_node.items():
        cards = tuple(dict.fromkeys(card for unit in here for card in unit.cards))
        slices = tuple(unit.slice for unit in here if unit.slice) or None
        hold = HoldCards(order, holder, cards, shape.cpu_milli * len(here), shape.memory_mib * len(here), slices)
        acts.append(Act(stream_name("node", node), hold, **about))
    return acts


def _units(board: Board, picks: Sequence[Pick], cards: int, asked: Slice | None) -> Iterator[PlacedUnit]:
    part = part_of(asked)
    states: dict[str, State] = {}
    for pick in picks:
        node, accelerator = pick.node, pick.kind[0]
        if asked is None or part is None:
            free = board.pool.free_cards(node, pick.kind)
            for _ in range(pick.units):
                yield PlacedUnit(node=node, accelerator=accelerator, cards=tuple(islice(free, cards)))
            continue
        card = next(card for card, state in board.pool.cut_cards(node, pick.kind, states) if state == pick.state)
        start, states[card] = cut(part, pick.state) or (0, pick.state)
        yield PlacedUnit(node=node, accelerator=accelerator, cards=(card,), slice=placed(card, asked, start))


# ---- promising


def _promise(board: Board, ctx: Context, order: str) -> Sequence[Act]:
    """Keep the earliest place for an order, or take back a promise that nothing can keep."""
    doc: OrderDoc = ctx.docs.resident("allocations")[order]
    start = earliest(board, ctx.docs.resident("allocations"), board.queue.orders[order], ctx.now)
    places = tuple(
        KeptPlace(node=node, accelerator=kind[0], card_memory_mib=kind[1], units=units)
        for (node, kind), units in _by_place(start.picks if start else ()).items()
    )
    until = start.at if start else None
    known, since = (doc.promise.places, doc.promise.until) if doc.promise else ((), None)
    if places == known and (until == since or (until and since and max(until, since) <= ctx.now)):
        return ()
    command = Promise(order, places, until)
    return (Act(stream_name("allocation", order), command, doc.tenant, doc.project, order),)


def _by_place(picks: Sequence[Pick]) -> Mapping[tuple[str, Kind], int]:
    """Slices are picked one by one."""
    units: dict[tuple[str, Kind], int] = {}
    for pick in picks:
        units[pick.node, pick.kind] = units.get((pick.node, pick.kind), 0) + pick.units
    return units


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
    if card is None:
        return
    health = card.health if card.health in SICK else Health.HEALTHY
    for doc in [docs[node.holdings[holder].order] for holder in card.holders]:
        if doc.impaired.get(name, Health.HEALTHY) is health:
            continue
        code = next((told.code for told in card.seen.values() if told.health is health), "")
        command = Impair(doc.order, node.node, name, health, code)
        yield Act(stream_name("allocation", doc.order), command, doc.tenant, doc.project, doc.order)


# ---- telling why


def _explain(board: Board, ctx: Context) -> Iterator[Act]:
    docs = ctx.docs.resident("allocations")
    for order, reasons in sorted(_changed_reasons(board).items()):
        doc: OrderDoc = docs[order]
        yield Act(stream_name("allocation", order), Explain(order, reasons), doc.tenant, doc.project, order)


def _changed_reasons(board: Board) -> dict[str, tuple[WaitReason, ...]]:
    queue = board.queue
    seen, board.seen = board.seen, {}
    news, board.news = board.news, {}
    orders: dict[str, None] = {}
    for name in seen:
        # Behind the front of a lane the reason is the front, whatever is free.
        if (before := board.fronts.pop(name, None)) is not None:
            orders[before] = None
        if (front := queue.front(name)) is not None:
            board.fronts[name] = front[2][1]
            orders[front[2][1]] = None
    for ask in news:
        if ask in queue.lines:
            orders |= dict.fromkeys(_told_otherwise(board, queue.lines[ask]))
    told = {order: shape for order in orders if order in queue.orders and (shape := _is_news(board, order))}
    cases = {shape: board.case(shape) for shape in set(told.values())}
    counts = queue.places() if len(told) > MANY else {}
    return {order: explain(cases[shape], _ahead(board, order, counts)) for order, shape in told.items()}


def _told_otherwise(board: Board, line: Line) -> Iterator[str]:
    """Yield the orders of a line that were not told what most of it are told."""
    code = WaitCode.HIGHER_PRIORITY_AHEAD if line.claims else first_code(board.case(line.ask.shape), None)
    for told, seqs in line.codes.items():
        if told is not code:
            yield from (order for _, order in seqs)


def _is_news(board: Board, order: str) -> Shape | None:
    """Return the shape of an order if its first reason is another than it was told."""
    waiting, shape = board.queue.orders[order], board.queue.orders[order].ask.shape
    behind = board.queue.is_behind(order)
    line = board.queue.lines[waiting.ask]
    code = WaitCode.HIGHER_PRIORITY_AHEAD if behind else first_code(board.case_of(line), None)
    return None if code in (None, waiting.code) else shape


def _ahead(board: Board, order: str, counts: Mapping[str, tuple[int, int]]) -> Ahead | None:
    if not counts:
        return board.line(order)
    queue = board.queue
    return Ahead(*counts[order], queue.because(order)) if queue.is_behind(order) else None
