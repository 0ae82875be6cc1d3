"""Levels, delegation and the inbox over HTTP."""

from typing import Any

import pytest

from qm_events.catalog import GroupJoined, MemberGranted, MemberRevoked, SubjectManagerSet
from qm_events.specs import Role
from tests.unit.admission.desk import request
from tests.unit.admission.stage import Stage

BOARD: dict[str, Any] = {"approvers": {"groups": ["board"]}, "rule": "n_of_m", "n": 2}
POLICY: dict[str, Any] = {"name": "big", "cards_at_least": 4, "levels": [BOARD, {"approvers": {"manager": True}}]}
MINE = "/approvals?assigned_to=me"


async def board(stage: Stage, policy: dict[str, Any] | None = None) -> dict[str, Any]:
    """Three on the board, mia who is dev's manager, and an order that asks them."""
    facts: list[Any] = [
        MemberGranted(tenant="acme", project=None, subject=name, role=Role.VIEWER)
        for name in ("eva", "fay", "gus", "mia", "sam")
    ]
    facts += [GroupJoined(tenant="acme", group="board", subject=name) for name in ("eva", "fay", "gus")]
    facts.append(SubjectManagerSet(tenant="acme", subject="dev", manager="mia"))
    await stage.tell("tenant/acme", *facts)
    await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": [policy or POLICY]})
    await stage.submit("o1", request(cards=4))
    (found,) = (await stage.done("GET", MINE, by="eva"))["items"]
    return dict(found)


async def inbox(stage: Stage, by: str) -> list[tuple[str, list[str]]]:
    items = (await stage.done("GET", MINE, by=by))["items"]
    return [(it["order"], it["can_decide_for"]) for it in items]


async def test_two_levels_are_walked_and_every_word_is_kept(stage: Stage) -> None:
    asked = await board(stage)
    assert (asked["level"], asked["levels"], asked["rule"], asked["needed"], asked["agreed"]) == (1, 2, "n_of_m", 2, 0)
    body = {"digest": asked["digest"], "comment": "fits the plan"}
    first = await stage.done("POST", f"/approvals/{asked['approval']}/approve", body, by="eva")
    assert (first["status"], first["agreed"], first["awaited"]) == ("pending", 1, ["fay", "gus"])
    assert await inbox(stage, "eva") == []
    done = await stage.done("POST", f"/approvals/{asked['approval']}/approve", {"comment": "me too"}, by="gus")
    assert done["status"] == "granted"
    said = [(it["voter"], it["verdict"], it["comment"], it["on_behalf_of"]) for it in done["votes"]]
    assert said == [("eva", "approve", "fits the plan", None), ("gus", "approve", "me too", None)]
    assert all(it["voted_at"] for it in done["votes"])
    (second,) = (await stage.done("GET", MINE, by="mia"))["items"]
    assert (second["level"], second["approvers"]) == (2, ["mia"])
    await stage.done("POST", f"/approvals/{second['approval']}/approve", by="mia")
    await stage.world.settle()
    assert (await stage.said("o1"))[-2:] == ["quota.claimed", "order.admitted"]


async def test_votes_that_do_not_count_are_told_and_change_nothing(stage: Stage) -> None:
    asked = await board(stage)
    path = f"/approvals/{asked['approval']}"
    await stage.done("POST", f"{path}/approve", by="eva")
    await stage.world.settle()
    before = await stage.said("o1")
    for verb, by, body, expected in (
        ("approve", "eva", None, (409, "approval-already-voted")),
        ("deny", "eva", None, (409, "approval-conflict")),
        ("approve", "fay", {"digest": "other"}, (409, "approval-digest-mismatch")),
        ("approve", "fay", {"on_behalf_of": "gus"}, (403, "approval-not-yours")),
        ("approve", "ann", None, (403, "approval-not-yours")),
        ("approve", "sam", None, (403, "forbidden")),
        ("approve", "bert", None, (404, "not-found")),
    ):
        assert await stage.refused("POST", f"{path}/{verb}", body, by=by) == expected, (verb, by)
    await stage.world.settle()
    assert await stage.said("o1") == before
    await stage.done("POST", f"{path}/approve", by="fay")
    assert await stage.refused("POST", f"{path}/approve", by="gus") == (409, "approval-already-decided")
    assert await stage.refused("POST", f"{path}/deny", by="gus") == (409, "approval-conflict")


