"""Random small states, drawn from a seed, each judged by brute force: `python -m tests.unit.scheduler.states`.

The same walks as those that hypothesis draws in `test_oracle`, without its search for the smallest one: so ten thousand
states take minutes. Exit by an AssertionError that is noted with seed, walk and step.
"""

import argparse
import random
from datetime import timedelta
from typing import Any

from qm_events.scheduler import CardSpec
from tests.unit.scheduler.test_oracle import NODES, carry_out, check, describe
from tests.unit.scheduler.yard import MIB, START, Yard, request

STEPS = 12
"""States of one walk."""


def walks(count: int, seed: int) -> int:
    """Walk until so many states were judged; return how many. Raises AssertionError for the first that is wrong."""
    judged = number = 0
    while judged < count:
        judged += walk(random.Random(f"{seed}/{number}"), f"seed {seed}, walk {number}")
        number += 1
    return judged


def walk(chance: random.Random, name: str) -> int:
    """Take one walk and judge each state on it."""
    yard, taken = Yard(), list[Any]()
    for node in NODES:
        describe(yard, _node(chance, node))
    for number in range(STEPS):
        taken.append(_step(chance))
        try:
            carry_out(yard, number, taken[-1])
            check(yard)
        except AssertionError as error:
            error.add_note(f"{name}, step {number}: {taken}")
            raise
    return STEPS


def _node(chance: random.Random, node: str) -> dict[str, Any]:
    kinds = chance.choice([("h100",), ("h100",), ("a100",), ("h100", "a100")])
    cards = [
        CardSpec(
            card=f"{node}-{n}",
            accelerator=chance.choice(kinds),
            memory_mib=chance.choice([80 * MIB, 80 * MIB, 40 * MIB]),
        )
        for n in range(chance.randint(2, 4))
    ]
    place = {level: chance.choice([None, "x", "y"]) for level in ("rack", "domain")}
    return {
        "node": node,
        "cards": cards,
        "cpu": chance.randint(4, 12),
        "traits": chance.choice([None, ("ib",), ("nvme", "ib")]),
        **place,
    }


def _order(chance: random.Random) -> Any:
    return request(
        chance.choice([("h100",), ("a100",), ("h100", "a100"), ("a100", "h100")]),
        chance.choice([1, 1, 2, 2, 3]),
        chance.choice([1, 1, 1, 2, 3]),
        chance.choice([0, 0, 2, 5]),
        priority=chance.randint(0, 1),
        within=chance.choice([None, None, None, "node", "rack", "domain"]),
        required=chance.choice([True, False]),
        card_memory=chance.choice([40 * MIB, 40 * MIB, 80 * MIB]),
        traits=chance.choice([(), (), (), ("ib",), ("ib", "nvme")]),
        project=chance.choice(["vision", "speech", "maps"]),
        duration_seconds=chance.choice([None, None, 600, 7_200, 86_400]),
        expires_at=chance.choice([None, None, None, START + timedelta(hours=1), START + timedelta(days=1)]),
    )


def _step(chance: random.Random) -> tuple[Any, ...]:
    node = chance.choice(NODES)
    match chance.randrange(7):
        case 0 | 1 | 2:
            return ("order", _order(chance))
        case 3:
            kinds = ["cancel", "back", "back", "suspect", "dirty", "cleaning", "ready", "ready"]
            return (chance.choice(kinds), chance.randrange(10))
        case 4:
            return ("health", node, chance.randrange(4), chance.choice(["healthy", "suspect", "failed", "unknown"]))
        case 5:
            return (chance.choice(["cordon", "uncordon", "clear", "retire"]), node)
        case _:
            return ("describe", _node(chance, node))


def main() -> None:
    """Judge the states and say how many agreed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(f"{walks(asked.count, asked.seed)} states agree, seed {asked.seed}")


if __name__ == "__main__":
    main()
