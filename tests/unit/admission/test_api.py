"""Quotas, policies and approvals over HTTP."""

from typing import Any

from qm_events.catalog import OrderCancelRequested
from tests.unit.admission.desk import request
from tests.unit.admission.stage import Stage

POLICY = {"name": "big", "cards_at_least": 4, "approver_role": "approver", "lapses_after_seconds": 3_600}


async def open_approval(stage: Stage, order: str = "o1", cards: int = 4) -> dict[str, Any]:
    await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": [POLICY]})
    await stage.submit(order, request(cards=cards))
    found = (await stage.done("GET", "/approvals?assigned_to=me", by="ann"))["items"]
    approval: dict[str, Any] = next(it for it in found if it["order"] == order)
    return approval


async def test_a_quota_shows_limit_use_and_what_is_left_on_the_whole_path(stage: Stage) -> None:
    await stage.done("PUT", "/quotas/acme", {"limits": {"cards": 5}}, by="otto")
    await stage.done("PUT", "/quotas/acme/vision", {"limits": {"cards": 8, "cards/h100": 2}})
    await stage.submit("o1", request(cards=3))
    shown = await stage.done("GET", "/quotas/acme/vision", by="dev")
    assert (shown["tenant"], shown["project"], shown["over_quota"]) == ("acme", "vision", "hold")
    assert shown["limits"] == {"cards": 8, "cards/h100": 2}
    assert figures(shown, "cards") == {"limit": 8, "used": 3, "available": 2, "bound_by": "acme"}
    assert figures(shown, "cards/h100") == {"limit": 2, "used": 0, "available": 2, "bound_by": "acme/vision"}
    assert figures(shown, "cards/a100") == {"limit": None, "used": 3, "available": None, "bound_by": None}
    assert shown["dimensions"]["memory_mib"]["unit"] == "MiB of main memory"
    assert shown["dimensions"]["concurrent_orders"]["used"] == 1
    assert (await stage.done("GET", "/quotas/acme", by="dev"))["dimensions"]["cards"]["used"] == 3


def figures(shown: Any, dimension: str) -> Any:
    return {name: shown["dimensions"][dimension][name] for name in ("limit", "used", "available", "bound_by")}


async def test_a_limit_below_use_is_accepted_and_leaves_nothing_available(stage: Stage) -> None:
    await stage.submit("o1", request(cards=3))
    shown = await stage.done("PUT", "/quotas/acme/vision", {"limits": {"cards": 1}})
    assert figures(shown, "cards") == {"limit": 1, "used": 3, "available": 0, "bound_by": "acme/vision"}
    await stage.submit("o2", request(cards=1))
    assert await stage.said("o2") == ["order.held"]


async def test_a_put_replaces_everything(stage: Stage) -> None:
    await stage.done("PUT", "/quotas/acme/vision", {"limits": {"cards": 1}, "over_quota": "refuse"})
    shown = await stage.done("PUT", "/quotas/acme/vision", {"limits": {"cpu_milli": 1}})
    assert (shown["limits"], shown["over_quota"]) == ({"cpu_milli": 1}, "hold")


async def test_an_operator_bounds_the_priority_of_a_tenant_and_its_admin_that_of_a_project(stage: Stage) -> None:
    bounds = [("", None, "otto"), ("", 10, "otto"), ("/vision", 20, "tina"), ("/vision", 3, "tina")]
    shown = []
    for project, bound, by in bounds:
        said = await stage.done("PUT", f"/quotas/acme{project}", {"limits": {}, "priority_at_most": bound}, by=by)
        shown.append((said["priority_at_most"], said["priority_allowed"]))
    assert shown == [(None, 0), (10, 10), (20, 10), (3, 3)]
    assert (await stage.done("GET", "/quotas/acme/speech", by="kim"))["priority_allowed"] == 10
    assert await stage.refused("PUT", "/quotas/acme", {"limits": {}, "priority_at_most": 99}) == (403, "forbidden")
    for wrong in (-1, 1_001, 0.5, "9", True):
        body = {"limits": {}, "priority_at_most": wrong}
        assert await stage.refused("PUT", "/quotas/acme/vision", body) == (422, "validation-failed")


async def test_a_put_on_an_old_version_is_refused(stage: Stage) -> None:
    read = await stage.call("GET", "/quotas/acme/vision")
    first = await stage.call("PUT", "/quotas/acme/vision", {"limits": {"cards": 1}}, if_match=read.headers["etag"])
    assert first.headers["etag"] != read.headers["etag"]
    late = await stage.refused("PUT", "/quotas/acme/vision", {"limits": {"cards": 2}}, if_match=read.headers["etag"])
    assert late == (409, "version-conflict")
    assert (await stage.done("GET", "/quotas/acme/vision"))["limits"] == {"cards": 1}


