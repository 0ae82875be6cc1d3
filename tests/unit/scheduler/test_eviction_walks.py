"""Random walks of reclaim and preemption: nobody leaves in vain, nobody in a circle, no card twice, no loop.

`EVICTION_WALKS` sets how many are walked (default 150; 10,000 take some minutes).
"""

import os
from collections import Counter
from datetime import timedelta
from itertools import chain
from random import Random
from typing import Any

import pytest

from qm_events.scheduler import AllocationPreempted, AllocationPromised
from qm_scheduler.consumers import SCHEDULER
from qm_scheduler.domain import Promise
from qm_scheduler.pool import Sight
from tests.unit.scheduler.yard import Yard, request

WALKS = int(os.environ.get("EVICTION_WALKS", "150"))
BLOCK = 50
STEPS = 14
PROJECTS = ("vision", "speech", "maps")


def begin(random: Random) -> Yard:
    made = Yard()
    for n in range(random.randint(1, 4)):
        cards = {"h100": random.randint(1, 4)}
        if random.random() < 0.2:
            cards["a100"] = 2
        rack = random.choice([None, "x", "y"])
        made.node(f"n{n}", cards, cpu=random.choice([4, 8, 96]), rack=rack)
    for n in range(random.randint(2, 6)):
        asked = request(cards=random.randint(1, 2), preemptible=random.random() < 0.7, project=random.choice(PROJECTS))
        made.order(f"first{n}", asked, borrowed=random.choice([0, 0, 2]))
    made.now += timedelta(minutes=20)
    made.settle()
    return made


def ordered(made: Yard, random: Random, name: str) -> None:
    cards, count = random.choice([1, 1, 2, 2, 3, 4]), random.choice([1, 1, 1, 2])
    lending = random.choice(["", "", "borrowed", "reclaims"])
    asked = request(
        random.choice([("h100",), ("h100",), ("a100", "h100")]),
        cards,
        count,
        random.choice([0, 0, 2]),
        priority=random.choice([0, 0, 1, 5]),
        preemptible=random.random() < 0.5,
        project=random.choice(PROJECTS),
        within=random.choice([None, None, None, "rack", "node"]),
        duration_seconds=random.choice([None, None, 600, 7_200]),
    )
    claim: dict[str, int] = {lending: random.randint(1, asked.cards)} if lending else {}
    made.order(name, asked, **claim)


def stepped(made: Yard, random: Random, number: int) -> None:
    holding = sorted(key for key, doc in made.docs.all["allocations"].items() if doc.is_holding)
    leaving = [key for key in holding if made.doc(key).releasing]
    match random.choices(["order", "time", "clean", "end", "ready", "cancel"], [5, 3, 4, 1, 1, 1])[0]:
        case "order":
            ordered(made, random, f"o{number}")
        case "time":
            made.now += timedelta(minutes=random.choice([1, 11, 45, 600]))
            made.settle()
        case "clean" if leaving:
            made.give_back(random.choice(leaving))
        case "end" if holding:
            made.give_back(random.choice(holding))
        case "ready" if holding:
            made.ready(random.choice(holding))
        case "cancel" if made.board.queue.orders:
            made.cancel(random.choice(sorted(made.board.queue.orders)))


def check(made: Yard) -> None:
    while (due := made.board.due) is not None and due <= made.now + timedelta(minutes=1):
        made.now = due
        made.settle()
    docs, nodes = made.docs.all["allocations"].values(), made.docs.all["nodes"].values()
    held = Counter(card for doc in docs if doc.is_holding for unit in doc.units for card in unit.cards)
    assert held == Counter(card.card for node in nodes for card in node.cards.values() if card.allocation)
    assert not held or max(held.values()) == 1
    for order in made.board.queue.orders:
        codes = made.codes(order)
        assert codes, f"{order} waits for no reason"
        assert made.doc(order).reasons[0].code is codes[0]
    for nodes_first in (True, False):
        fresh = made.fresh_board(nodes_first=nodes_first)
        # It may better a promise that stands, and does nothing else.
        assert all(is_no_eviction(made, act.command) for act in SCHEDULER.settle(made.context(fresh)))
        assert fresh.pool.holds == made.board.pool.holds
        assert fresh.loose.candidates == made.board.loose.candidates
        assert all(fresh.pool.views[sight].rooms == made.board.pool.views[sight].rooms for sight in Sight)
        for who, view in made.board.loose.views.items():
            assert fresh.loose.view(who).rooms == view.rooms


