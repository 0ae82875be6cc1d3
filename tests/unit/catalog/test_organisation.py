"""Managers and groups: who may say so, what is refused, and what every service knows of it."""

from typing import Any

import pytest

from qm_events import EventData, new_event
from qm_events.catalog import GroupJoined, GroupLeft, SubjectErased, SubjectManagerSet
from qm_service.organisation import POSITIONS, Position
from tests.unit.catalog.stage import Stage
from tests.unit.catalog.walk import at

ADMIN = "tina"
GROUP = "/tenants/acme/groups/board/members"


async def test_a_group_is_filled_listed_and_emptied(stage: Stage) -> None:
    for subject in ("dora", ADMIN, "dora"):
        shown = await stage.done("POST", GROUP, {"subject": subject}, by=ADMIN)
        assert shown == {"tenant": "acme", "group": "board", "subject": subject}
    listed = await stage.done("GET", f"{GROUP}?limit=1", by="dora")
    rest = await stage.done("GET", f"{GROUP}?after={listed['next']}", by="dora")
    assert [it["subject"] for it in listed["items"] + rest["items"]] == sorted({"dora", ADMIN})
    await stage.done("DELETE", f"{GROUP}?subject=dora", by=ADMIN)
    await stage.done("DELETE", f"{GROUP}?subject=dora", by=ADMIN)
    assert [it["subject"] for it in (await stage.done("GET", GROUP))["items"]] == [ADMIN]
    assert (await stage.done("GET", "/tenants/acme/groups/empty/members"))["items"] == []
    assert (await stage.call("GET", GROUP, by="bert")).status_code == 404
    assert (await stage.call("POST", GROUP, {"subject": "dora"})).status_code == 403


async def test_a_manager_is_set_changed_and_taken_back(stage: Stage) -> None:
    for manager in (ADMIN, None):
        body = {"tenant": "acme", "manager": manager}
        assert (await stage.done("PUT", "/subjects/dora/manager", body, by=ADMIN))["manager"] == manager
        positions = stage.world.runtimes["catalog"].context().docs.resident("organisation")
        assert positions.get("acme/dora") == (Position(manager=manager) if manager else None)


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("PUT", "/subjects/dora/manager", {"tenant": "acme", "manager": "dora"}, (422, "own-manager")),
        ("PUT", "/subjects/dora/manager", {"tenant": "acme", "manager": "nobody"}, (422, "unknown-name")),
        ("PUT", "/subjects/nobody/manager", {"tenant": "acme", "manager": "dora"}, (422, "unknown-name")),
        ("PUT", "/subjects/dora/manager", {"tenant": "acme"}, (422, "validation-failed")),
        ("POST", GROUP, {"subject": "nobody"}, (422, "unknown-name")),
        ("POST", "/tenants/acme/groups/Board!/members", {"subject": "dora"}, (422, "validation-failed")),
    ],
)
async def test_what_means_nothing_is_refused(
    stage: Stage, method: str, path: str, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    reply = await stage.call(method, path, body, by=ADMIN)
    assert (reply.status_code, reply.json()["code"]) == expected, reply.text
    assert reply.json()["remedy"]


def folded(*facts: EventData) -> Position | None:
    doc = None
    for version, fact in enumerate(facts, 1):
        fold = POSITIONS.folds[type(fact)]
        event = new_event("tenant/acme", version, at(version), "/x", fact)
        assert fold.keys(event) == ("acme/ann",)
        doc = fold.apply(doc, event)
    return doc


def test_a_position_is_a_fold_that_ends_empty() -> None:
    ann = {"tenant": "acme", "subject": "ann"}
    joined = [GroupJoined(**ann, group=group) for group in ("b", "a", "b")]
    assert folded(*joined, SubjectManagerSet(**ann, manager="mia")) == Position(manager="mia", groups=("a", "b"))
    assert folded(*joined, GroupLeft(**ann, group="a"), GroupLeft(**ann, group="b")) is None
    assert folded(GroupLeft(**ann, group="a")) is None
    assert folded(*joined, SubjectErased(**ann)) is None
    doc = folded(*joined)
    again = new_event("tenant/acme", 9, at(9), "/x", joined[0])
    assert POSITIONS.folds[GroupJoined].apply(doc, again) is doc, "nothing new is the same object"
