"""What the distributed product does while a part of it is away: the broker, the database, the writer of a service."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from qm_client.sdk import Client
from tests.e2e.conftest import SetUp
from tests.e2e.stage import Stage
from tests.support import laws
from tests.support.parts import Program
from tests.support.product import Product
from tests.support.product_distributed import Distributed
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.parametrize("product", ["distributed"], indirect=True)

ORDERS = 60
CLIENTS = 4
PROMPT_SECONDS = 45.0
TOLD_SECONDS = 10.0
"""How soon a caller has to be told that the database is away."""
P99_SECONDS = 0.25
"""The budget of an order's acceptance, whatever else is down."""


def submitted(play: Stage, count: int = ORDERS) -> tuple[list[str], float]:
    """Place orders from several clients; return them in order and the 99th percentile of the seconds to acceptance."""

    def submit(number: int) -> tuple[str, float]:
        started = time.perf_counter()
        order = play.dev.submit(play.body("maas", 8, labels={"n": str(number)}))["order"]
        return order, time.perf_counter() - started

    with ThreadPoolExecutor(CLIENTS) as pool:
        done = list(pool.map(submit, range(count)))
    return [order for order, _ in done], sorted(seconds for _, seconds in done)[count * 99 // 100 - 1]


def lawful(product: Product) -> None:
    """Check all laws that hold at any time."""
    assert laws.always(product.facts()) == []


def test_without_the_broker_orders_are_accepted_as_fast_and_follow_when_it_is_back(
    product: Distributed, stage: SetUp
) -> None:
    play = stage("broker")
    before, usual = submitted(play)
    product.settled()
    product.kafka.kill9()
    during, slow = submitted(play)
    assert slow <= max(2 * usual, P99_SECONDS)
    assert [play.dev.order(order)["phase"] for order in during] == ["submitted"] * ORDERS
    product.kafka.restart()
    product.settled()
    lawful(product)
    phases = dict(zip([*before, *during], play.phases(*before, *during), strict=True))
    assert Counter(phases.values()) == {"active": 1, "queued": 2 * ORDERS - 1}
    queue = [item["order"] for item in play.operator.pages("/queue", limit=500) if item["tenant"] == "broker"]
    # Time stands, so the ids, which are made in order, tell who came first.
    assert queue == sorted(order for order, phase in phases.items() if phase == "queued")
    play.end(*before, *during, how="cancel")
    lawful(product)


def test_without_the_database_callers_are_told_to_come_again_and_nothing_is_half_done(
    product: Distributed, stage: SetUp
) -> None:
    play = stage("database")
    first = play.order("vm", 4)
    headers = {"authorization": f"Bearer {product.token('database-dev')}", "idempotency-key": "k"}
    product.postgres.kill9()
    with httpx.Client(base_url=f"{product.url}/v1", headers=headers, timeout=30, trust_env=False) as client:
        for ask in (
            lambda: client.post("/orders", json=play.body("vm")),
            lambda: client.post(f"/orders/{first}/release", json={}),
            lambda: client.get(f"/usage/orders/{first}"),
            lambda: client.get("/quotas/database"),
            lambda: client.get(f"/environments/{first}"),
        ):
            told_to_come_again(ask)
        product.postgres.restart()
        wait_until(lambda: client.post("/orders", json=play.body("vm")).status_code == 202, PROMPT_SECONDS)
        second = client.post("/orders", json=play.body("vm")).json()["order"]
    product.settled()
    assert [item["order"] for item in play.dev.pages("/orders")] == [second, first]
    lawful(product)
    play.end(first, second)
    assert play.phases(first, second) == ["closed"] * 2


def told_to_come_again(ask: Callable[[], httpx.Response]) -> None:
    """Check that an answer is the problem `service-unavailable`, in time."""
    started = time.monotonic()
    answer = ask()
    assert answer.status_code == 503, answer.text
    assert answer.json()["code"] == "service-unavailable"
    assert int(answer.headers["retry-after"]) >= 1
    assert time.monotonic() - started < TOLD_SECONDS


@contextmanager
def asleep(process: Server) -> Iterator[None]:
    """Stop a process for the time of the block."""
    process.pause()
    try:
        yield
    finally:
        process.resume()


@contextmanager
def stand_by(product: Distributed, service: str) -> Iterator[Program]:
    """Run a second process of a service."""
    second = product.process(service, f"{service}-2")
    with second:
        wait_until(lambda: answered(second) == (503, False), PROMPT_SECONDS)
        yield second


def answered(process: Program) -> tuple[int, bool]:
    """Return the status of /readyz and whether the process is the writer."""
    answer = httpx.get(f"{process.url}/readyz", timeout=5.0, trust_env=False)
    return answer.status_code, any(one["leader"] for one in answer.json()["services"].values())


def test_a_writer_that_was_asleep_finds_another_in_its_place_and_what_it_was_about_to_say_is_void(
    product: Distributed, stage: SetUp
) -> None:
    play, first = stage("zombie"), product.parts["catalog"]
    assert isinstance(first, Program)
    with stand_by(product, "catalog") as second, ThreadPoolExecutor(1) as pool, direct(product, second) as dev:
        with asleep(first):
            late = pool.submit(post, product, first, play.body("vm", labels={"who": "zombie"}))
            wait_until(lambda: answered(second) == (200, True), PROMPT_SECONDS)
            order = dev.submit(play.body("vm", labels={"who": "heir"}))["order"]
        assert late.result().status_code == 503
        wait_until(lambda: answered(first) == (503, False), PROMPT_SECONDS)
        wait_until(lambda: dev.order(order)["phase"] == "active", PROMPT_SECONDS)
        assert [item["labels"]["who"] for item in dev.pages("/orders")] == ["heir"]
    # The one that slept takes over again when the other has gone.
    wait_until(lambda: answered(first) == (200, True), PROMPT_SECONDS)
    product.settled()
    lawful(product)
    play.end(order)
    assert play.phases(order) == ["closed"]


@pytest.mark.parametrize("service", ["admission", "scheduler", "provisioner", "metering"])
def test_a_service_is_taken_over_in_the_middle_of_its_work(product: Distributed, stage: SetUp, service: str) -> None:
    play, first = stage(f"heir-{service}", nodes=4), product.parts[service]
    with stand_by(product, service) as second:
        orders = [play.dev.submit(play.body(model))["order"] for model in ("vm", "maas", "kubernetes") * 5]
        with asleep(first):
            wait_until(lambda: answered(second)[1], PROMPT_SECONDS)
            more = [play.dev.submit(play.body("vm", 4))["order"] for _ in range(3)]
            wait_until(lambda: phases(play, more) == {"active"}, PROMPT_SECONDS)
        wait_until(lambda: phases(play, [*orders, *more]) == {"active"}, PROMPT_SECONDS)
    product.settled()
    lawful(product)
    play.end(*orders, *more)
    assert phases(play, [*orders, *more]) == {"closed"}
    assert (play.free(), play.quota()) == ((32, 0), {})


def phases(play: Stage, orders: list[str]) -> set[str]:
    """Return which phases the orders are in."""
    return set(play.phases(*orders))


def direct(product: Distributed, process: Program) -> Client:
    """Return a client of one process, around the origin."""
    return Client(process.url, product.token("zombie-dev"), timeout=30)


def post(product: Distributed, process: Program, body: Any) -> httpx.Response:
    """Place an order with one process, around the origin."""
    headers = {"authorization": f"Bearer {product.token('zombie-dev')}"}
    return httpx.post(f"{process.url}/v1/orders", json=body, headers=headers, timeout=60, trust_env=False)