def is_no_eviction(made: Yard, command: Any) -> bool:
    known = made.doc(command.order).promise
    return isinstance(command, Promise) and known is not None and command.victims == known.victims


def rank(made: Yard, order: str) -> tuple[bool, int]:
    """In quota, then by priority: what must fall from the one who stays to the one who leaves."""
    doc = made.doc(order)
    return doc.borrowed is None, doc.asked.priority


def check_evictions(made: Yard, before: int) -> list[tuple[str, tuple[str, ...]]]:
    """Return who got a place by evictions in the step, with the victims; each was told so in the same step."""
    facts = [event.data for event in made.facts[before:]]
    told = {fact.allocation: fact for fact in facts if isinstance(fact, AllocationPreempted)}
    plans = [fact for fact in facts if isinstance(fact, AllocationPromised) and fact.victims]
    fresh = [fact for fact in plans if any(victim in told for victim in fact.victims or ())]
    assert sorted(chain.from_iterable(fact.victims or () for fact in fresh)) == sorted(told)
    for fact in fresh:
        assert fact.places
        for victim in fact.victims or ():
            assert rank(made, told[victim].order) < rank(made, fact.order)
            assert made.doc(told[victim].order).tenant not in told[victim].why
    return [(fact.order, fact.victims or ()) for fact in fresh]


def check_served(made: Yard, random: Random, plans: list[tuple[str, tuple[str, ...]]]) -> None:
    """Whom nobody outranks has its place when the last of its victims is gone, in whichever order they go."""
    for order, victims in plans:
        doc = made.doc(order)
        others = [made.doc(each) for each in made.board.queue.orders if each != order]
        if not doc.is_waiting or any(each.asked.priority > doc.asked.priority for each in others):
            continue
        # What others give back counts for the place, too.
        leaving = [key for key, each in made.docs.all["allocations"].items() if each.is_holding and each.releasing]
        assert {made.doc(key).allocation for key in leaving} >= set(victims)
        for key in random.sample(sorted(leaving), len(leaving)):
            assert made.doc(order).is_waiting or made.doc(order).is_holding
            made.give_back(key)
            check(made)
        assert made.doc(order).is_holding, f"{order} did not get the place that others left for it"


def walk(seed: int) -> int:
    random = Random(seed)
    made, evictions = begin(random), 0
    for number in range(STEPS):
        before = len(made.facts)
        stepped(made, random, number)
        check(made)
        plans = check_evictions(made, before)
        evictions += sum(len(victims) for _, victims in plans)
        if random.random() < 0.5:
            check_served(made, random, plans)
    for doc in made.docs.all["allocations"].values():
        times = doc.evicted
        assert all(b - a >= timedelta(days=1) for a, b in zip(times, times[2:], strict=False))
    return evictions


@pytest.mark.parametrize("block", range(0, WALKS, BLOCK))
def test_nobody_leaves_in_vain_or_in_a_circle(block: int) -> None:
    evictions = sum(walk(seed) for seed in range(block, min(block + BLOCK, WALKS)))
    assert evictions > BLOCK // 10, "the walks have to evict somebody"


def test_a_walk_is_the_same_each_time() -> None:
    def told(seed: int) -> list[Any]:
        random, made = Random(seed), Yard()
        made = begin(random)
        for number in range(STEPS):
            stepped(made, random, number)
        return [event.data for event in made.facts]

    assert told(7) == told(7)
