"""No vote is lost and none counts twice, wherever the product is killed around it."""

import random
import threading
import time
from collections import Counter
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.e2e.stage import Stage
from tests.support import laws
from tests.support.product import Product
from tests.support.product_embedded import Embedded

pytestmark = pytest.mark.crash

NAME, VOTERS, ORDERS, KILLS, NEEDED = "polls", 5, 12, 8, 3
_AWAY = frozenset({502, 503, 504})
LEVELS: list[dict[str, Any]] = [
    {"approvers": {"role": "approver"}, "rule": "n_of_m", "n": NEEDED},
    {"approvers": {"role": "project_owner"}},
]


def ask_all(product: Product, stage: Stage) -> None:
    """Let every order of the tenant ask many approvers, then the owner."""
    for number in range(VOTERS):
        member = {"subject": f"{NAME}-v{number}", "role": "approver"}
        stage.operator.call("POST", f"/projects/{NAME}.lab/members", member)
    policy = {"name": "polls", "levels": LEVELS}
    stage.operator.call("PUT", "/approval-policies", {"policies": [policy]}, query={"tenant": NAME})
    product.settled()


class Voter(threading.Thread):
    """Says yes to every order, and says it again until he is answered. `heard`: what he was told of each approval."""

    def __init__(self, product: Product, name: str, approvals: list[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.heard: dict[str, list[str]] = {approval: [] for approval in approvals}
        headers = {"authorization": f"Bearer {product.token(name)}"}
        self._http = httpx.Client(base_url=f"{product.url}/v1", headers=headers, timeout=5, trust_env=False)

    def run(self) -> None:
        """Vote, in an order of his own."""
        approvals = list(self.heard)
        random.Random(self.name).shuffle(approvals)
        with self._http:
            for approval in approvals:
                self._insist(approval)
                time.sleep(random.Random(approval + self.name).random() * 0.6)

    def _insist(self, approval: str) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                # Without a key: a vote that was written before the kill answers as one that was said before.
                answer = self._http.post(f"/approvals/{approval}/approve", json={"comment": self.name})
            except httpx.TransportError:
                self.heard[approval].append("cut off")
            else:
                if answer.status_code not in _AWAY:
                    self.heard[approval].append("done" if answer.is_success else answer.json()["code"])
                    return
            time.sleep(0.1)


def strike(product: Embedded, voters: list[Voter]) -> None:
    """Kill and start until all have voted."""
    chance = random.Random(7)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.1, 0.6))
        product.product.kill9()
        product.product.start()
    for voter in voters:
        voter.join(90)
        assert not voter.is_alive()


@pytest.mark.timeout(400)
def test_no_vote_is_lost_and_none_counts_twice() -> None:
    with Embedded(manual=False) as product, closing(Stage(product, NAME, nodes=4)) as stage:
        ask_all(product, stage)
        orders = [stage.dev.submit(stage.body())["order"] for _ in range(ORDERS)]
        product.settled()
        with product.client(f"{NAME}-v0") as first:
            approvals = [one["approval"] for one in first.pages("/approvals", assigned_to="me")]
        assert len(approvals) == ORDERS
        voters = [Voter(product, f"{NAME}-v{number}", approvals) for number in range(VOTERS)]
        for voter in voters:
            voter.start()
        strike(product, voters)
        product.settled()
        check(product, stage, voters, orders)


def check(product: Product, stage: Stage, voters: list[Voter], orders: list[str]) -> None:
    """Compare what was answered with what is on the topic and in the records."""
    words: dict[str, list[str]] = {}
    facts, _ = laws.told_once(product.facts())
    kinds: Counter[str] = Counter()
    for fact in facts:
        if fact.type in ("approval.voted", "approval.granted"):
            words.setdefault(fact.data["approval"], []).append(fact.data["approver"])
            kinds[fact.type] += 1
    for approval, said in words.items():
        assert len(said) == len(set(said)) == NEEDED, (approval, said)
    for voter in voters:
        for approval, heard in voter.heard.items():
            told = heard[-1]
            assert told in ("done", "approval-already-voted", "approval-already-decided"), heard
            if told != "approval-already-decided":
                assert voter.name in words[approval], "an answered vote is on the log"
    assert kinds == {"approval.voted": ORDERS * (NEEDED - 1), "approval.granted": ORDERS}
    records = [stage.dev.order(order) for order in orders]
    assert [[it["status"] for it in record["approvals"]] for record in records] == [["granted", "pending"]] * ORDERS
    assert all(len(record["approvals"][0]["votes"]) == NEEDED for record in records)
    product.run("admission", "verify")