async def test_limits_that_mean_nothing_are_refused(stage: Stage) -> None:
    for limits, code in (
        ({"card_hours_month": 10**9 + 1}, "quota-limit-out-of-range"),
        ({"memory_gib": 1}, "quota-dimension-unknown"),
        ({"cards": -1}, "quota-limit-out-of-range"),
        ({"cards": 1.5}, "validation-failed"),
        ({"cards": "8"}, "validation-failed"),
        ({"cards": True}, "validation-failed"),
    ):
        assert await stage.refused("PUT", "/quotas/acme/vision", {"limits": limits}) == (422, code), limits


async def test_who_may_see_and_set_what(stage: Stage) -> None:
    for method, path, by, status in (
        ("GET", "/quotas/nobody", "otto", 404),
        ("GET", "/quotas/acme/nothing", "otto", 404),
        ("PUT", "/quotas/acme/nothing", "tina", 404),
        ("GET", "/quotas/acme", "bert", 404),
        ("GET", "/quotas/acme/vision", "kim", 404),
        ("GET", "/quotas/acme", "kim", 200),
        ("PUT", "/quotas/acme", "tina", 403),
        ("PUT", "/quotas/acme/vision", "dev", 403),
        ("PUT", "/quotas/acme/vision", "otto", 200),
        ("GET", "/approval-policies?tenant=nobody", "otto", 404),
        ("GET", "/approval-policies?tenant=acme", "bert", 404),
        ("PUT", "/approval-policies?tenant=acme", "dev", 403),
        ("GET", "/approval-policies?tenant=No%20Name", "tina", 422),
        ("POST", "/approvals/none/approve", "ann", 404),
    ):
        body = {"policies": []} if "policies" in path else {"limits": {}}
        reply = await stage.call(method, path, None if method != "PUT" else body, by=by)
        assert reply.status_code == status, (method, path, by, reply.text)


async def test_policies_come_back_as_they_were_set(stage: Stage) -> None:
    set_ = await stage.call("PUT", "/approval-policies?tenant=acme", {"policies": [POLICY]})
    read = await stage.call("GET", "/approval-policies?tenant=acme", by="dev")
    assert set_.json() == read.json()
    assert set_.headers["etag"] == read.headers["etag"]
    (policy,) = read.json()["policies"]
    assert {name: policy[name] for name in POLICY} == POLICY
    again = await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": read.json()["policies"]})
    assert again == read.json()


async def test_policies_that_cannot_work_are_refused(stage: Stage) -> None:
    for policy in (
        {"name": "x"},
        {"name": "x", "approver_subjects": ["stranger"]},
        {"name": "x", "approver_role": "approver", "projects": ["nothing"]},
    ):
        refused = await stage.refused("PUT", "/approval-policies?tenant=acme", {"policies": [policy]})
        assert refused == (422, "approval-policy-invalid"), policy


async def test_policies_of_the_wrong_form_are_refused(stage: Stage) -> None:
    for policy in (
        {"name": "x", "approver_role": "king"},
        {"name": "x", "approver_role": "approver", "cards_at_least": 10**12},
        {"name": "x", "approver_role": "approver", "lapses_after_seconds": 10**12},
        {"name": "x", "approver_role": "approver", "lapses_after_seconds": 0},
        {"name": "x", "approver_role": "approver", "self_approval": 1},
        {"name": "x", "approver_role": "approver", "colour": "red"},
        {"name": "Not a label", "approver_role": "approver"},
    ):
        refused = await stage.refused("PUT", "/approval-policies?tenant=acme", {"policies": [policy]})
        assert refused == (422, "validation-failed"), policy


async def test_an_approver_finds_the_order_and_lets_it_go_on(stage: Stage) -> None:
    approval = await open_approval(stage)
    assert (approval["status"], approval["requester"], approval["cards"]) == ("pending", "dev", 4)
    assert approval["approvers"] == ["ann", "bob"]
    body = {"digest": approval["digest"], "comment": "go"}
    decided = await stage.done("POST", f"/approvals/{approval['approval']}/approve", body, by="bob")
    assert (decided["status"], decided["decided_by"], decided["comment"]) == ("granted", "bob", "go")
    await stage.world.settle()
    assert (await stage.said("o1"))[-2:] == ["quota.claimed", "order.admitted"]
    assert (await stage.done("GET", "/approvals?assigned_to=me", by="ann"))["items"] == []
    assert len((await stage.done("GET", "/approvals?assigned_to=me&status=granted", by="bob"))["items"]) == 1


async def test_a_vote_needs_no_body(stage: Stage) -> None:
    approval = await open_approval(stage)
    denied = await stage.done("POST", f"/approvals/{approval['approval']}/deny", by="ann")
    assert (denied["status"], denied["comment"]) == ("denied", "")