async def test_the_inbox_shows_what_one_can_decide_now(stage: Stage) -> None:
    policy = {"name": "big", "levels": [{"approvers": {"manager": True}, "escalate_after_seconds": 3_600,
              "escalate_to": {"groups": ["board"]}}]}  # fmt: skip
    await stage.tell("tenant/acme", MemberGranted(tenant="acme", project=None, subject="mia", role=Role.VIEWER))
    with pytest.raises(ValueError, match="not enough values"):
        await board(stage, policy)
    assert await inbox(stage, "mia") == [("o1", ["mia"])]
    assert await inbox(stage, "eva") == await inbox(stage, "sam") == await inbox(stage, "ann") == []
    day = stage.world.clock.now().date().isoformat()
    body = {"absences": [{"first_day": day, "last_day": day, "delegate": "sam", "reason": "holiday"}]}
    set_ = await stage.done("PUT", "/delegations/mia?tenant=acme", body, by="mia")
    await stage.world.settle()
    assert set_["absences"][0]["timezone"] == "UTC"
    assert await inbox(stage, "sam") == [("o1", ["mia"])]
    assert await inbox(stage, "mia") == [("o1", ["mia"])], "whoever is away may still decide"
    await stage.world.advance(hours=1)
    assert await inbox(stage, "eva") == [("o1", ["eva"])]
    await stage.tell("tenant/acme", MemberRevoked(tenant="acme", project=None, subject="eva", role=Role.VIEWER))
    assert await inbox(stage, "eva") == []
    assert await inbox(stage, "bert") == await inbox(stage, "otto") == []
    (asked,) = (await stage.done("GET", MINE, by="sam"))["items"]
    path = f"/approvals/{asked['approval']}"
    done = await stage.done("POST", f"{path}/approve", {"on_behalf_of": "mia"}, by="sam")
    assert [(it["voter"], it["on_behalf_of"]) for it in done["votes"]] == [("sam", "mia")]
    assert await inbox(stage, "mia") == await inbox(stage, "sam") == []
    past = await stage.done("GET", f"{MINE}&status=granted", by="sam")
    assert [it["order"] for it in past["items"]] == ["o1"]


async def test_the_inbox_comes_in_pages(stage: Stage) -> None:
    await board(stage)
    for number in range(2, 6):
        await stage.submit(f"o{number}", request(cards=4))
        await stage.world.advance(seconds=1)
    found: list[str] = []
    after = ""
    for _ in range(3):
        part = await stage.done("GET", f"{MINE}&limit=2{after}", by="eva")
        found += [it["order"] for it in part["items"]]
        after = f"&after={part['next']}"
    assert found == ["o1", "o2", "o3", "o4", "o5"]
    assert part["next"] is None


async def test_policies_with_levels_come_back_as_they_were_set(stage: Stage) -> None:
    rich = POLICY | {
        "specifications": ["spec"], "images": ["ubuntu"], "requester_roles": ["developer"],
        "requester_managers": ["mia"], "fields": [{"field": "labels.env", "any_of": ["prod"]}],
        "duration_at_least_seconds": 3_600, "priority_at_most": 10, "cost_at_least": "12.5", "currency": "EUR",
        "notices": {"channels": ["mail"], "digest_seconds": 3_600},
    }  # fmt: skip
    set_ = await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": [rich]})
    (shown,) = set_["policies"]
    plain = [name for name in rich if name not in ("levels", "fields")]
    assert [shown[name] for name in plain] == [rich[name] for name in plain]
    assert shown["levels"][0]["approvers"]["groups"] == ["board"]
    again = await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": set_["policies"]})
    assert again == set_


