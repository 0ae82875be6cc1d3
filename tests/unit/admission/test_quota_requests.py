"""Asking for quota: who may ask, who decides, and what changes."""

from typing import Any

import pytest

from tests.unit.admission.desk import request
from tests.unit.admission.stage import Stage
from tests.unit.admission.test_api import figures

ASK = {"tenant": "acme", "project": "vision", "limits": {"cards": 8}, "reason": "a bigger model"}


@pytest.fixture
async def limited(stage: Stage) -> Stage:
    await stage.done("PUT", "/quotas/acme/vision", {"limits": {"cards": 4, "cpu_milli": 10**6}})
    return stage


async def ask(stage: Stage, by: str = "dev", **more: Any) -> dict[str, Any]:
    asked: dict[str, Any] = await stage.done("POST", "/quota-requests", ASK | more, by=by)
    return asked


async def test_a_request_is_granted_in_one_step_and_lets_in_who_waited(limited: Stage) -> None:
    await limited.submit("o1", request(cards=4))
    await limited.submit("o2", request(cards=4))
    asked = await ask(limited)
    assert (asked["status"], asked["requester"], asked["granted"]) == ("open", "dev", None)
    decided = await limited.done("POST", f"/quota-requests/{asked['request']}/approve", {"comment": "go"})
    assert (decided["status"], decided["granted"], decided["decided_by"]) == ("approved", {"cards": 8}, "tina")
    await limited.world.settle()
    assert (await limited.said("o2"))[-1] == "order.admitted"
    shown = await limited.done("GET", "/quotas/acme/vision", by="dev")
    assert shown["limits"] == {"cards": 8, "cpu_milli": 10**6}
    types = await limited.world.types("quotas", "quota/acme")
    assert types[-3:] == ["quota_request.opened", "quota_request.approved", "quota_limit.set"]


async def test_something_else_may_be_granted(limited: Stage) -> None:
    asked = await ask(limited)
    body = {"limits": {"cards": 6}}
    assert (await limited.done("POST", f"/quota-requests/{asked['request']}/approve", body))["granted"] == {"cards": 6}
    assert (await limited.done("GET", "/quotas/acme/vision"))["limits"]["cards"] == 6


async def test_a_denied_request_changes_nothing_and_stays_denied(limited: Stage) -> None:
    asked = await ask(limited)
    path = f"/quota-requests/{asked['request']}"
    assert (await limited.done("POST", f"{path}/deny", {"comment": "no"}))["status"] == "denied"
    assert await limited.refused("POST", f"{path}/approve", {}) == (409, "quota-request-decided")
    assert (await limited.done("GET", "/quotas/acme/vision"))["limits"]["cards"] == 4


async def test_nobody_decides_on_a_request_of_his_own(limited: Stage) -> None:
    asked = await ask(limited, by="tina")
    path = f"/quota-requests/{asked['request']}"
    assert await limited.refused("POST", f"{path}/approve", {}) == (403, "quota-request-own")
    assert await limited.refused("POST", f"{path}/deny", {}) == (403, "quota-request-own")
    assert (await limited.done("POST", f"{path}/approve", {}, by="otto"))["status"] == "approved"


async def test_the_limits_of_a_tenant_are_decided_by_an_operator(limited: Stage) -> None:
    await limited.done("PUT", "/quotas/acme", {"limits": {"cards": 4}}, by="otto")
    asked = await ask(limited, by="tina", project=None)
    path = f"/quota-requests/{asked['request']}/approve"
    assert await limited.refused("POST", path, {}) == (403, "forbidden")
    await limited.done("POST", path, {}, by="otto")
    assert (await limited.done("GET", "/quotas/acme"))["limits"] == {"cards": 8}