async def test_only_those_who_may_decide_find_an_approval(stage: Stage) -> None:
    await open_approval(stage)
    for subject, count in (("ann", 1), ("bob", 1), ("dev", 0), ("kim", 0), ("bert", 0), ("otto", 0), ("tina", 0)):
        found = await stage.done("GET", "/approvals?assigned_to=me", by=subject)
        assert len(found["items"]) == count, subject


async def test_a_vote_that_does_not_count_changes_nothing(stage: Stage) -> None:
    approval = await open_approval(stage)
    for by, body, refusal in (
        ("dev", {}, (403, "forbidden")),
        ("tina", {}, (403, "approval-not-yours")),
        ("kim", {}, (404, "not-found")),
        ("bert", {}, (404, "not-found")),
        ("ann", {"digest": "another"}, (409, "approval-digest-mismatch")),
        ("ann", {"digest": "x" * 201}, (422, "validation-failed")),
        ("ann", {"colour": "red"}, (422, "validation-failed")),
    ):
        assert await stage.refused("POST", f"/approvals/{approval['approval']}/approve", body, by=by) == refusal
    assert await stage.said("o1") == ["approval.requested"]


async def test_an_order_that_nobody_may_approve_is_seen_in_its_project(stage: Stage) -> None:
    await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": [{"name": "x", "approver_role": "auditor"}]})
    await stage.submit("o1", request("vision"))
    for subject, count in (("dev", 1), ("tina", 1), ("otto", 1), ("kim", 0), ("bert", 0)):
        found = (await stage.done("GET", "/approvals", by=subject))["items"]
        assert len(found) == count, subject
        assert all(it["approvers"] == [] for it in found)


async def test_late_double_and_conflicting_votes_are_told_apart(stage: Stage) -> None:
    approval = await open_approval(stage)
    path = f"/approvals/{approval['approval']}"
    await stage.done("POST", f"{path}/approve", {}, by="ann")
    assert await stage.refused("POST", f"{path}/approve", {}, by="bob") == (409, "approval-already-decided")
    assert await stage.refused("POST", f"{path}/deny", {}, by="ann") == (409, "approval-conflict")
    late = await open_approval(stage, "o2")
    await stage.world.advance(hours=2)
    assert await stage.said("o2") == ["approval.requested", "approval.lapsed", "order.rejected"]
    refused = await stage.refused("POST", f"/approvals/{late['approval']}/approve", {}, by="ann")
    assert refused == (409, "approval-lapsed")
    gone = await open_approval(stage, "o3")
    now = stage.world.clock.now()
    await stage.tell("order/o3", OrderCancelRequested(order="o3", requested_at=now))
    refused = await stage.refused("POST", f"/approvals/{gone['approval']}/deny", {}, by="ann")
    assert refused == (409, "approval-void")


async def test_a_repeated_vote_with_its_key_is_answered_alike(stage: Stage) -> None:
    approval = await open_approval(stage)
    path = f"/approvals/{approval['approval']}/approve"
    first = await stage.done("POST", path, {"comment": "go"}, by="ann", idempotency_key="k1")
    assert await stage.done("POST", path, {"comment": "go"}, by="ann", idempotency_key="k1") == first


async def test_a_named_approver_needs_no_other_role_in_the_project(stage: Stage) -> None:
    policy = {"name": "chief", "approver_subjects": ["kim"]}
    await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": [policy]})
    await stage.submit("o1", request("vision"))
    (approval,) = (await stage.done("GET", "/approvals?assigned_to=me", by="kim"))["items"]
    decided = await stage.done("POST", f"/approvals/{approval['approval']}/approve", {}, by="kim")
    assert decided["status"] == "granted"


async def test_the_inbox_comes_in_pages_without_gap_or_repetition(stage: Stage) -> None:
    await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": [POLICY]})
    for number in range(7):
        await stage.submit(f"o{number}", request("vision" if number % 2 else "speech", cards=4))
    seen, after = [], ""
    while True:
        found = await stage.done("GET", f"/approvals?assigned_to=me&limit=2{after}", by="bob")
        seen += [it["order"] for it in found["items"]]
        if found["next"] is None:
            break
        after = f"&after={found['next']}"
    assert sorted(seen) == [f"o{number}" for number in range(7)]


async def test_every_change_is_audited(stage: Stage) -> None:
    await stage.done("PUT", "/quotas/acme/vision", {"limits": {"cards": 1}})
    await stage.refused("PUT", "/quotas/acme/vision", {"limits": {"memory_gib": 1}})
    await stage.world.settle()
    audited = await stage.world.facts("quotas", "audit-admission/acme")
    assert [(fact.actor, fact.decision, fact.code) for fact in audited] == [
        ("tina", "allowed", None),
        ("tina", "refused", "quota-dimension-unknown"),
    ]
