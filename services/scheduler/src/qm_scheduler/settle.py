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
from qm_scheduler.case import Case
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

TOLD_MAX = 200
"""Orders that are told why they wait in one step; others go in between. What is left to tell follows from what was
told last, so a start in the midst of it goes on."""
_SORTED = 2
"""To find the places of all orders costs as much for each as to ask two projects who of theirs is before it."""


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
    """Return the reasons of orders that were told another first one, or none: of about `TOLD_MAX` at once."""
    queue, cases = board.queue, dict[Shape, Case]()
    told = {order: None for order in _fronts(board) if order in queue.orders and _is_news(board, cases, order)}
    told |= dict.fromkeys(_told_otherwise(board, cases))
    if not board.news:
        board.places = {}
    elif not board.places and _many(board, cases):
        board.places = queue.places()
    lines = {order: queue.lines[queue.orders[order].ask] for order in told}
    return {order: explain(_case(board, line, cases), _ahead(board, order)) for order, line in lines.items()}


def _many(board: Board, cases: dict[Shape, Case]) -> bool:
    """Return whether to look at all orders at once costs less than to ask for each of the others who is before it."""
    queue = board.queue
    lines = [queue.lines[ask] for ask in board.news if ask in queue.lines]
    left = sum(
        len(seqs) for line in lines for told, seqs in line.codes.items() if told is not _most(board, line, cases)
    )
    return left * len(queue.projects) > _SORTED * len(queue.orders)


def _fronts(board: Board) -> Iterator[str]:
    """Yield who is or was at the front of a lane that was changed, or accepts what changed: behind the front the reason
    is the front, whatever is free."""
    queue = board.queue
    seen, board.seen = board.seen, {}
    for name in {**seen, **queue.lanes}:
        front = queue.front(name)
        order = front[2][1] if front else None
        before = board.fronts.get(name)
        if before != order:
            yield from (each for each in (before, order) if each)
        elif order is not None and not seen.keys().isdisjoint(queue.orders[order].ask.shape.accelerators):
            yield order
        board.fronts[name] = order


def _told_otherwise(board: Board, cases: dict[Shape, Case]) -> list[str]:
    """Return orders that were told otherwise than most of their line must be: some of them, the others next time."""
    found: list[str] = []
    while board.news and len(found) < TOLD_MAX:
        ask = next(iter(board.news))
        if line := board.queue.lines.get(ask):
            found += islice(_wrong(board, line, cases), TOLD_MAX - len(found))
        if len(found) < TOLD_MAX:
            del board.news[ask]
    return found


def _wrong(board: Board, line: Line, cases: dict[Shape, Case]) -> Iterator[str]:
    most = _most(board, line, cases)
    for told, seqs in line.codes.items():
        if told is not most:
            yield from (order for _, order in seqs if _is_news(board, cases, order))


def _most(board: Board, line: Line, cases: dict[Shape, Case]) -> WaitCode | None:
    """Return the first reason of all of a line, but for those who are behind nobody."""
    return WaitCode.HIGHER_PRIORITY_AHEAD if line.claims else _alone(board, line, cases)


def _alone(board: Board, line: Line, cases: dict[Shape, Case]) -> WaitCode | None:
    """Return the first reason of those of a line who are behind nobody."""
    return first_code(_case(board, line, cases), None)


def _case(board: Board, line: Line, cases: dict[Shape, Case]) -> Case:
    case = cases.get(line.ask.shape)
    if case is None:
        case = cases[line.ask.shape] = board.case_of(line)
    return case


def _is_news(board: Board, cases: dict[Shape, Case], order: str) -> bool:
    """Return whether the first reason of an order is another than it was told."""
    waiting = board.queue.orders[order]
    line = board.queue.lines[waiting.ask]
    behind = board.queue.is_behind(order)
    code = WaitCode.HIGHER_PRIORITY_AHEAD if behind else _alone(board, line, cases)
    return code not in (None, waiting.code)


def _ahead(board: Board, order: str) -> Ahead | None:
    place = board.places.get(order)
    if place is None or not board.queue.is_behind(order):
        return board.line(order)
    return Ahead(*place, board.queue.because(order))