@pytest.mark.parametrize(
    ("policy", "code", "word"),
    [
        ({"levels": [{"approvers": {}}]}, "approval-policy-invalid", "nobody"),
        ({"levels": [BOARD | {"rule": "any"}]}, "approval-policy-invalid", "n_of_m"),
        (
            {"levels": [{"approvers": {"subjects": ["ann"]}, "rule": "n_of_m", "n": 2}]},
            "approval-policy-invalid",
            "fewer",
        ),
        ({"levels": [BOARD | {"escalate_after_seconds": 60}]}, "approval-policy-invalid", "next level"),
        ({"levels": [BOARD], "approver_role": "approver"}, "approval-policy-invalid", "single level"),
        ({"levels": [{"approvers": {"field": "owner"}}]}, "approval-policy-invalid", "labels.<name>"),
        ({"levels": [{"approvers": {"subjects": ["nobody"]}}]}, "approval-policy-invalid", "nobody"),
        ({"levels": [BOARD], "cost_at_least": "1"}, "approval-policy-invalid", "currency"),
        ({"levels": [BOARD], "cards_at_least": 3, "cards_at_most": 2}, "approval-policy-invalid", "never asks"),
        ({"levels": [BOARD], "fields": [{"field": "env"}]}, "approval-policy-invalid", "env"),
        ({"levels": [BOARD | {"rule": "some"}]}, "validation-failed", "rule"),
        ({"levels": [BOARD | {"remind_every_seconds": 1}]}, "validation-failed", "remind_every_seconds"),
        ({"levels": [BOARD], "cost_at_least": "NaN", "currency": "EUR"}, "validation-failed", "cost_at_least"),
        ({"levels": [BOARD], "cost_at_least": -1, "currency": "EUR"}, "validation-failed", "cost_at_least"),
        ({"levels": [BOARD] * 11}, "validation-failed", "levels"),
        ({"levels": [BOARD], "notices": {"channels": ["pigeon"]}}, "validation-failed", "channels"),
    ],
)
async def test_a_policy_that_cannot_work_says_where_and_what_to_do(
    stage: Stage, policy: dict[str, Any], code: str, word: str
) -> None:
    reply = await stage.call("PUT", "/approval-policies?tenant=acme", {"policies": [{"name": "x"} | policy]})
    problem = reply.json()
    assert (reply.status_code, problem["code"]) == (422, code), problem
    assert word in f"{problem['detail']} {problem['remedy']}"
    assert problem["field"].startswith("policies")
    assert problem["remedy"]


async def test_who_may_set_whose_absences(stage: Stage) -> None:
    body = {"absences": [{"first_day": "2026-06-10", "last_day": "2026-06-12", "delegate": "bob"}]}
    for subject, by, status in (
        ("ann", "ann", 200), ("ann", "tina", 200), ("ann", "otto", 200), ("ann", "bob", 403), ("ann", "dev", 403),
        ("ann", "bert", 404), ("nobody", "tina", 404), ("bert", "bert", 404),
    ):  # fmt: skip
        reply = await stage.call("PUT", f"/delegations/{subject}?tenant=acme", body, by=by)
        assert reply.status_code == status, (subject, by, reply.text)
    shown = await stage.call("GET", "/delegations/ann?tenant=acme", by="dev")
    assert shown.json()["absences"][0] | {} == {
        "first_day": "2026-06-10", "last_day": "2026-06-12", "delegate": "bob", "timezone": "UTC", "reason": "",
        "starts_at": "2026-06-10T00:00:00Z", "ends_at": "2026-06-13T00:00:00Z",
    }  # fmt: skip
    etag = shown.headers["etag"]
    assert (await stage.call("PUT", "/delegations/ann?tenant=acme", {"absences": []}, if_match=etag)).is_success
    late = await stage.refused("PUT", "/delegations/ann?tenant=acme", body, if_match=etag)
    assert late == (409, "version-conflict")
    await stage.world.settle()
    audits = [it for it in await stage.world.types("quotas") if it == "quotas.access_audited"]
    assert len(audits) >= 5


@pytest.mark.parametrize(
    ("absence", "field"),
    [
        ({"first_day": "2026-06-12", "last_day": "2026-06-10"}, "absences"),
        ({"first_day": "2026-06-12", "last_day": "2026-06-12", "delegate": "stranger"}, "absences"),
        ({"first_day": "2026-06-12", "last_day": "2026-06-12", "timezone": "Mars/Olympus"}, "absences"),
        ({"first_day": 1, "last_day": "2026-06-12"}, "absences.0.first_day"),
        ({"first_day": "2026-02-30", "last_day": "2026-06-12"}, "absences.0.first_day"),
        ({"first_day": "2026-06-12", "last_day": "2026-06-12", "colour": "red"}, "absences.0.colour"),
    ],
)
async def test_an_absence_that_cannot_be_names_the_field(stage: Stage, absence: dict[str, Any], field: str) -> None:
    reply = await stage.call("PUT", "/delegations/ann?tenant=acme", {"absences": [absence]}, by="ann")
    assert (reply.status_code, reply.json()["field"]) == (422, field), reply.text


async def test_a_change_of_the_policies_is_answered_within_the_same_call(stage: Stage) -> None:
    asked = await board(stage)
    await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": []})
    await stage.world.settle()
    assert (await stage.said("o1"))[-3:] == ["approval.withdrawn", "quota.claimed", "order.admitted"]
    assert await stage.refused("POST", f"/approvals/{asked['approval']}/approve", by="eva") == (409, "approval-void")
