"""Users, operators and clouds at their worst, over the real app: every order ends in a state that is true.

The laws are in `tests.support.truths`; here are the abuses.
"""

import asyncio
from collections.abc import AsyncIterator
from os import environ
from pathlib import Path
from random import Random
from typing import Any

import pytest

from qm_provisioner.api import scriptable
from qm_provisioner.models import MODELS
from tests.support.inside import ORDER, Inside, inside
from tests.support.truths import everything, untruths

WHOLE = {"specification": "a100-8", "service_model": "bare_metal"}
"""An order that awaits approval."""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Inside]:
    """The sample world; whatever a test did to it, the laws hold at its end."""
    async with inside(tmp_path) as found:
        yield found
        assert await untruths(found) == []


async def pending(site: Inside) -> tuple[str, str]:
    """Return an order that awaits approval, and the approval."""
    order = await site.order(**WHOLE)
    await site.settle()
    (approval,) = [one["approval"] for one in await everything(site, "/approvals") if one["order"] == order]
    return order, approval


async def types(site: Inside, order: str) -> list[str]:
    """Return the types of an order's facts."""
    facts = await site.done("operator", "GET", f"/orders/{order}/events", params={"limit": 500})
    return [fact["type"] for fact in facts["items"]]


# ---- approval


async def test_of_two_approvers_at_once_one_decides(site: Inside) -> None:
    order, approval = await pending(site)
    votes = [("bob", "approve"), ("ada", "approve"), ("bob", "approve"), ("ada", "approve")]
    replies = await asyncio.gather(*(site.call(who, "POST", f"/approvals/{approval}/{how}") for who, how in votes))
    allowed = [reply for reply in replies if reply.is_success]
    assert len(allowed) == 1
    assert {reply.json()["code"] for reply in replies if not reply.is_success} <= {
        "approval-already-decided",
        "approval-not-yours",
    }
    await site.settle()
    assert (await types(site, order)).count("approval.granted.v1") == 1
    assert (await site.record(order))["phase"] == "active"


async def test_a_yes_and_a_no_at_once_are_one_of_both(site: Inside) -> None:
    _, approval = await pending(site)
    yes, no = await asyncio.gather(
        site.call("bob", "POST", f"/approvals/{approval}/approve"),
        site.call("bob", "POST", f"/approvals/{approval}/deny"),
    )
    assert sorted([yes.is_success, no.is_success]) == [False, True]
    assert next(reply for reply in (yes, no) if not reply.is_success).json()["code"] == "approval-conflict"


async def test_nobody_approves_what_was_cancelled(site: Inside) -> None:
    order, approval = await pending(site)
    await site.done("alice", "POST", f"/orders/{order}/cancel")
    await site.settle()
    late = await site.call("bob", "POST", f"/approvals/{approval}/approve")
    assert (late.status_code, late.json()["code"]) == (409, "approval-void")
    assert (await site.record(order))["phase"] == "cancelled"


async def test_approval_and_cancel_at_once_hold_no_card(site: Inside) -> None:
    for _ in range(3):
        order, approval = await pending(site)
        await asyncio.gather(
            site.call("bob", "POST", f"/approvals/{approval}/approve"),
            site.call("alice", "POST", f"/orders/{order}/cancel"),
        )
        await site.settle()
        assert (await site.record(order))["phase"] in ("cancelled", "closed")


# ---- ends


async def test_an_order_ends_once_however_often_it_is_asked(site: Inside) -> None:
    order = await site.order()
    await site.settle()
    asked = [site.call("alice", "POST", f"/orders/{order}/{how}") for how in ("release", "cancel") * 10]
    assert {reply.status_code for reply in await asyncio.gather(*asked)} == {202}
    await site.settle()
    facts = await types(site, order)
    assert sum(facts.count(f"order.{how}_requested.v1") for how in ("release", "cancel")) == 1
    late = await site.call("alice", "POST", f"/orders/{order}/extend", {"expires_at": "2026-03-01T00:00:00Z"})
    assert (late.status_code, late.json()["code"]) == (409, "order-ended")
    assert facts == await types(site, order)


async def test_an_end_at_any_moment_of_the_build_is_kept(site: Inside) -> None:
    random = Random(1)
    scripts = {"steps": {"server": {"delay_seconds": 5.0}, "undo:port": {"fail_times": 1}}}
    await site.done("operator", "PUT", "/sim/backends/vm", scripts)
    for _ in range(25):
        order = await site.order()
        for _ in range(random.randrange(60)):
            await asyncio.sleep(0)
        if random.random() < 0.3:
            await site.done("operator", "POST", "/sim/clock", {"advance": f"PT{random.randrange(12)}S"})
        await site.done("alice", "POST", f"/orders/{order}/{random.choice(['cancel', 'release'])}")
    await site.done("operator", "POST", "/sim/clock", {"advance": "PT1H"})
    phases = {one["phase"] for one in await everything(site, "/orders")}
    assert phases <= {"cancelled", "closed"}


