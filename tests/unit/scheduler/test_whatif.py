"""What would happen if: the real scheduler on a copy, without any effect on the live one."""

from typing import Any

from tests.unit.scheduler.test_service import Stage, description, stage
from tests.unit.scheduler.yard import MIB, request

__all__ = ["stage"]

SPEC = {
    "name": "spec",
    "version": 1,
    "accelerators": ["h100"],
    "cards_per_unit": 2,
    "accelerator_memory_mib": 80 * MIB,
    "cpu_milli": 0,
    "memory_mib": 0,
}


def asked(order: str, **more: Any) -> dict[str, Any]:
    return {"order": order, "tenant": "acme", "project": "vision", "specification": SPEC} | more


async def test_orders_are_tried_on_a_changed_fleet_and_nothing_is_changed(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    await stage.order("o1", request(cards=2))
    await stage.order("o2", request(cards=2))
    before = await stage.queue("olga"), await stage.capacity(), await stage.world.types("allocations")

    now = await stage.done("POST", "/queue:simulate", {"orders": [asked("a")]}, by="ines")
    assert now["placed"] == []
    assert [(each["position"], [r["code"] for r in each["reasons"]]) for each in now["orders"]] == [
        (2, ["HigherPriorityAhead", "CapacityInUse"])
    ]
    more = {"nodes": {"n2": description("GPU-3", "GPU-4", "GPU-5", "GPU-6")}, "orders": [asked("a"), asked("b")]}
    then = await stage.done("POST", "/queue:simulate", more)
    assert then["placed"] == ["o2"]
    assert [[unit["node"] for unit in each["units"]] for each in then["orders"]] == [["n2"], []]

    assert before == (await stage.queue("olga"), await stage.capacity(), await stage.world.types("allocations"))


async def test_what_would_happen_is_what_happens(stage: Stage) -> None:
    for n in range(3):
        await stage.done("PUT", f"/fleet/nodes/n{n}", description(f"GPU-{n}a", f"GPU-{n}b"))
    await stage.order("o1", request(cards=1))
    orders = [asked(f"x{n}", project=("vision", "speech")[n % 2]) for n in range(4)]
    told = (await stage.done("POST", "/queue:simulate", {"orders": orders}))["orders"]
    for n in range(4):
        await stage.order(f"x{n}", request(cards=2), project=("vision", "speech")[n % 2])
    for each in told:
        doc: Any = await stage.world.doc("scheduler", "allocations", each["order"])
        assert [unit.model_dump(mode="json") for unit in doc.units] == each["units"]


async def test_a_fleet_that_could_not_be_is_refused_and_strangers_are_kept_out(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    await stage.order("o1")
    for body, code in (
        ({"nodes": {"n2": description("GPU-1")}}, (409, "card-elsewhere")),
        ({"cordon": ["n9"]}, (404, "node-unknown")),
        ({"orders": [asked("o1")]}, (409, "order-known")),
        ({"orders": [asked("a", count=0)]}, (422, "validation-failed")),
        ({"extra": 1}, (422, "validation-failed")),
    ):
        assert await stage.code("POST", "/queue:simulate", body) == code
    assert (await stage.call("POST", "/queue:simulate", {}, by="ada")).status_code in (403, 404)


async def test_where_an_order_would_stand_is_told_to_its_project_and_is_where_it_stands(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    for number, (cards, priority) in enumerate(((1, 0), (1, 0), (2, 0), (1, 5), (4, 0))):
        asked_for = request(cards=cards, priority=priority)
        before = await stage.queue("olga"), await stage.capacity(), await stage.world.types("allocations")
        body = {"request": asked_for.model_dump(mode="json")}
        told = await stage.done("POST", "/queue/acme/vision:simulate", body, by="ada")
        assert before == (await stage.queue("olga"), await stage.capacity(), await stage.world.types("allocations"))
        assert "GPU-1" not in str(told)
        await stage.order(f"o{number}", asked_for)
        waiting = {item["order"]: item for item in await stage.queue("olga")}
        item = waiting.get(f"o{number}")
        assert told["placed"] == (item is None)
        if item is None:
            assert (told["position"], told["reasons"]) == (None, [])
        else:
            assert (told["position"], told["reasons"]) == (item["position"], item["reasons"])
            assert told["starts_at"] == item["estimate"]


async def test_nobody_else_is_told_where_an_order_would_stand(stage: Stage) -> None:
    body = {"request": request().model_dump(mode="json")}
    assert await stage.code("POST", "/queue/acme/vision:simulate", body, by="nobody") == (404, "not-found")
    assert await stage.code("POST", "/queue/acme/speech:simulate", body) == (422, "validation-failed")
    assert await stage.code("POST", "/queue/acme/vision:simulate", {"request": {}}) == (422, "validation-failed")
