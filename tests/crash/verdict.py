"""Whether the laws hold of a product at rest in which every order was ended: by its topics, its answers, its clouds."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from qm_client.sdk import ENDED, Json
from tests.e2e.answers import answers
from tests.support import laws
from tests.support.oracle import billed
from tests.support.product import SERVICES, Product, at_once
from tests.support.topics import Fact


def faults(
    product: Product, accepted: Mapping[str, str], label: str, *, cards: int
) -> tuple[list[str], dict[str, Any]]:
    """Return all that is broken, and figures for the reader. `cards`: how many the fleet has, all of them well."""
    facts = product.facts()
    with product.client() as operator:
        records = {record["order"]: record for record in operator.pages("/orders", limit=500)}
        capacity = operator.call("GET", "/fleet/capacity")["items"]
        tenants = [tenant["name"] for tenant in operator.pages("/tenants")]
        quotas = {tenant: _used(operator.call("GET", f"/quotas/{tenant}")) for tenant in tenants}
    found = [
        *laws.at_rest(facts),
        *laws.lost(facts, accepted, label),
        *_open_orders(facts, records),
        *(f"still in use at {tenant}: {name}" for tenant, used in quotas.items() for name in used),
        *(f"cards are missing: {line}" for line in capacity if (line["free"], line["held"]) != (cards, 0)),
        *orphans(product.clouds),
        *unwell(product),
        *(f"{path}: {status}" for path, (status, _, _) in answers(product).items() if status not in (200, 404)),
        *_rebuilt_otherwise(product),
    ]
    told = len(laws.told_once(facts)[0])
    phases = dict(Counter(record["phase"] for record in records.values()))
    return found, {"orders": len(records), "phases": phases, "facts": told, "told again": len(facts) - told}


def _used(quota: Json) -> list[str]:
    """Return what is in use. Card-hours of a month stay used, as far as metering said so; none may stay held."""
    dimensions = {name: it["used"] for name, it in quota["dimensions"].items() if name != "card_hours_month"}
    hours = {f"card-hours of {it['month']}": float(it["held"]) for it in quota["months"]}
    return [f"{amount} {name}" for name, amount in (dimensions | hours).items() if amount]


def _open_orders(facts: Sequence[Fact], records: Mapping[str, Json]) -> list[str]:
    """Compare the records with the topics: the same orders, all ended, each with the usage that the oracle says."""
    found = []
    orders = {order: told for order, told in laws.by_order(laws.told_once(facts)[0]).items()}
    for order, told in orders.items():
        record = records.get(order)
        if record is None or record["phase"] not in ENDED:
            found.append(f"order {order} is {record and record['phase']}")
            continue
        right = Counter[str]()
        for (meter, _), card_us in billed(told).items():
            right[meter] += card_us
        if any(record["usage"][meter]["card_us"] != right[meter] for meter in ("held", "billable")):
            found.append(f"order {order} shows {record['usage']}, right is {dict(right)}")
    return found + [f"order {order} is on no topic" for order in records.keys() - orders.keys()]


def orphans(clouds: Path) -> list[str]:
    """Return what is left in the simulated clouds."""
    with closing(sqlite3.connect(clouds)) as db:
        left = db.execute("SELECT model, order_id, step, unit FROM things WHERE gone_us IS NULL").fetchall()
    return [f"orphan: {thing}" for thing in left]


def unwell(product: Product) -> list[str]:
    """Return which services say that something is wrong with them."""
    bad = ("errors", "halted", "parked")
    found = {name: {what: status[what] for what in bad if status[what]} for name, status in product.statuses().items()}
    return [f"{name}: {wrong}" for name, wrong in found.items() if wrong]


def _rebuilt_otherwise(product: Product) -> list[str]:
    """Return the services whose database is not what their topics make."""
    found: list[str] = []

    def verify(service: str) -> None:
        try:
            product.run(service, "verify")
        except AssertionError as error:
            found.append(str(error))

    at_once(partial(verify, service) for service in SERVICES)
    return found
