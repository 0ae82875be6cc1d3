"""The core of the scheduler alone, without a database: what one decision costs on a large fleet with a long queue."""

import gc
from time import process_time

from bench.figures import Figure, quantile
from qm_events.specs import OrderRequest
from qm_scheduler.consumers import SCHEDULER
from tests.unit.scheduler.yard import Yard, request

CARDS_PER_NODE = 8
PROJECTS = 200
SIZES = (1, 1, 1, 2, 2, 4, 8)
HOURS = (None, 1, 4, 24)
P50_US, P99_US = 50.0, 1_000.0
DECIDERS = {decider.kind: decider for decider in SCHEDULER.deciders}


def decisions(quick: bool) -> list[Figure]:
    """Release cards on a full fleet and decide who is next, up to the objects of the facts, in CPU time."""
    scale = 10 if quick else 1
    found: list[Figure] = []
    means = {}
    for nodes, pending in ((128, 1_000), (12_800 // scale, 1_000), (12_800 // scale, 100_000 // scale)):
        figures, mean = _measure(nodes, pending)
        found += figures
        means[nodes, pending] = mean
    small, wide, deep = means.values()
    found.append(Figure("growth of a decision, 1k to 100k cards", wide / small, "x", 2.0, "<="))
    found.append(Figure("growth of a decision, 1k to 100k pending", deep / wide, "x", 2.0, "<="))
    return found


def _measure(nodes: int, pending: int) -> tuple[list[Figure], float]:
    yard, holding = _full(nodes)
    name = f"{nodes * CARDS_PER_NODE:,} cards, {pending:,} pending"
    for n in range(pending):
        yard.order(f"o{n:06}", _asked(n), at=10_000_000 + n, settle=False)
    gc.collect()
    gc.freeze()
    began = process_time()
    yard.settle()
    told = process_time() - began
    gc.collect()
    gc.freeze()
    costs, applied = list[float](), list[float]()
    for n in range(min(1_000, len(holding) // 4)):
        yard.give_back(holding[n * 7919 % len(holding)], settle=False)
        while True:
            began = process_time()
            acts = SCHEDULER.settle(yard.context())
            for act in acts:
                kind = act.stream.partition("/")[0]
                DECIDERS[kind].decide(yard.states.get(act.stream, DECIDERS[kind].initial), act.command, yard.context())
            decided = process_time()
            for act in acts:
                yard.act(act)
            if not acts:
                break
            costs.append((decided - began) * 1e6)
            applied.append((process_time() - decided) * 1e6)
    gc.unfreeze()
    mean = sum(costs) / len(costs)
    return [
        Figure(f"{name}: reasons for all", told, "s"),
        Figure(f"{name}: a decision, mean", mean, "us"),
        Figure(f"{name}: a decision, p50", quantile(costs, 0.5), "us", P50_US, "<="),
        Figure(f"{name}: a decision, p99", quantile(costs, 0.99), "us", P99_US, "<="),
        Figure(f"{name}: its facts folded and indexed, p50", quantile(applied, 0.5), "us"),
    ], mean


def _full(nodes: int) -> tuple[Yard, list[str]]:
    """Return a fleet with all cards in use, and who uses them."""
    yard = Yard()
    for n in range(nodes):
        yard.node(f"node-{n:05}", {"h100": CARDS_PER_NODE}, rack=f"rack-{n // 16}")
    left, holding = nodes * CARDS_PER_NODE, []
    while left:
        cards = min(SIZES[len(holding) * 31 % len(SIZES)], left)
        order = f"r{len(holding):06}"
        yard.order(order, request(cards=cards, project=f"p{len(holding) % PROJECTS}"), at=len(holding))
        if not yard.placed(order):
            yard.cancel(order)
            break
        holding.append(order)
        left -= cards
    return yard, holding


def _asked(n: int) -> OrderRequest:
    hours = HOURS[n % len(HOURS)]
    return request(
        cards=SIZES[n * 17 % len(SIZES)],
        count=1 + (n % 10 == 0),
        cpu=1_000 * (n % 3),
        project=f"p{n * 37 % PROJECTS}",
        duration_seconds=hours * 3600 if hours else None,
    )
