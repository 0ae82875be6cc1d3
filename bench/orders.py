"""From the first POST to the moment that every order holds its cards, over HTTP, with 50 clients at once.

Twice: with clouds that take ten minutes for a first step, as real ones do, so that what is measured is the way from
order to scheduled; and with clouds that answer at once, so that the same process builds, proves and records meanwhile.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from bench import worlds
from bench.figures import Figure, latencies
from bench.log import on_a_loop
from bench.served import embedded
from qm_catalog.consumers import CATALOG
from qm_client.embedded.scenario import Scenario
from qm_service.database import Database
from qm_service.log_sqlite import SqliteLog
from qm_service.replay import replay
from tests.support.product_distributed import Distributed

ORDERS = 3_000
CLIENTS = 50
REBUILT = 500
_READ = ("directory", "orders", "admissions", "allocations", "environments", "usage")
"""The topics that the catalog is made of."""
_BUILDING_SECONDS = 600
_LIMIT_SECONDS = 600.0
_BODY = {"project": worlds.PROJECT, "specification": "a100-1", "service_model": "vm"}


def orders_embedded(quick: bool) -> list[Figure]:
    """Measure the product that runs in one process, with slow clouds and with clouds that answer at once."""
    orders = ORDERS // 10 if quick else ORDERS
    return [*_embedded("embedded", orders, _BUILDING_SECONDS, 200.0), *_embedded("embedded, building", orders, 0, None)]


def _embedded(where: str, orders: int, building_seconds: int, budget: float | None) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        scenario = worlds.written(worlds.big_fleet(orders, building_seconds), Path(folder))
        with embedded(Path(folder) / "data", scenario) as product:
            used = product.cpu_seconds()
            figures = _measure(where, product.url, product.token, orders, budget)
            cpu = (product.cpu_seconds() - used) / orders * 1e3
    return [*figures, Figure(f"CPU per order until placed, {where}", cpu, "ms")]


def orders_distributed(quick: bool) -> list[Figure]:
    """Measure five processes on Apache Kafka and PostgreSQL."""
    orders = ORDERS // 10 if quick else ORDERS
    with Distributed(manual=False) as product:
        product.load(Scenario.model_validate(worlds.big_fleet(orders, _BUILDING_SECONDS)))
        product.settled()
        return _measure("Kafka + PostgreSQL", product.url, product.token, orders, 150.0)


def _measure(where: str, url: str, token: Callable[[str], str], orders: int, budget: float | None) -> list[Figure]:
    """Place `orders` orders of one card on a fleet that holds them all."""
    command = [sys.executable, "-m", "bench.load", url, token(worlds.BUYER), str(orders), str(CLIENTS)]
    watcher = {"authorization": f"Bearer {token(worlds.OPERATOR)}"}
    began = time.monotonic()
    with subprocess.Popen([*command, json.dumps(_BODY)], stdout=subprocess.PIPE, text=True) as load:
        with httpx.Client(base_url=url, headers=watcher, timeout=60) as client:
            _until_held(client, orders)
        took = time.monotonic() - began
        posts = json.loads(load.communicate()[0])
    return [
        Figure(f"orders placed, {where}", orders / took, "orders/s", budget),
        *latencies(f"POST, {CLIENTS} clients, {where}", posts, budget and 250.0),
    ]


def _until_held(client: httpx.Client, cards: int) -> None:
    end = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < end:
        types = client.get("/v1/fleet/capacity").raise_for_status().json()["items"]
        if sum(one["held"] for one in types) >= cards:
            return
        time.sleep(0.25)
    raise RuntimeError("the orders were not placed in time")


def rebuild(quick: bool) -> list[Figure]:
    """Rebuild the catalog's database from the topics of orders that were built to the end."""
    orders = REBUILT // 10 if quick else REBUILT
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        data = Path(folder) / "data"
        with embedded(data, worlds.written(worlds.big_fleet(orders), Path(folder))) as product:
            _measure("", product.url, product.token, orders, None)
        return on_a_loop(_rebuild(data, Path(folder) / "fresh.sqlite"))


async def _rebuild(data: Path, fresh: Path) -> list[Figure]:
    log, database = SqliteLog(data / "log.sqlite"), Database(f"sqlite+aiosqlite:///{fresh}")
    try:
        count = sum((await log.ends(_READ)).values())
        began = time.monotonic()
        await replay(CATALOG, database, log)
        took = time.monotonic() - began
    finally:
        await log.close()
        await database.close()
    return [
        Figure(f"rebuild of the catalog from {count} facts", took, "s"),
        Figure("rebuild of the catalog", count / took, "events/s"),
    ]