async def test_what_makes_no_sense_is_refused(limited: Stage) -> None:
    for by, body, refusal in (
        ("dev", {"limits": {"cards": 4}}, (409, "quota-request-pointless")),
        ("dev", {"limits": {"memory_mib": 4}}, (409, "quota-request-pointless")),
        ("dev", {"limits": {"memory_gib": 4}}, (422, "quota-dimension-unknown")),
        ("dev", {"limits": {"cards": -4}}, (422, "quota-limit-out-of-range")),
        ("dev", {"limits": {"cards": "8"}}, (422, "validation-failed")),
        ("dev", {"limits": {}}, (422, "validation-failed")),
        ("dev", {"reason": ""}, (422, "validation-failed")),
        ("dev", {"colour": "red"}, (422, "validation-failed")),
        ("dev", {"project": "speech"}, (404, "not-found")),
        ("kim", {"project": "speech"}, (403, "forbidden")),
        ("tina", {"project": "nothing"}, (404, "not-found")),
        ("bert", {}, (404, "not-found")),
    ):
        assert await limited.refused("POST", "/quota-requests", ASK | body, by=by) == refusal, (by, body)
    asked = await ask(limited)
    path = f"/quota-requests/{asked['request']}"
    assert await limited.refused("POST", f"{path}/approve", {"limits": {"gpus": 4}}) == (422, "quota-dimension-unknown")
    assert await limited.refused("POST", f"{path}/deny", {"limits": {"cards": 4}}) == (422, "validation-failed")
    assert await limited.refused("POST", "/quota-requests/none/approve", {}) == (404, "not-found")
    assert await limited.refused("POST", f"{path}/approve", {}, by="dev") == (403, "forbidden")


async def test_there_is_an_end_to_asking(limited: Stage) -> None:
    for _ in range(20):
        await ask(limited)
    assert await limited.refused("POST", "/quota-requests", ASK, by="dev") == (409, "quota-requests-too-many")


async def test_a_repeated_call_asks_once(limited: Stage) -> None:
    first = await limited.done("POST", "/quota-requests", ASK, by="dev", idempotency_key="k")
    assert await limited.done("POST", "/quota-requests", ASK, by="dev", idempotency_key="k") == first


async def test_a_request_is_seen_in_its_project_and_by_who_decides(limited: Stage) -> None:
    await ask(limited)
    await limited.done("PUT", "/quotas/acme", {"limits": {"cards": 4}}, by="otto")
    await ask(limited, by="tina", project=None)
    for subject, count in (("dev", 1), ("tina", 2), ("otto", 2), ("bob", 2), ("kim", 0), ("bert", 0)):
        found = (await limited.done("GET", "/quota-requests", by=subject))["items"]
        assert len(found) == count, subject
    assert (await limited.done("GET", "/quota-requests?status=denied"))["items"] == []
    (page,) = (await limited.done("GET", "/quota-requests?limit=1"),)
    assert len((await limited.done("GET", f"/quota-requests?limit=1&after={page['next']}"))["items"]) == 1


async def test_a_quantity_that_is_no_whole_number_is_refused_with_its_unit(limited: Stage) -> None:
    reply = await limited.call("PUT", "/quotas/acme/vision", {"limits": {"memory_mib": "64GiB"}})
    assert reply.status_code == 422
    assert "MiB of main memory" in reply.text
    reply = await limited.call("PUT", "/quotas/acme/vision", {"limits": {"memory_gb": 64}})
    assert "memory_mib, in MiB of main memory" in reply.json()["detail"]


async def test_a_quota_shows_its_months_and_what_it_borrows(limited: Stage) -> None:
    body = {
        "limits": {"cards": 4, "card_hours_month": 1_000},
        "borrow": {"cards": 4},
        "hours_exhausted": "end",
        "notice_seconds": 60,
    }
    await limited.done("PUT", "/quotas/acme/vision", body)
    await limited.done("PUT", "/quotas/acme/speech", {"limits": {"cards": 4}, "lend": {"cards": 3}})
    await limited.submit("o1", request(cards=5, duration_seconds=36_000))
    shown = await limited.done("GET", "/quotas/acme/vision", by="dev")
    cards = shown["dimensions"]["cards"]
    assert (cards["borrow_limit"], cards["borrowed"], cards["borrowable"]) == (4, 1, 2)
    hour = 3_600_000_000
    assert figures(shown, "card_hours_month") == {
        "limit": 1_000 * hour,
        "used": 50 * hour,
        "available": 950 * hour,
        "bound_by": "acme/vision",
    }
    (month,) = shown["months"]
    assert (month["month"], month["limit"], month["held"], month["settled"]) == (
        "2026-06",
        "1000.000000000",
        "50.000000000",
        "0.000000000",
    )
    assert (month["percent"], month["threshold"], month["renews_at"]) == (5, None, "2026-07-01T00:00:00Z")
    assert (shown["hours_exhausted"], shown["notice_seconds"], shown["borrow"]) == ("end", 60, {"cards": 4})
