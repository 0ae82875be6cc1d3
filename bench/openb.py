"""Real requests on a real fleet: `python -m bench.openb FOLDER [--product embedded|distributed] [--limit N]`.

FOLDER holds the node list and the pod list of the openb trace (alibaba/clusterdata, cluster-trace-gpu-v2023). Its
whole-card requests are ordered over HTTP at the instants of their creation, on a manual clock, and end at those of
their deletion. In the end every order must be over or wait for a reason that it says, and what each has used must
equal the oracle's answer to the microsecond.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bench.figures import Figure, latencies, table
from bench.openb_oracle import Expected, expected
from bench.openb_trace import PROJECT, Request, read_nodes, read_requests, scenario, specification
from qm_client.sdk import ENDED, Client
from tests.support.product import OPERATOR, Product
from tests.support.product_distributed import Distributed
from tests.support.product_embedded import Embedded

PRODUCTS: dict[str, Callable[[], Product]] = {"embedded": Embedded, "distributed": Distributed}
BUYER = "buyer"
_TIMEOUT_SECONDS = 120.0


def main() -> None:
    """Run the trace, print what it took and write it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.openb", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--product", choices=PRODUCTS, default="embedded")
    parser.add_argument("--limit", type=int, help="the first N requests only")
    parser.add_argument("--out", type=Path, help="default: var/openb-<product>.json")
    asked = parser.parse_args()
    with PRODUCTS[asked.product]() as product:
        report = run(product, asked.folder, asked.limit)
    out = asked.out or Path(f"var/openb-{asked.product}.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=2))
    print(table(Figure(**{k: v for k, v in one.items() if k != "verdict"}) for one in report["figures"]))
    print(f"  {report['orders']} orders, {report['waiting']} wait, all usage equals the oracle's; written to {out}")


def run(product: Product, folder: Path, limit: int | None = None) -> dict[str, Any]:
    """Play the trace on a started product, check the outcome and return the figures. Raises AssertionError."""
    nodes, requests = read_nodes(folder), read_requests(folder)[:limit]
    began = time.perf_counter()
    product.load(scenario(nodes, requests))
    loaded = time.perf_counter() - began
    with product.client(OPERATOR, _TIMEOUT_SECONDS) as operator, product.client(BUYER, _TIMEOUT_SECONDS) as buyer:
        settles = list(_play(product, operator, buyer, requests))
        waiting = _check(buyer, requests, expected(nodes, requests))
    took = time.perf_counter() - began - loaded
    figures = [
        Figure(f"{product.kind}: loading {len(nodes)} nodes", loaded, "s"),
        Figure(f"{product.kind}: whole trace", took, "s"),
        Figure(f"{product.kind}: orders per second", len(requests) / took, "orders/s"),
        Figure(f"{product.kind}: mean settle", sum(settles) / len(settles) * 1e3, "ms"),
        *latencies(f"{product.kind}: settle", settles),
    ]
    return {
        "product": product.kind,
        "orders": len(requests),
        "waiting": waiting,
        "instants": len(settles),
        "figures": [figure.as_json() for figure in figures],
    }


def _play(product: Product, operator: Client, buyer: Client, requests: Sequence[Request]) -> Iterator[float]:
    """Yield the seconds that each instant took, from the move of the clock until all is at rest."""
    start = product.now()
    created: dict[int, list[Request]] = {}
    for request in requests:
        created.setdefault(request.created, []).append(request)
    instants = sorted({second for request in requests for second in (request.created, request.deleted)})
    for second in (*instants, instants[-1] + 60):
        began = time.perf_counter()
        _move(product, operator, start + timedelta(seconds=second))
        for request in created.get(second, ()):
            buyer.call("POST", "/orders", _order(request, start))
        if second in created:
            _move(product, operator, start + timedelta(seconds=second))
        yield time.perf_counter() - began


def _move(product: Product, operator: Client, at: datetime) -> None:
    if product.kind == "embedded":
        operator.call("POST", "/sim/clock", {"now": at.isoformat()})
    else:
        product.advance(at - product.now())


def _order(request: Request, start: datetime) -> dict[str, Any]:
    return {
        "project": PROJECT,
        "specification": specification(request),
        "service_model": "kubernetes",
        "expires_at": (start + timedelta(seconds=request.deleted)).isoformat(),
        "labels": {"request": request.name},
    }


def _check(buyer: Client, requests: Sequence[Request], answers: dict[str, Expected]) -> int:
    """Compare every record with the oracle; return how many orders wait."""
    records = {record["labels"]["request"]: record for record in buyer.pages("/orders", limit=500)}
    assert records.keys() == {request.name for request in requests}, "an accepted order is missing"
    wrong = {name: (records[name], answer) for name, answer in answers.items() if not _agrees(records[name], answer)}
    assert not wrong, f"{len(wrong)} orders differ from the oracle, first: {next(iter(wrong.items()))}"
    return sum(record["phase"] not in ENDED for record in records.values())


def _agrees(record: dict[str, Any], answer: Expected) -> bool:
    over = record["phase"] in ENDED if answer.over else bool(record["reason"])
    usage = record["usage"]
    used = (usage["billable"]["card_us"], usage["held"]["card_us"])
    return over and used == (answer.billable_card_us, answer.held_card_us)


if __name__ == "__main__":
    main()
