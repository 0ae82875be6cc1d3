"""Who has to be told why it waits: a fact for an order whose first reason is another than it was told, and no other.

What most of a line must know follows from what it asks, and is worked out once for all of it. Who is at the front of a
lane is behind nobody and told apart. So a change costs by lines and lanes, and by those for whom the reason did change;
their figures are computed when they are told and, for whoever asks, anew.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from qm_scheduler.view import Ask, Shape
from qm_service.model import Act, Context

TOLD_MAX = 200
"""Orders that are told why they wait in one step; others go in between. What is left to tell follows from what was
told last, so a start in the midst of it goes on."""
_SORTED = 2
"""To find the places of all orders costs as much for each as to ask two projects who of theirs is before it."""


def tell(board: Board, ctx: Context) -> Sequence[Act]:
    """Return the acts that tell orders why they wait: about `TOLD_MAX` of those whose first reason is not what they
    were told last; nothing when all know."""
    docs: Mapping[str, OrderDoc] = ctx.docs.resident("allocations")
    return tuple(
        Act(stream_name("allocation", order), Explain(order, reasons), docs[order].tenant, docs[order].project, order)
        for order, reasons in sorted(_changed_reasons(board).items())
    )


class _Lines:
    """The lines that are looked at in one step: each question about one, or about its shape, is answered once."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._cases: dict[Shape, Case] = {}
        self._own: dict[Ask, tuple[WaitReason, ...]] = {}
        self._codes: dict[tuple[Ask, bool], WaitCode | None] = {}

    def case(self, line: Line) -> Case:
        """Return the shape of a line before the fleet."""
        if line.ask.shape not in self._cases:
            self._cases[line.ask.shape] = self._board.case_of(line)
        return self._cases[line.ask.shape]

    def own(self, line: Line) -> tuple[WaitReason, ...]:
        """Return the reasons that no other line has."""
        if line.ask not in self._own:
            self._own[line.ask] = own_reasons(self._board, line.ask)
        return self._own[line.ask]

    def first(self, line: Line, *, behind: bool) -> WaitCode | None:
        """Return the first reason of those of a line who are behind somebody, or nobody."""
        key = (line.ask, behind)
        if key not in self._codes:
            self._codes[key] = first_code(self.case(line), self.own(line), behind=behind)
        return self._codes[key]


def _changed_reasons(board: Board) -> dict[str, tuple[WaitReason, ...]]:
    """Return the reasons of orders that were told another first one, or none: of about `TOLD_MAX` at once."""
    queue, lines = board.queue, _Lines(board)
    told = {order: None for order in _fronts(board) if order in queue.orders and _is_news(board, lines, order)}
    told |= dict.fromkeys(_told_otherwise(board, lines))
    if not board.news:
        board.places = {}
    elif not board.places and _many(board, lines):
        board.places = queue.places()
    asking = {order: queue.lines[queue.orders[order].ask] for order in told}
    return {order: explain(lines.case(line), _ahead(board, order), lines.own(line)) for order, line in asking.items()}


def _many(board: Board, lines: _Lines) -> bool:
    """Return whether to look at all orders at once costs less than to ask for each of the others who is before it."""
    queue = board.queue
    asking = [queue.lines[ask] for ask in board.news if ask in queue.lines]
    left = sum(len(seqs) for line in asking for told, seqs in line.codes.items() if told is not _most(line, lines))
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


def _told_otherwise(board: Board, lines: _Lines) -> list[str]:
    """Return orders that were told otherwise than most of their line must be: some of them, the others next time."""
    found: list[str] = []
    while board.news and len(found) < TOLD_MAX:
        ask = next(iter(board.news))
        if line := board.queue.lines.get(ask):
            found += islice(_wrong(board, line, lines), TOLD_MAX - len(found))
        if len(found) < TOLD_MAX:
            del board.news[ask]
    return found


def _wrong(board: Board, line: Line, lines: _Lines) -> Iterator[str]:
    most = _most(line, lines)
    for told, seqs in line.codes.items():
        if told is not most:
            yield from (order for _, order in seqs if _is_news(board, lines, order))


def _most(line: Line, lines: _Lines) -> WaitCode | None:
    """Return the first reason of all of a line, but for those who are behind nobody."""
    return lines.first(line, behind=bool(line.claims))


def _is_news(board: Board, lines: _Lines, order: str) -> bool:
    """Return whether the first reason of an order is another than it was told."""
    waiting = board.queue.orders[order]
    line = board.queue.lines[waiting.ask]
    code = lines.first(line, behind=board.queue.is_behind(order))
    return code not in (None, waiting.code)


def _ahead(board: Board, order: str) -> Ahead | None:
    place = board.places.get(order)
    if place is None or not board.queue.is_behind(order):
        return board.line(order)
    return Ahead(*place, board.queue.because(order))