async def test_a_fault_report_touches_only_a_card_of_the_order(site: Inside) -> None:
    mine, other = await site.order(), await site.order()
    await site.settle()
    (foreign,), (own,) = [(await site.record(order))["allocation"]["cards"] for order in (other, mine)]
    report = {"fault": {"card": foreign, "category": "slow", "summary": "not mine"}}
    reply = await site.call("alice", "POST", f"/orders/{mine}/release", report)
    assert (reply.status_code, reply.json()["field"], reply.json()["choices"]) == (422, "fault.card", [own])
    assert (await site.record(mine))["phase"] == "active"
    await site.done("alice", "POST", f"/orders/{mine}/release", {})
    await site.settle()
    cards = {card["card"]: card for card in await everything(site, "/fleet/cards")}
    assert cards[foreign]["state"] == "held"
    assert (await site.record(other))["phase"] == "active"
    assert not [card for card in cards.values() if card["state"] == "quarantined"]


# ---- quota


async def test_a_crowd_claims_what_there_is_and_no_more(site: Inside) -> None:
    await site.done("operator", "PUT", "/quotas/acme/vision", {"limits": {"cards": 7}})
    await site.settle()
    body = {**ORDER, "specification": "npu-1", "service_model": "maas", "model": "llama-small"}
    replies = await asyncio.gather(*(site.call("alice", "POST", "/orders", body) for _ in range(200)))
    assert {reply.status_code for reply in replies} == {202}
    await site.settle()
    orders = await everything(site, "/orders")
    assert sorted({one["phase"] for one in orders}) == ["active", "held"]
    active = [one for one in orders if one["phase"] == "active"]
    assert len(active) == 7
    held = [one for one in orders if one["phase"] == "held"]
    for one in held:
        assert one["reason"]["code"] == "QuotaExhausted"
    await site.done("operator", "PUT", "/quotas/acme/vision", {"limits": {"cards": 3}})
    await site.settle()
    quota = await site.done("operator", "GET", "/quotas/acme/vision")
    cards = quota["dimensions"]["cards"]
    assert (cards["limit"], cards["used"], cards["available"]) == (3, 7, 0)
    for one in active[:4]:
        await site.done("alice", "POST", f"/orders/{one['id']}/release", {})
    await site.settle()
    assert sum(one["phase"] == "active" for one in await everything(site, "/orders")) == 3
    await site.done("alice", "POST", f"/orders/{active[4]['id']}/release", {})
    await site.settle()
    now = {one["id"]: one["phase"] for one in await everything(site, "/orders")}
    first = min(held, key=lambda one: (one["times"]["submitted_at"], one["id"]))
    assert now[first["id"]] == "active"


async def test_who_waits_for_cards_stands_in_line_for_a_true_reason(site: Inside) -> None:
    await site.done("operator", "PUT", "/quotas/acme/vision", {"limits": {}})
    await site.done("operator", "PUT", "/quotas/acme", {"limits": {}})
    orders = [await site.order() for _ in range(20)]
    await site.settle()
    records = [await site.record(order) for order in orders]
    assert [one["phase"] for one in records].count("active") == 15  # one of sixteen is sick
    assert [one["position"] for one in records if one["phase"] == "queued"][1:] == [2, 3, 4, 5]
    queue = (await site.done("alice", "GET", "/queue"))["items"]
    assert [one["position"] for one in queue] == [1, 2, 3, 4, 5]
    assert queue[0]["reason"]["code"] == "HealthyCapacityInsufficient"  # it would fit if the sick card were well
    assert {one["reason"]["code"] for one in queue[1:]} == {"HigherPriorityAhead"}


# ---- the fleet


async def test_a_node_without_the_cards_it_lends_keeps_them_until_they_are_back(site: Inside) -> None:
    order = await site.order()
    await site.settle()
    allocation = (await site.record(order))["allocation"]
    (node,), (card,) = allocation["nodes"], allocation["cards"]
    bare = {"cpu_milli": 256_000, "memory_mib": 2_097_152, "cards": []}
    await site.done("operator", "PUT", f"/fleet/nodes/{node}", bare)
    await site.settle()
    assert (await site.record(order))["phase"] == "active"
    elsewhere = {**bare, "cards": [{"card": card, "accelerator": "a100", "memory_mib": 81_920}]}
    refused = await site.call("operator", "PUT", "/fleet/nodes/gpu-9", elsewhere)
    assert (refused.status_code, refused.json()["code"]) == (409, "card-elsewhere")
    cleared = await site.call("operator", "POST", f"/fleet/cards/{card}/clear")
    assert cleared.is_success
    assert await untruths(site) == []
    await site.done("alice", "POST", f"/orders/{order}/release", {})
    await site.settle()
    assert card not in {one["card"] for one in await everything(site, "/fleet/cards")}
    await site.done("operator", "PUT", "/fleet/nodes/gpu-9", elsewhere)


