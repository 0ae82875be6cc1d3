"""The choice of victims against brute force: every set of those whom the laws leave, the cheapest for which there is
a place."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import combinations
from random import Random

import pytest

from qm_events.scheduler import AllocationPreempted
from qm_scheduler.laws import Laws
from qm_scheduler.loose import Candidate
from qm_scheduler.projections import OrderDoc
from tests.unit.scheduler import oracle
from tests.unit.scheduler.yard import Yard, request


def full(random: Random) -> Yard:
    """Return a small fleet with no more than ten preemptible orders on it, and some that are not."""
    made = Yard()
    for n in range(random.randint(1, 3)):
        made.node(f"n{n}", {"h100": random.randint(2, 4)}, cpu=random.choice([3, 96]), rack=random.choice(["x", "y"]))
    for n in range(10):
        asked = request(
            cards=random.choice([1, 1, 2, 3]),
            count=random.choice([1, 1, 2]),
            cpu=random.choice([0, 0, 1]),
            preemptible=random.random() < 0.8,
        )
        made.order(f"o{n}", asked)
        made.now += timedelta(minutes=random.randint(1, 90))
        if not made.placed(f"o{n}"):
            made.cancel(f"o{n}")
    made.now += timedelta(hours=1)
    made.settle()
    return made


def least_cost(made: Yard, high: OrderDoc, candidates: Sequence[Candidate]) -> int | None:
    """Return the least cost, or None where nobody can make room."""
    costs = [cost(made, some) for some in subsets(candidates) if makes_room(made, high, some)]
    return min(costs, default=None)


def subsets(candidates: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    for size in range(1, len(candidates) + 1):
        yield from combinations(candidates, size)


def cost(made: Yard, some: Sequence[Candidate]) -> int:
    laws = Laws()
    return sum(laws.cost(each.size, made.now - each.since, each.model, 0) for each in some)


def makes_room(made: Yard, high: OrderDoc, some: Sequence[Candidate]) -> bool:
    gone = frozenset(each.allocation for each in some)
    nodes = list(made.docs.all["nodes"].values())
    return oracle.fits(oracle.fleet(nodes, repaired=True, ended=False, cleaning=gone), high.asked)


@pytest.mark.parametrize("block", range(6))
def test_the_victims_are_those_that_cost_least(block: int) -> None:
    chosen = 0
    for seed in range(block * 25, block * 25 + 25):
        random = Random(seed)
        made = full(random)
        candidates = dict(made.board.loose.candidates)
        asked = request(
            cards=random.choice([1, 2, 3, 4]),
            count=random.choice([1, 1, 2]),
            cpu=random.choice([0, 0, 2]),
            priority=5,
            within=random.choice([None, None, "rack"]),
        )
        made.order("high", asked)
        told = [event.data.allocation for event in made.facts if isinstance(event.data, AllocationPreempted)]
        if made.placed("high"):
            assert told == []
            continue
        least = least_cost(made, made.doc("high"), list(candidates.values()))
        if least is None:
            assert told == [], seed
        else:
            chosen += 1
            assert cost(made, [candidates[each] for each in told]) == least, seed
    assert chosen > 3
