"""After each batch: place what fits, then tell those who still wait why.

The best ranked of those who may fit is tried first. Before anybody passes a better ranked order that claims the same
cards, a place is kept for that one: where it will start first if leases end as promised (`promise`). So a large order
is not starved by a stream of small ones, and nothing else stands idle for it. One order is placed a step: the facts of
it change the index before the next is looked at. A reason is told when its code changes; figures are computed when
somebody asks.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from qm_events.ids import PLATFORM, stream_name
from qm_events.specs import Health, PlacedUnit, Slice
from qm_scheduler.board import Board
from qm_scheduler.cuts import State, cut, part_of, placed
from qm_scheduler.domain import Allocate, Impair, Promise, allocation_id
from qm_scheduler.evict import evict_next, kept_places
from qm_scheduler.fleet import SICK, Node
from qm_scheduler.inventory import HoldCards
from qm_scheduler.placement import place_for
from qm_scheduler.projections import OrderDoc, Promised
from qm_scheduler.promise import earliest, serves
from qm_scheduler.queue import Line, Rank
from qm_scheduler.reservations import EndReservation, Move, Reservation, is_reserved, shape_of_all
from qm_scheduler.telling import tell
from qm_scheduler.view import Pick
from qm_scheduler.workload import Learn
from qm_service.model import Act, Context


def settle(ctx: Context) -> Sequence[Act]:
    """Return the acts of the next placement or promise; if there is none, those of all reasons that changed."""
    board: Board = ctx.index
    board.wake(ctx.now)
    if board.reservations and (acts := _expired(board, ctx)):
        return acts
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
    if board.eager and (acts := evict_next(board, ctx, partial(_promised_first, board, ctx))):
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
            board.eager[line.ask] = None
            continue
        return _promised_first(board, ctx, rank, picks) or _grant(board, ctx, rank[2][1], line, picks)
    return ()


def _promised_first(board: Board, ctx: Context, rank: Rank, picks: Sequence[Pick]) -> Sequence[Act]:
    """Keep a place for the next one that would be passed."""
    return next((acts for passed in _passed(board, rank, picks) if (acts := _promise(board, ctx, passed))), ())


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
    waiting, known = board.queue.orders[order], doc.promise or Promised((), None)
    stands = serves(board, waiting.ask.shape, [each.node for each in known.places])
    if stands and any(each in board.leaving for each in known.victims):
        return ()
    if stands and place_for(board.pool, waiting.ask, -waiting.level[0], ctx.now) is not None:
        # It is placed next: elsewhere others would take what is free for it now.
        return ()
    start = earliest(board, ctx.docs.resident("allocations"), waiting, ctx.now)
    places, until, since = kept_places(start.picks if start else ()), start.at if start else None, known.until
    if places and until is None and stands:
        # One place of which the time is not known is as good as another.
        places = known.places
    if set(places) == set(known.places) and (until == since or (until and since and max(until, since) <= ctx.now)):
        return ()
    command = Promise(order, places, until, known.victims)
    return (Act(stream_name("allocation", order), command, doc.tenant, doc.project, order),)


def _renew(board: Board, ctx: Context) -> Sequence[Act]:
    """Look again at promises that a change may have broken or bettered."""
    orders, board.suspect = sorted(board.suspect), {}
    return [
        act
        for key in orders
        if key in board.pool.holds
        for act in (_moved(board, ctx, key) if is_reserved(key) else _promise(board, ctx, key))
    ]


def _moved(board: Board, ctx: Context, key: str) -> Sequence[Act]:
    """Keep a reservation elsewhere if its nodes can no longer serve it and nobody is there yet."""
    name = key.partition("/")[2]
    doc, shape = board.reservations[name], shape_of_all(board.reservations[name])
    if doc.is_maintenance or board.used.get(name) or serves(board, shape, [at.node for at in doc.places]):
        return ()
    docs = ctx.docs.resident("allocations")
    found = board.window(shape, max(doc.starts_at, ctx.now), doc.ends_at, docs, without=name)
    return (_on(doc, Move(name, found.places)),) if found.places else ()


def _expired(board: Board, ctx: Context) -> Sequence[Act]:
    over = sorted(name for name, doc in board.reservations.items() if doc.ends_at <= ctx.now)
    docs = [board.reservations[name] for name in over]
    return [_on(doc, EndReservation(doc.id, "expired", doc.ends_at)) for doc in docs]


def _on(doc: Reservation, command: object) -> Act:
    return Act(stream_name("reservation", doc.id), command, doc.tenant, doc.project, doc.id)


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
