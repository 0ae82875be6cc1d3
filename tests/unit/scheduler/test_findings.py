"""Claims that do not fit what is seen: found, shown, cleared."""

from datetime import timedelta
from typing import Any

from qm_events.catalog import OrderReleaseRequested
from qm_events.provisioner import EnvironmentReady, EnvironmentReleaseStarted
from qm_events.specs import EndCause
from tests.unit.scheduler.test_service import Stage, description, stage
from tests.unit.scheduler.yard import request

__all__ = ["stage"]


async def found(stage: Stage) -> list[tuple[str, str, list[str]]]:
    items = (await stage.done("GET", "/fleet/findings", by="ines"))["items"]
    return [(item["kind"], item["order"], item["cards"]) for item in items]


async def see(stage: Stage, card: str, occupied: Any) -> dict[str, Any]:
    at = stage.world.clock.now().isoformat()
    body = [{"card": card, "source": "agent", "status": "healthy", "occupied": occupied, "observed_at": at}]
    answer: dict[str, Any] = await stage.done("POST", "/fleet/health", body)
    return answer


async def test_an_order_that_ended_and_holds_its_cards_is_found_and_its_claim_cleared(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    await stage.order("o1", request(cards=2))
    assert await stage.code("POST", "/fleet/claims/o1/clear", {"reason": "typed wrongly"}) == (409, "claim-in-use")
    await stage.tell("order/o1", OrderReleaseRequested(order="o1", requested_at=stage.world.clock.now()))
    assert await found(stage) == []
    await stage.world.advance(minutes=6)
    assert await found(stage) == [("order_ended", "o1", ["GPU-1", "GPU-2"])]
    cleared = await stage.done("POST", "/fleet/claims/o1/clear", {"reason": "its host burned"})
    assert [card["state"] for card in cleared["items"]] == ["quarantined", "quarantined"]
    assert await found(stage) == []
    assert await stage.code("POST", "/fleet/claims/o1/clear", {"reason": "again"}) == (404, "claim-unknown")
    assert (await stage.call("POST", "/fleet/claims/o1/clear", {"reason": "x"}, by="ada")).status_code in (403, 404)
    await stage.give_back("o1")
    assert await stage.capacity() == {"total": 2, "quarantined": 2}


async def test_a_return_that_takes_too_long_is_found(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    await stage.order("o1")
    doc: Any = await stage.world.doc("scheduler", "allocations", "o1")
    began = stage.world.clock.now()
    fact = EnvironmentReleaseStarted(order="o1", allocation=doc.allocation, cause=EndCause.RELEASED, started_at=began)
    await stage.tell("environment/o1", fact)
    assert await found(stage) == []
    await stage.world.advance(minutes=61)
    assert await found(stage) == [("return_overdue", "o1", ["GPU-1"])]


async def test_a_card_that_is_held_and_on_which_nobody_is_seen_is_found_at_once(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    await stage.order("o1")
    doc: Any = await stage.world.doc("scheduler", "allocations", "o1")
    ready = EnvironmentReady(order="o1", allocation=doc.allocation, endpoint={}, ready_at=stage.world.clock.now())
    await stage.tell("environment/o1", ready)
    await see(stage, "GPU-1", True)
    stage.world.clock.advance(timedelta(minutes=2))
    assert await found(stage) == []
    await see(stage, "GPU-1", False)
    assert await found(stage) == [("held_unoccupied", "o1", ["GPU-1"])]


async def test_a_card_that_nobody_holds_and_somebody_is_on_is_isolated(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    await stage.order("o1")
    await see(stage, "GPU-1", True)
    assert await stage.capacity() == {"total": 2, "held": 1, "free": 1}
    stage.world.clock.advance(timedelta(minutes=1))
    before = stage.world.clock.now()
    stage.world.clock.advance(timedelta(minutes=1))
    await stage.give_back("o1")
    late = {
        "card": "GPU-1",
        "source": "agent",
        "status": "healthy",
        "occupied": True,
        "observed_at": before.isoformat(),
    }
    await stage.done("POST", "/fleet/health", [late])
    assert await stage.capacity() == {"total": 2, "free": 2}
    stage.world.clock.advance(timedelta(minutes=1))
    await see(stage, "GPU-1", True)
    assert await stage.capacity() == {"total": 2, "free": 1, "quarantined": 1}
    assert (await stage.done("GET", "/fleet/cards?state=quarantined"))["items"][0]["occupied"] is True
    assert await stage.code("POST", "/fleet/health", [late | {"occupied": "yes"}]) == (422, "validation-failed")