async def test_an_old_observation_changes_nothing(site: Inside) -> None:
    await site.done("operator", "POST", "/sim/clock", {"advance": "PT1H"})

    async def seen(status: str, minute: int) -> str:
        at = f"2026-01-01T00:{minute:02}:00Z"
        told = [{"card": "gpu-2-c0", "source": "agent", "status": status, "observed_at": at}]
        await site.done("operator", "POST", "/fleet/health", told)
        await site.settle()
        cards = {card["card"]: card for card in await everything(site, "/fleet/cards")}
        return str(cards["gpu-2-c0"]["state"])

    assert await seen("failed", 30) == "failed"
    assert await seen("healthy", 10) == "failed"
    assert await seen("healthy", 30) == "failed"
    assert await seen("healthy", 31) == "free"
    assert await seen("suspect", 30) == "free"


async def test_a_card_that_is_cleared_while_it_is_held_stays_held(site: Inside) -> None:
    order = await site.order()
    await site.settle()
    (card,) = (await site.record(order))["allocation"]["cards"]
    await asyncio.gather(*(site.call("operator", "POST", f"/fleet/cards/{card}/clear") for _ in range(5)))
    assert (await site.record(order))["phase"] == "active"


# ---- clouds

BEHAVIOURS: dict[str, dict[str, Any]] = {
    "is slow": {"delay_seconds": 90.0},
    "fails once": {"fail_times": 1},
    "fails on": {"fail_times": 9},
    "refuses for good": {"fail_for_good": True},
    "hangs": {"hang": True},
    "answers twice": {"answer_twice": True},
    "loses an answer": {"lose_answers": 1},
    "loses all answers": {"lose_answers": 9},
    "lies": {"lie_about_ready": True},
}
WANTED: dict[str, dict[str, str]] = {
    "bare_metal": {},
    "vm": {},
    "kubernetes": {},
    "maas": {"specification": "npu-1", "model": "llama-small"},
}
METAL = {"name": "metal-1", "specification": "a100-1", "service_model": "bare_metal"}
MENDED = ("is slow", "fails once", "answers twice", "loses an answer")
"""What the product overcomes."""
EVERY = 9
"""Of all pairs of a place and a behaviour, `make test` plays one in so many; with `QM_SOAK` set, all."""
ROUNDS = [
    (behaviour, place)
    for number, (behaviour, place) in enumerate(
        (behaviour, place)
        for behaviour in BEHAVIOURS
        for place in range(max(len(scriptable(m)) for m in MODELS.values()))
    )
    if number % EVERY == 0 or "QM_SOAK" in environ
]


async def test_a_cloud_at_its_worst_leaves_nothing_behind(site: Inside) -> None:
    await site.done("operator", "POST", "/offerings", {**METAL, "price_per_card_hour": "1", "currency": "EUR"})
    faults: list[str] = []
    for behaviour, place in ROUNDS:
        faults += await _round(site, behaviour, place)
    assert not faults, "\n".join(faults)


async def _round(site: Inside, behaviour: str, place: int) -> list[str]:
    """Let each cloud misbehave at its `place`-th step, undo or check, and order, use and release there."""
    orders: dict[str, str] = {}
    for name, model in MODELS.items():
        if place < len(scriptable(model)):
            steps = {scriptable(model)[place]: BEHAVIOURS[behaviour]}
            await site.done("operator", "PUT", f"/sim/backends/{name}", {"steps": steps})
            orders[await site.order(service_model=name, **WANTED[name])] = (
                f"{name} {scriptable(model)[place]} {behaviour}"
            )
    await site.done("operator", "POST", "/sim/clock", {"advance": "PT1H"})
    middle = {order: (await site.record(order))["phase"] for order in orders}
    for order in orders:
        await site.done("alice", "POST", f"/orders/{order}/release", {})
    await site.done("operator", "POST", "/sim/clock", {"advance": "PT12H"})
    found = [f"{what}: {fault}" for what in [f"{behaviour} at {place}"] for fault in await untruths(site)]
    for order, what in orders.items():
        record = await site.record(order)
        if record["phase"] not in ("closed", "failed"):
            found.append(f"{what}: {record['phase']}")
        if behaviour in MENDED and (middle[order] != "active" or record["allocation"]["quarantined"]):
            found.append(f"{what}: {middle[order]}, then {record['allocation']}")
    for card in await everything(site, "/fleet/cards", state="quarantined"):
        await site.done("operator", "POST", f"/fleet/cards/{card['card']}/clear")
    return found
