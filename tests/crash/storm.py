"""Strikes at the running product, at times and places drawn from a seed: killed, stopped for a while, killed while
it starts. Then all is brought back, comes to rest, and is judged."""

import random
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from qm_client.sdk import ENDED, Client
from tests.crash.agent import Agent, heal
from tests.crash.crowd import LABEL, Crowd
from tests.crash.verdict import faults
from tests.e2e.stage import Stage
from tests.support.product import Product
from tests.support.servers import Server, wait_until

REST_SECONDS = 120.0
MISBEHAVIOUR: Mapping[str, Mapping[str, Any]] = {
    "bare_metal": {"image": {"delay_seconds": 0.5}, "undo:image": {"delay_seconds": 0.3}},
    "vm": {
        "volume": {"answer_twice": True},
        "server": {"delay_seconds": 0.3, "lose_answers": 1},
        "undo:port": {"fail_times": 1},
    },
    "kubernetes": {"namespace": {"lose_answers": 1}, "quota": {"fail_times": 1}},
    "maas": {"serving": {"delay_seconds": 0.2}, "undo:route": {"lose_answers": 1}},
}
"""What the simulated clouds do to every order, so that there is something to be in the middle of."""
WEIGHTS = {"postgres": 2.0, "kafka": 1.5, "origin": 0.0}
"""How often a part is struck, beside 1 for each of ours."""
NODES, LIMITS = 2, {"cards": 14, "concurrent_orders": 12}


@dataclass
class Report:
    """What a storm was, and what it broke."""

    product: str
    seed: int
    strikes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(count for name, count in self.strikes.items() if name.startswith("kill"))


class Storm:
    """Strikes at a product, as a seed draws them."""

    def __init__(self, product: Product, seed: int) -> None:
        self._product = product
        self._seed = seed
        self._chance = random.Random(seed)
        self._accepted: dict[str, str] = {}
        self._rounds = 0
        self._stage = Stage(product, "storm", nodes=NODES, limits=LIMITS, priority_at_most=2, slices=True)
        for model, steps in MISBEHAVIOUR.items():
            self._stage.operator.call("PUT", f"/sim/backends/{model}", {"steps": steps})

    def close(self) -> None:
        """Let go of the connections."""
        self._stage.close()

    def blow(self, kills: int) -> Report:
        """Strike until so many processes were killed, bring all back, and judge; may be called again."""
        report, started = Report(self._product.kind, self._seed), time.monotonic()
        self._rounds += 1
        crowd = Crowd(self._product, self._stage, f"{self._seed}-{self._rounds}")
        agent = Agent(self._product, f"agent-{self._seed}-{self._rounds}")
        agent.start()
        crowd.start()
        try:
            while report.kills < kills:
                time.sleep(self._chance.uniform(0.1, 1.5))
                report.strikes.update(self._strike())
        finally:
            crowd.stop()
            agent.stop()
        self._accepted |= crowd.accepted
        self._judge(report)
        report.faults += crowd.surprises
        seconds = round(time.monotonic() - started)
        report.figures |= {"seconds": seconds, "calls": dict(sorted(crowd.calls.items())), "health": agent.told}
        return report

    def _strike(self) -> list[str]:
        names = list(self._product.parts)
        (name,) = self._chance.choices(names, [WEIGHTS.get(name, 1.0) for name in names])
        (how,) = self._chance.choices([_kill, _pause, _kill_at_start], [6, 3, 2])
        return [f"{verb} {name}" for verb in how(self._product.parts[name], self._chance)]

    def _judge(self, report: Report) -> None:
        """End every order, let all come to rest, and look."""
        self._product.settled(REST_SECONDS)
        with self._product.client(f"{self._stage.name}-boss") as boss:
            for order in self._open(boss):
                boss.call("POST", f"/orders/{order}/release", {})
            # A runner that waits to try again is at rest until then: on wall time rest alone says too little.
            with suppress(RuntimeError):
                wait_until(lambda: not self._open(boss), REST_SECONDS)
        self._product.settled(REST_SECONDS)
        heal(self._stage.operator)
        self._product.settled(REST_SECONDS)
        report.faults, figures = faults(self._product, self._accepted, LABEL, cards=NODES * 8)
        report.figures |= {"accepted": len(self._accepted), **figures}

    def _open(self, boss: Client) -> list[str]:
        return [record["order"] for record in boss.pages("/orders", limit=500) if record["phase"] not in ENDED]


def _kill(part: Server, chance: random.Random) -> list[str]:
    part.kill9()
    time.sleep(chance.choice([0.0, chance.random()]))
    part.start()
    return ["kill"]


def _pause(part: Server, chance: random.Random) -> list[str]:
    """Stop it for a while, at times for longer than its lease."""
    part.pause()
    time.sleep(chance.choice([0.05, 0.5, 2.5]) * chance.uniform(0.5, 1.5))
    part.resume()
    return ["pause"]


def _kill_at_start(part: Server, chance: random.Random) -> list[str]:
    """Kill it, and again while it starts."""
    part.kill9()
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(part.start)
        time.sleep(chance.uniform(0.1, 3.0))
        part.kill9()
        with suppress(RuntimeError, AttributeError):  # it was not there yet, or is no more
            starting.result()
    part.restart()
    return ["kill", "kill starting"]
