"""Orders over HTTP: what is taken, what is refused and why, and how an order ends."""

from typing import Any

import pytest

from qm_events import scheduler
from qm_events.admission import OrderRejected
from qm_events.provisioner import EnvironmentReady
from tests.unit.catalog import walk
from tests.unit.catalog.stage import OPERATOR, ORDER, Stage


async def test_an_order_is_answered_with_its_record_and_where_to_follow_it(stage: Stage) -> None:
    reply = await stage.call("POST", "/orders", ORDER | {"count": 3, "duration": "PT8H", "labels": {"team": "red"}})
    record = reply.json()
    assert reply.status_code == 202
    assert reply.headers["location"] == f"/v1/orders/{record['id']}"
    assert reply.headers["etag"] == '"1"'
    assert record["phase"] == "submitted"
    assert record["cards"] == 6
    assert record["duration_seconds"] == 28_800
    assert record["requester"] == "dora"
    assert record["specification"]["version"] == 1
    assert record["cost"] == {
        "amount": "0.000000000",
        "currency": "EUR",
        "offering": "gpu-2x-vm",
        "price_per_card_hour": "2.50",
    }
    again = await stage.call("GET", f"/orders/{record['id']}")
    assert again.content == reply.content
    assert again.headers["etag"] == reply.headers["etag"]


async def test_the_same_key_and_body_is_the_same_order(stage: Stage) -> None:
    first = await stage.done("POST", "/orders", ORDER, Idempotency_Key="k1")
    second = await stage.done("POST", "/orders", ORDER, Idempotency_Key="k1")
    assert first["id"] == second["id"]
    other = await stage.call("POST", "/orders", ORDER | {"count": 2}, Idempotency_Key="k1")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")


def rejection(order: str) -> OrderRejected:
    return OrderRejected(order=order, code="never-fits", remedy="Order less.", rejected_at=walk.at(1))


