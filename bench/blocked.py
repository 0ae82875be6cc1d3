"""A long queue before a full fleet: what one change costs that alters the reason of everybody, what a start costs."""

import asyncio
import time
from contextlib import AbstractContextManager, suppress

from bench.figures import Figure
from bench.log import on_a_loop
from bench.scheduler import CARDS, Place, Served, on_servers, on_sqlite, one_card, serving
from qm_events.specs import WaitCode, WaitReason
from qm_scheduler.board import Board
from qm_scheduler.case import Case
from qm_scheduler.inventory import Cordon, Uncordon
from qm_scheduler.reasons import Ahead, explain
from qm_scheduler.view import Shape
from qm_service.model import Act

BLOCKED = 50_000
REASONS_SECONDS, START_SECONDS, WAIT_MS = 1.0, 5.0, 50.0
WAITING, QUEUED, ALLOCATED = "allocation.waiting.v1", "allocation.queued.v1", "allocation.allocated.v1"
NODE = "node-00000"


def blocked(quick: bool) -> list[Figure]:
    """Let orders wait for one full node and cordon it, in SQLite with the embedded log; then start again."""
    return _blocked("SQLite", on_sqlite(), quick)


def blocked_distributed(quick: bool) -> list[Figure]:
    """Let orders wait for one full node and cordon it, on PostgreSQL and Apache Kafka; then start again."""
    return _blocked("PostgreSQL + Kafka", on_servers(), quick)


def _blocked(where: str, place: AbstractContextManager[Place], quick: bool) -> list[Figure]:
    with place as there:
        return on_a_loop(_measured(where, there, BLOCKED // (10 if quick else 1)))


async def _measured(where: str, place: Place, count: int) -> list[Figure]:
    name = f"{count:,} blocked"
    async with serving(place) as served:
        await served.fleet(1)
        await served.fleet(1, "a100", "other")
        began = time.perf_counter()
        await served.admit((f"o{n:06}" for n in range(count + CARDS)), one_card)
        await served.durable(ALLOCATED, CARDS)
        await served.durable(WAITING, count)
        queued = time.perf_counter() - began
        await served.rest()
        answered, told, waited = await _one_change(served, count)
    async with serving(place) as served:
        assert len(served.runtime.context().index.queue.orders) == count
        start = served.ready_seconds
    scale = count / BLOCKED
    return [
        Figure(f"queueing, a reason told to each, {where}", count / queued, "orders/s"),
        Figure(f"{name}: answers after one change, {where}", answered, "s", REASONS_SECONDS * scale, "<="),
        Figure(f"{name}: told after one change, {where}", told, "s", REASONS_SECONDS * scale, "<="),
        Figure(f"{name}: a command waits meanwhile, max, {where}", waited * 1e3, "ms", WAIT_MS, "<="),
        Figure(f"{name}: start to serving, {where}", start, "s", START_SECONDS, "<="),
    ]


async def _one_change(served: Served, count: int) -> tuple[float, float, float]:
    """Cordon the node. Return the seconds until every answer is right, until every fact is durable, and the longest
    that a command of another waited meanwhile."""
    runtime, before, waits = served.runtime, served.told[WAITING], list[float]()
    began = time.perf_counter()
    await runtime.execute(Act(f"node/{NODE}", Cordon("kernel")))
    answers = _answers(runtime.context().index)
    answered = time.perf_counter() - began
    assert len(answers) == count
    assert {reasons[0].code for reasons in answers} == {WaitCode.HEALTHY_CAPACITY_INSUFFICIENT}
    others = asyncio.create_task(_others(served, waits))
    await served.durable(WAITING, before + count)
    told = time.perf_counter() - began
    others.cancel()
    with suppress(asyncio.CancelledError):
        await others
    return answered, told, max(waits, default=0.0)


def _answers(board: Board) -> list[tuple[WaitReason, ...]]:
    """Return what each waiting order would be answered now, with its place among the others."""
    queue, cases, places = board.queue, dict[Shape, Case](), board.queue.places()
    answers = []
    for order, waiting in queue.orders.items():
        shape = waiting.ask.shape
        case = cases[shape] = cases.get(shape) or board.case(shape)
        ahead = Ahead(*places[order], queue.because(order)) if queue.is_behind(order) else None
        answers.append(explain(case, ahead))
    return answers


async def _others(served: Served, waits: list[float]) -> None:
    """Say again and again of a node that nobody waits for that it takes work: it leads to nothing, and has to wait."""
    while True:
        began = time.perf_counter()
        await served.runtime.execute(Act("node/other-00000", Uncordon()))
        waits.append(time.perf_counter() - began)
        await asyncio.sleep(0.001)
