"""What must be true of the whole product at rest, whatever was done to it, told from its own answers and its clouds."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.support.inside import Inside

Json = dict[str, Any]

CLAIMING = frozenset({"queued", "scheduled", "provisioning", "verifying", "active", "releasing", "recovering"})
WAITING = frozenset({"pending_approval", "held", "queued"})
ENDED = frozenset({"closed", "cancelled", "rejected", "expired", "failed"})
RESTING = WAITING | ENDED | {"active"}
"""Where an order may be when nothing has anything to do at this instant."""


async def everything(site: Inside, path: str, **query: Any) -> list[Json]:
    """Return all items of a list, as the operator sees it."""
    found: list[Json] = []
    after: str | None = None
    while True:
        given = {name: value for name, value in {**query, "after": after, "limit": 500}.items() if value is not None}
        page = await site.done("operator", "GET", path, params=given)
        found += page["items"]
        after = page["next"]
        if after is None:
            return found


async def untruths(site: Inside, *, resting: frozenset[str] = RESTING) -> list[str]:
    """Return what is wrong, once the product has come to rest; `resting`: the phases in which an order may be."""
    await site.settle()
    orders = {record["id"]: record for record in await everything(site, "/orders")}
    cards = await everything(site, "/fleet/cards")
    found = [f"{id_} rests in {one['phase']}" for id_, one in orders.items() if one["phase"] not in resting]
    found += [
        f"{id_} waits for nothing"
        for id_, one in orders.items()
        if one["phase"] in WAITING - {"pending_approval"} and not one["reason"]
    ]
    found += list(_cards(orders, cards))
    found += [fault async for fault in _quotas(site, orders)]
    for order in orders.values():
        found += await _bill(site, order)
    found += list(_left_over(site, orders))
    ready = (await site.client.get("/readyz")).json()
    found += [f"{name} is stuck: {one}" for name, one in ready["services"].items() if one["parked"] or one["halted"]]
    return found


def _cards(orders: Mapping[str, Json], cards: list[Json]) -> Iterator[str]:
    """Each card has one holder, who lives; what an order has is what the fleet says."""
    held: dict[str, set[str]] = {}
    for card in cards:
        if card["order"] is not None:
            held.setdefault(card["order"], set()).add(card["card"])
    for id_, order in orders.items():
        has = held.get(id_, set())
        if order["phase"] in ENDED | WAITING:
            if has:
                yield f"{id_} is {order['phase']} and holds {sorted(has)}"
        elif has != set(order["allocation"]["cards"] if order["allocation"] else ()):
            yield f"{id_} is {order['phase']} and holds {sorted(has)}, not {order['allocation']}"
        for card in order["allocation"]["quarantined"] if order["allocation"] else ():
            if card in has:
                yield f"{card} is quarantined and held by {id_}"
    if strangers := held.keys() - orders.keys():
        yield f"held by nobody's order: {strangers}"


async def _quotas(site: Inside, orders: Mapping[str, Json]) -> Any:
    used: dict[str, Counter[str]] = {}
    for order in orders.values():
        if order["phase"] in CLAIMING:
            for scope in (order["tenant"], f"{order['tenant']}/{order['project']}"):
                used.setdefault(scope, Counter()).update({"cards": order["cards"], "concurrent_orders": 1})
    for scope in {*used, *(order["tenant"] for order in orders.values())}:
        told = (await site.done("operator", "GET", f"/quotas/{scope}"))["dimensions"]
        for dimension in ("cards", "concurrent_orders"):
            expected = used.get(scope, Counter())[dimension]
            if dimension in told and told[dimension]["used"] != expected:
                yield f"{scope} uses {told[dimension]['used']} {dimension}, and its orders {expected}"


def _at(times: Json, *names: str) -> datetime | None:
    given = [datetime.fromisoformat(times[name]) for name in names if times.get(name)]
    return min(given, default=None)


async def _bill(site: Inside, order: Json) -> list[str]:
    """Billable from READY to the first end; held from ALLOCATED until the cards are back."""
    reply = await site.call("operator", "GET", f"/usage/orders/{order['id']}")
    times = order["times"]
    allocated, ready = _at(times, "allocated_at"), _at(times, "ready_at")
    if allocated is None:
        billed = reply.json()["held"]["card_us"] if reply.is_success else 0
        return [f"{order['id']} never had cards and is billed"] if billed else []
    usage = reply.json()
    now = datetime.fromisoformat(usage["as_of"])
    end = _at(times, "end_requested_at", "expired_at", "failed_at", "quarantined_at", "returned_at") or now
    back = _at(times, "returned_at") or now
    held = (back - allocated) // timedelta(microseconds=1) * order["cards"]
    billable = max(end - ready, timedelta(0)) // timedelta(microseconds=1) * order["cards"] if ready else 0
    told = (usage["held"]["card_us"], usage["billable"]["card_us"])
    if told != (held, billable) or usage["anomalies"]:
        return [
            f"{order['id']} is billed (held, billable) {told}, not {(held, billable)}: {usage['anomalies']} {times}"
        ]
    return []


def _left_over(site: Inside, orders: Mapping[str, Json]) -> Iterator[str]:
    """Nothing of an order that has ended is in a cloud, unless its cards are isolated with it."""
    with sqlite3.connect(site.product.data / "clouds.sqlite") as clouds:
        alive = clouds.execute("SELECT order_id, step FROM things WHERE gone_us IS NULL").fetchall()
    for id_, step in alive:
        # From its second environment on, what an order has goes by the number of that.
        order = orders.get(id_) or orders.get(id_.rpartition("-")[0])
        if order is None or (order["phase"] in ENDED and not order["allocation"]["quarantined"]):
            yield f"{id_} is {order['phase'] if order else 'unknown'} and its {step} is there"