REFUSED: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"extra": 1}, 422, "validation-failed", "extra"),
    ({"count": 0}, 422, "validation-failed", "count"),
    ({"count": -1}, 422, "validation-failed", "count"),
    ({"count": 10**9}, 422, "validation-failed", "count"),
    ({"count": True}, 422, "validation-failed", "count"),
    ({"count": "2"}, 422, "validation-failed", "count"),
    ({"count": 1.5}, 422, "validation-failed", "count"),
    ({"project": "Vision!"}, 422, "validation-failed", "project"),
    ({"project": "nothing"}, 404, "not-found", None),
    ({"project": "beta/vision"}, 404, "not-found", None),
    ({"specification": "gpu-99x"}, 422, "unknown-reference", "specification"),
    ({"service_model": "abacus"}, 422, "validation-failed", "service_model"),
    ({"service_model": "kubernetes"}, 422, "not-offered", "service_model"),
    ({"image": "windows"}, 422, "unknown-reference", "image"),
    ({"model": "gpt"}, 422, "unknown-reference", "model"),
    ({"model": "llama"}, 422, "not-offered", "model"),
    ({"service_model": "maas"}, 422, "unknown-reference", "model"),
    ({"duration": "8 hours"}, 422, "validation-failed", "duration"),
    ({"duration": "P1M"}, 422, "validation-failed", "duration"),
    ({"duration": "PT0S"}, 422, "validation-failed", "duration"),
    ({"duration": "PT"}, 422, "validation-failed", "duration"),
    ({"duration": "P11111D"}, 422, "validation-failed", "duration"),
    ({"duration": 5}, 422, "validation-failed", "duration"),
    ({"expires_at": "2026-01-01T00:00:00Z"}, 422, "validation-failed", "expires_at"),
    ({"expires_at": "2026-07-01T00:00:00"}, 422, "validation-failed", "expires_at"),
    ({"ssh_keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}, 422, "validation-failed", "ssh_keys.0"),
    ({"labels": {"Not A Label": "x"}}, 422, "validation-failed", "labels.Not A Label.[key]"),
    ({"parameters": {"x": "y" * 20_000}}, 422, "validation-failed", "parameters"),
    ({"priority": 5_000}, 422, "validation-failed", "priority"),
    ({"preemptible": "yes"}, 422, "validation-failed", "preemptible"),
    ({"topology": {"within": "galaxy"}}, 422, "validation-failed", "topology.within"),
]


async def test_a_bad_order_is_refused_with_the_field_and_a_remedy(stage: Stage) -> None:
    for changes, status, code, field in REFUSED:
        reply = await stage.call("POST", "/orders", ORDER | changes)
        problem = reply.json()
        assert (reply.status_code, problem["code"], problem.get("field")) == (status, code, field), problem
        assert problem["remedy"]


async def test_two_ends_are_one_too_many(stage: Stage) -> None:
    both = {"duration": "PT1H", "expires_at": "2026-07-01T00:00:00Z"}
    assert (await stage.call("POST", "/orders", ORDER | both)).status_code == 422


async def test_a_refusal_names_what_there_is(stage: Stage) -> None:
    problem = (await stage.call("POST", "/orders", ORDER | {"specification": "gpu-99x"})).json()
    assert problem["choices"] == ["gpu-2x"]


async def test_a_name_that_fits_two_tenants_has_to_be_written_out(stage: Stage) -> None:
    await stage.done("POST", "/projects/beta.vision/members", {"subject": "dora", "role": "developer"}, by=OPERATOR)
    reply = await stage.call("POST", "/orders", ORDER)
    assert (reply.status_code, reply.json()["code"]) == (422, "ambiguous-project")
    assert reply.json()["choices"] == ["acme/vision", "beta/vision"]
    record = await stage.order(project="beta/vision")
    assert (record["tenant"], record["project"]) == ("beta", "vision")


async def test_a_viewer_sees_orders_and_places_none(stage: Stage) -> None:
    record = await stage.order()
    assert (await stage.call("POST", "/orders", ORDER, by="vera")).status_code == 403
    assert (await stage.call("GET", f"/orders/{record['id']}", by="vera")).status_code == 200
    assert (await stage.call("POST", f"/orders/{record['id']}/cancel", by="vera")).status_code == 403


async def test_a_stranger_is_told_what_is_told_of_an_order_that_is_not_there(stage: Stage) -> None:
    record = await stage.order()
    there = await stage.call("GET", f"/orders/{record['id']}", by="bert")
    absent = await stage.call("GET", "/orders/0197d3c0-0000-7000-8000-000000000099", by="bert")
    assert there.status_code == absent.status_code == 404
    assert there.json()["detail"] == absent.json()["detail"]
    assert there.json()["remedy"] == absent.json()["remedy"]


async def test_orders_are_listed_newest_first_page_by_page_and_filtered(stage: Stage) -> None:
    ids = [(await stage.order())["id"] for _ in range(5)]
    await stage.tell(rejection(ids[2]))
    seen: list[str] = []
    after = ""
    while True:
        body = await stage.done("GET", f"/orders?limit=2{after}")
        seen += [item["id"] for item in body["items"]]
        if body["next"] is None:
            break
        after = f"&after={body['next']}"
    assert seen == ids[::-1]
    rejected = await stage.done("GET", "/orders?phase=rejected&project=acme/vision")
    assert [item["id"] for item in rejected["items"]] == [ids[2]]
    assert (await stage.done("GET", "/orders", by="bert"))["items"] == []
    assert len((await stage.done("GET", "/orders", by="anna"))["items"]) == 5


async def test_ending_an_order_twice_adds_no_fact(stage: Stage) -> None:
    order = (await stage.order())["id"]
    first = await stage.call("POST", f"/orders/{order}/cancel", {"reason": "no longer"})
    second = await stage.call("POST", f"/orders/{order}/release")
    assert first.status_code == second.status_code == 202
    assert first.content == second.content
    assert first.json()["phase"] == "releasing"
    await stage.world.settle()
    assert await stage.world.types("orders") == ["order.submitted", "order.cancel_requested"]


async def test_cancelling_an_order_that_is_over_adds_no_fact(stage: Stage) -> None:
    order = (await stage.order())["id"]
    await stage.tell(rejection(order))
    record = await stage.done("POST", f"/orders/{order}/cancel")
    await stage.world.settle()
    assert (record["phase"], record["reason"]["code"]) == ("rejected", "never-fits")
    assert await stage.world.types("orders") == ["order.submitted"]


@pytest.mark.parametrize("wrapped", [True, False])
async def test_a_release_may_report_a_fault(stage: Stage, wrapped: bool) -> None:
    order = (await stage.order())["id"]
    await stage.tell(
        scheduler.AllocationAllocated(
            order=order, allocation="a", request=walk.REQUEST, units=walk.UNITS, allocated_at=stage.world.clock.now()
        )
    )
    fault = {"card": walk.UNITS[0].cards[0], "category": "ecc", "summary": "errors under load"}
    record = await stage.done("POST", f"/orders/{order}/release", {"fault": fault} if wrapped else fault)
    assert record["fault"] == fault
    assert record["ended_by"] == "released"


async def test_a_change_names_the_version_that_it_starts_from(stage: Stage) -> None:
    order = (await stage.order())["id"]
    stale = await stage.call("POST", f"/orders/{order}/cancel", If_Match='"7"')
    assert (stale.status_code, stale.json()["code"]) == (409, "version-conflict")
    assert (await stage.call("POST", f"/orders/{order}/cancel", If_Match='"1"')).status_code == 202


async def test_an_order_expires_by_its_duration_counted_from_ready_within_one_tick(stage: Stage) -> None:
    order = (await stage.order(duration="PT1H"))["id"]
    await stage.world.advance(hours=5)
    assert (await stage.done("GET", f"/orders/{order}"))["expires_at"] is None
    ready_at = stage.world.clock.now()
    await stage.tell(
        scheduler.AllocationAllocated(
            order=order, allocation="a", request=walk.REQUEST, units=walk.UNITS, allocated_at=ready_at
        ),
        EnvironmentReady(order=order, allocation="a", endpoint={"host": "h"}, ready_at=ready_at),
    )
    record = await stage.done("GET", f"/orders/{order}")
    assert (record["phase"], record["expires_at"]) == ("active", "2026-06-01T14:00:00Z")
    await stage.world.advance(minutes=59)
    assert (await stage.done("GET", f"/orders/{order}"))["phase"] == "active"
    await stage.world.advance(hours=3)
    record = await stage.done("GET", f"/orders/{order}")
    assert (record["phase"], record["ended_by"]) == ("releasing", "expired")
    assert record["times"]["end_requested_at"] == "2026-06-01T14:00:00Z"


async def test_an_extension_moves_the_end_and_the_old_end_does_not_count(stage: Stage) -> None:
    order = (await stage.order(expires_at="2026-06-01T10:00:00Z"))["id"]
    record = await stage.done("POST", f"/orders/{order}/extend", {"expires_at": "2026-06-01T14:00:00+02:00"})
    assert record["expires_at"] == "2026-06-01T12:00:00Z"
    sooner = await stage.call("POST", f"/orders/{order}/extend", {"expires_at": "2026-06-01T11:00:00Z"})
    assert (sooner.status_code, sooner.json()["code"]) == (422, "not-an-extension")
    await stage.world.advance(hours=3)
    assert (await stage.done("GET", f"/orders/{order}"))["phase"] == "submitted"
    await stage.world.advance(hours=1)
    assert (await stage.done("GET", f"/orders/{order}"))["ended_by"] == "expired"
    late = await stage.call("POST", f"/orders/{order}/extend", {"expires_at": "2026-06-02T11:00:00Z"})
    assert (late.status_code, late.json()["code"]) == (409, "order-ended")


async def test_the_bill_is_the_recorded_use_at_the_price(stage: Stage) -> None:
    order = (await stage.order())["id"]
    used = walk.used("billable", 0, 90).model_copy(update={"order": order})
    await stage.tell(used)
    record = await stage.done("GET", f"/orders/{order}")
    assert record["usage"]["billable"] == {"card_us": 10_800_000_000, "card_hours": "3.000000000", "ratio": "3/1"}
    assert record["cost"]["amount"] == "7.500000000"
