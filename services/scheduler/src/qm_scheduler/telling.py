"""Telling those who wait why: when the first reason of one changes, and of very many a part at a time."""

from collections.abc import Iterator
from itertools import islice

from qm_events.ids import stream_name
from qm_events.specs import WaitCode, WaitReason
from qm_scheduler.board import Board
from qm_scheduler.case import Case
from qm_scheduler.domain import Explain
from qm_scheduler.own import own_reasons
from qm_scheduler.projections import OrderDoc
from qm_scheduler.queue import Line
from qm_scheduler.reasons import Ahead, explain, first_code
from qm_scheduler.view import Shape
from qm_service.model import Act, Context

TOLD_MAX = 200
"""Orders that are told why they wait in one step; others go in between. What is left to tell follows from what was
told last, so a start in the midst of it goes on."""
_SORTED = 2
"""To find the places of all orders costs as much for each as to ask two projects who of theirs is before it."""


def told(board: Board, ctx: Context) -> Iterator[Act]:
    """Yield what has to be told now."""
    docs = ctx.docs.resident("allocations")
    for order, reasons in sorted(_changed_reasons(board).items()):
        doc: OrderDoc = docs[order]
        yield Act(stream_name("allocation", order), Explain(order, reasons), doc.tenant, doc.project, order)


def _changed_reasons(board: Board) -> dict[str, tuple[WaitReason, ...]]:
    """Return the reasons of orders that were told another first one, or none: of about `TOLD_MAX` at once."""
    queue, cases = board.queue, dict[Shape, Case]()
    found = {order: None for order in _fronts(board) if order in queue.orders and _is_news(board, cases, order)}
    found |= dict.fromkeys(_told_otherwise(board, cases))
    if not board.news:
        board.places = {}
    elif not board.places and _many(board, cases):
        board.places = queue.places()
    lines = {order: queue.lines[queue.orders[order].ask] for order in found}
    return {
        order: explain(_case(board, line, cases), _ahead(board, order), own_reasons(board, line.ask))
        for order, line in lines.items()
    }


def _many(board: Board, cases: dict[Shape, Case]) -> bool:
    """Return whether to look at all orders at once costs less than to ask for each of the others who is before it."""
    queue = board.queue
    lines = [(line, _most(board, line, cases)) for ask in board.news if (line := queue.lines.get(ask))]
    left = sum(len(seqs) for line, most in lines for code, seqs in line.codes.items() if code is not most)
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
    for code, seqs in line.codes.items():
        if code is not most:
            yield from (order for _, order in seqs if _is_news(board, cases, order))


def _most(board: Board, line: Line, cases: dict[Shape, Case]) -> WaitCode | None:
    """Return the first reason of all of a line, but for those who are behind nobody."""
    own = own_reasons(board, line.ask)
    if line.claims and not own:
        return WaitCode.HIGHER_PRIORITY_AHEAD
    return first_code(_case(board, line, cases), own, behind=bool(line.claims))


def _case(board: Board, line: Line, cases: dict[Shape, Case]) -> Case:
    case = cases.get(line.ask.shape)
    if case is None:
        case = cases[line.ask.shape] = board.case_of(line)
    return case


def _is_news(board: Board, cases: dict[Shape, Case], order: str) -> bool:
    """Return whether the first reason of an order is another than it was told."""
    waiting = board.queue.orders[order]
    line = board.queue.lines[waiting.ask]
    own = own_reasons(board, line.ask)
    code = first_code(_case(board, line, cases), own, behind=board.is_behind(order))
    return code not in (None, waiting.code)


def _ahead(board: Board, order: str) -> Ahead | None:
    place = board.places.get(order)
    if place is None or not board.queue.is_behind(order):
        return board.line(order)
    return Ahead(*place, board.queue.because(order))
