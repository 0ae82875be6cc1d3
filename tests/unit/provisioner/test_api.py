"""The provisioner over HTTP, with the twins behind it."""

import logging
from typing import Any

import pytest

from qm_events.provisioner import EnvironmentsAccessAudited
from qm_events.specs import ServiceModel
from qm_service.problem import PROBLEMS
from tests.unit.provisioner.stage import Stage


async def audits(stage: Stage) -> list[Any]:
    facts = await stage.world.facts("environments")
    return [fact for fact in facts if isinstance(fact, EnvironmentsAccessAudited)]


@pytest.mark.parametrize("model", list(ServiceModel))
async def test_an_environment_shows_its_steps_its_probes_and_at_last_its_receipt(stage: Stage, model: str) -> None:
    await stage.allocate("o1", model, 2)
    shown = await stage.done("GET", "/environments/o1")
    assert (shown["phase"], shown["service_model"], shown["receipt"]) == ("ready", model, None)
    assert [step["step"] for step in shown["steps"]] == shown["planned"]
    assert {step["state"] for step in shown["steps"]} == {"done"}
    assert shown["steps"][0]["external_name"] == f"qm-o1-{shown['planned'][0]}"
    assert all(probe["passed"] for probe in shown["probes"])
    assert shown["ready_at"] == shown["started_at"]
    await stage.release("o1")
    shown = await stage.done("GET", "/environments/o1", by="vic")
    assert (shown["phase"], shown["cause"], shown["receipt"]["outcome"]) == ("released", "released", "clean")
    assert len(shown["receipt"]["lines"]) == len(shown["planned"]) + 1
    assert len(shown["receipt"]["digest"]) == 64


async def test_a_credential_is_handed_out_while_ready_and_each_time_is_a_fact(stage: Stage) -> None:
    await stage.done("PUT", "/sim/backends/vm", {"steps": {"server": {"delay_seconds": 60}}}, by="otto")
    await stage.allocate("o1")
    assert await stage.refused("GET", "/orders/o1/credentials") == (409, "environment-not-ready")
    await stage.world.advance(seconds=60)
    reply = await stage.call("GET", "/orders/o1/credentials")
    assert reply.headers["cache-control"] == "no-store"
    shown = reply.json()
    assert (shown["kind"], shown["endpoint"]["user"]) == ("ssh_key", "qm")
    assert shown["values"]["private_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    await stage.release("o1")
    assert await stage.refused("GET", "/orders/o1/credentials") == (410, "credentials-revoked")
    await stage.world.settle()
    told = [(fact.actor, fact.decision, fact.code) for fact in await audits(stage) if fact.actor == "dev"]
    assert told == [
        ("dev", "refused", "environment-not-ready"),
        ("dev", "allowed", None),
        ("dev", "refused", "credentials-revoked"),
    ]


async def test_who_may_see_what(stage: Stage) -> None:
    await stage.allocate("o1")
    for path, by, status in (
        ("/environments/o1", "vic", 200),
        ("/environments/o1", "otto", 200),
        ("/environments/o1", "bert", 404),
        ("/environments/o2", "dev", 404),
        ("/orders/o1/credentials", "dev", 200),
        ("/orders/o1/credentials", "vic", 403),
        ("/orders/o1/credentials", "otto", 403),
        ("/orders/o1/credentials", "bert", 404),
        ("/orders/o2/credentials", "dev", 404),
    ):
        assert (await stage.call("GET", path, by=by)).status_code == status, (path, by)


async def test_a_credential_that_cannot_be_read_is_said_to_be_lost(stage: Stage) -> None:
    await stage.allocate("o1")
    async with stage.service.runtime.database.write() as tx:
        await tx.exec_driver_sql("DELETE FROM credentials")
    stage.service.workers[0]._outside.vault._live.clear()  # type: ignore[attr-defined]  # the runner's own copy
    assert await stage.refused("GET", "/orders/o1/credentials") == (409, "credentials-lost")


async def test_an_order_that_ended_before_it_began_has_no_environment(stage: Stage) -> None:
    await stage.release("o1")
    assert await stage.refused("GET", "/environments/o1") == (404, "not-found")
    await stage.allocate("o1")
    assert await stage.said("o1") == ["end_noted", "release_started", "validated", "released"]
    assert await stage.refused("GET", "/orders/o1/credentials") == (404, "not-found")


async def test_a_script_is_checked_and_replaces_the_one_before(stage: Stage) -> None:
    for body in (
        {"steps": {"servre": {}}},
        {"steps": {"server": {"dealy": 1}}},
        {"steps": {"server": {"delay_seconds": -1}}},
        {"steps": {"server": {"fail_times": "2"}}},
        {"step": {}},
    ):
        assert await stage.refused("PUT", "/sim/backends/vm", body, by="otto") == (422, "validation-failed"), body
    assert await stage.refused("PUT", "/sim/backends/slurm", {}, by="otto") == (404, "not-found")
    assert await stage.refused("PUT", "/sim/backends/vm", {}, by="dev") == (403, "forbidden")
    await stage.done("PUT", "/sim/backends/vm", {"steps": {"server": {"fail_for_good": True}}}, by="otto")
    await stage.allocate("o1")
    assert "failed" in await stage.said("o1")
    await stage.done("PUT", "/sim/backends/vm", {"steps": {"probe:dns": {}}}, by="otto")
    await stage.allocate("o2")
    assert "ready" in await stage.said("o2")


async def test_a_card_is_broken_and_mended(stage: Stage) -> None:
    shown = await stage.done("PUT", "/sim/cards/n0-c1", {"broken": True}, by="otto")
    assert shown == {"card": "n0-c1", "broken": True}
    await stage.allocate("o1")
    assert "failed" in await stage.said("o1")
    await stage.done("PUT", "/sim/cards/n0-c1", {"broken": False}, by="otto")
    await stage.allocate("o2")
    assert "ready" in await stage.said("o2")
    assert await stage.refused("PUT", "/sim/cards/n0-c1", {"broken": 1}, by="otto") == (422, "validation-failed")


async def test_no_credential_is_in_a_record_a_row_or_a_log_line(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await stage.allocate("o1", "kubernetes")
        token = (await stage.done("GET", "/orders/o1/credentials"))["values"]["token"]
        await stage.release("o1")
    async with stage.service.runtime.database.read() as tx:
        facts = await tx.exec_driver_sql("SELECT value FROM events")
        docs = await tx.exec_driver_sql("SELECT doc FROM p_environments_v2")
        assert token not in f"{facts.all()} {docs.all()} {caplog.text}"
    records = await stage.world.facts("environments")
    assert len(records) > 10
    assert token not in repr(records)


def test_every_refusal_of_the_rules_is_a_problem() -> None:
    assert {"environment-not-ready", "credentials-revoked", "credentials-lost"} <= set(PROBLEMS)
