"""What each request of the trace must have used, computed apart from the product: first come, first served.

The simulated clouds answer at once, so an order is ready when it gets its cards and gives them back when it ends. Who
waits keeps the types that ends of others would give him from all who came later. The answer is exact where nobody
waits, whatever node is chosen, and where those who wait compete for equal nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from bench.openb_trace import Node, Request

_SECOND_US = 1_000_000


class Expected(NamedTuple):
    """The end of a request."""

    billable_card_us: int
    held_card_us: int
    over: bool


@dataclass(slots=True)
class _Free:
    node: Node
    cards: int
    cpu_milli: int
    memory_mib: int

    def takes(self, request: Request) -> bool:
        return _fits(request, self.node.accelerator, self.cards, self.cpu_milli, self.memory_mib)

    def give(self, request: Request, sign: int) -> None:
        self.cards -= sign * request.cards
        self.cpu_milli -= sign * request.cpu_milli
        self.memory_mib -= sign * request.memory_mib


def _fits(request: Request, accelerator: str, cards: int, cpu_milli: int, memory_mib: int) -> bool:
    wanted = not request.accelerators or accelerator in request.accelerators
    return wanted and cards >= request.cards and cpu_milli >= request.cpu_milli and memory_mib >= request.memory_mib


def _claims(nodes: Sequence[Node], request: Request) -> set[str]:
    return {n.accelerator for n in nodes if _fits(request, n.accelerator, n.cards, n.cpu_milli, n.memory_mib)}


def expected(nodes: Sequence[Node], requests: Sequence[Request]) -> dict[str, Expected]:
    """Return the answers by the name of the request; `requests` in the order of creation."""
    fleet = [_Free(node, node.cards, node.cpu_milli, node.memory_mib) for node in nodes]
    answers = {request.name: Expected(0, 0, True) for request in requests}
    ends: list[tuple[int, str, Request, _Free]] = []
    line: list[Request] = []

    def place(now: int) -> None:
        waiting, claimed = [request for request in line if request.deleted > now], set[str]()
        line.clear()
        for request in waiting:
            seats = [free for free in fleet if free.node.accelerator not in claimed and free.takes(request)]
            if not seats:
                line.append(request)
                claimed |= _claims(nodes, request)
                continue
            seat = min(seats, key=lambda free: (free.cards, free.node.name))
            seat.give(request, +1)
            heappush(ends, (request.deleted, request.name, request, seat))
            used = (request.deleted - now) * _SECOND_US * request.cards
            answers[request.name] = Expected(used, used, True)

    def end_until(now: int) -> None:
        while ends and ends[0][0] <= now:
            at, _, request, seat = heappop(ends)
            seat.give(request, -1)
            place(at)

    for request in requests:
        end_until(request.created)
        line.append(request)
        place(request.created)
    end_until(max((request.deleted for request in requests), default=0))
    return answers
