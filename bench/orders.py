"""From the first POST to the moment that every order holds its cards, over HTTP, with 50 clients at once."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bench import worlds
from bench.figures import Figure, latencies
from bench.served import Served, embedded

ORDERS = 3_000
CLIENTS = 50
_LIMIT_SECONDS = 300.0
_BODY = {"project": worlds.PROJECT, "specification": "a100-1", "service_model": "vm"}


def orders_embedded(quick: bool) -> list[Figure]:
    """Measure the product that runs in one process."""
    orders = ORDERS // 10 if quick else ORDERS
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        scenario = worlds.written(worlds.big_fleet(orders), Path(folder))
        with embedded(Path(folder) / "data", scenario) as product:
            return measure("embedded", product, orders, budget=200.0)


def measure(where: str, product: Served, orders: int, budget: float) -> list[Figure]:
    """Place `orders` orders of one card on a fleet that holds them all."""
    token = product.token(worlds.BUYER)
    watcher = {"authorization": f"Bearer {product.token(worlds.OPERATOR)}"}
    command = [sys.executable, "-m", "bench.load", product.url, token, str(orders), str(CLIENTS), json.dumps(_BODY)]
    used, began = product.cpu_seconds(), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        with httpx.Client(base_url=product.url, headers=watcher, timeout=60) as client:
            _until_held(client, orders)
        took, cpu = time.monotonic() - began, product.cpu_seconds() - used
        posts = json.loads(load.communicate()[0])
    return [
        Figure(f"orders placed per second, {where}", orders / took, "orders/s", budget),
        Figure(f"CPU per order until placed, {where}", cpu / orders * 1e3, "ms"),
        *latencies(f"POST with {CLIENTS} clients, {where}", posts, 250.0),
    ]


def _until_held(client: httpx.Client, cards: int) -> None:
    end = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < end:
        types = client.get("/v1/fleet/capacity").raise_for_status().json()["items"]
        if sum(one["held"] for one in types) >= cards:
            return
        time.sleep(0.1)
    raise RuntimeError("the orders were not placed in time")
