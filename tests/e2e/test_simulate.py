"""What `POST /v1/orders:simulate` says is what the order then gets: the whole product, asked first and then ordered."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from qm_client.embedded.scenario import Scenario
from tests.e2e.conftest import SetUp
from tests.e2e.stage import MEMORY_MIB, world
from tests.support.inside import Inside, inside

PHASES = {"pending_approval": "pending_approval", "held": "held", "rejected": "rejected"}
LEVELS = [{"approvers": {"role": "approver"}}, {"approvers": {"role": "tenant_admin"}}]
POLICY = {"name": "large", "cards_at_least": 12, "levels": LEVELS}


def scene() -> Scenario:
    """Two nodes of eight cards, quota for twenty-six: it is the cards that are short first, then the quota."""
    return world("sim", nodes=2, cards=8, limits={"cards": 26, "card_hours_month": 5_000})


def wish(random: Random) -> dict[str, Any]:
    body: dict[str, Any] = {"project": "sim/lab", "service_model": random.choice(["vm", "bare_metal"])}
    body |= {"specification": f"sim-{random.choice([1, 4, 4, 8])}", "count": random.choice([1, 1, 2, 3])}
    body |= {"priority": random.choice([0, 0, 5])}
    return body | random.choice([{}, {"duration": "PT8H"}, {"duration": "P30D"}])


async def compare(found: Inside, body: dict[str, Any]) -> str:
    """Simulate, order, and compare; return what became of it."""
    before = await found.ends()
    quote = await found.done("sim-dev", "POST", "/orders:simulate", body)
    assert await found.ends() == before, "a simulation writes nothing"
    assert quote["silent"] == []
    order = (await found.done("sim-dev", "POST", "/orders", body))["id"]
    await found.settle()
    record, said = await found.record(order), quote["admission"]
    assert quote["request"]["specification"] == record["specification"]
    told = [{**reason, "since": None} for reason in quote["reasons"]]
    got = [{**reason, "since": None} for reason in record["reasons"]]
    if said["outcome"] == "admitted":
        assert record["phase"] == ("active" if quote["queue"]["placed"] else "queued")
        queue = await found.done("sim-dev", "GET", "/queue")
        item = next((item for item in queue["items"] if item["order"] == order), None)
        expected = item or {"position": None, "reasons": [], "estimate": found.product.clock.now().isoformat()}
        assert (quote["queue"]["position"], quote["queue"]["reasons"]) == (expected["position"], expected["reasons"])
        assert (quote["queue"]["starts_at"] or "")[:19] == (expected["estimate"] or "")[:19]
        assert [reason["code"] for reason in told] == [reason["code"] for reason in got]
    else:
        assert record["phase"] == PHASES[said["outcome"]]
        assert told == got
    if said["approval"]:
        asked = record["approvals"][0]
        first, levels = said["approval"]["levels"][0], len(said["approval"]["levels"])
        assert (asked["policy"], asked["levels"]) == (said["approval"]["policy"], levels)
        assert (asked["approvers"], asked["needed"]) == (first["approvers"], first["needed"])
    return f"{said['outcome']}{' at once' if record['phase'] == 'active' else ''}"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_an_order_gets_what_its_simulation_said(tmp_path: Path, seed: int) -> None:
    random, seen = Random(seed), set()
    async with inside(tmp_path, scene()) as found:
        await found.done("sim-ada", "PUT", "/approval-policies?tenant=sim", {"policies": [POLICY]})
        await found.settle()
        for number in range(24):
            seen.add(await compare(found, wish(random)))
            if number % 4 == 3:
                await found.done("operator", "POST", "/sim/clock", {"advance": "PT3H"})
            if number % 6 == 5:
                live = (await found.done("sim-dev", "GET", "/orders?phase=active"))["items"]
                if live:
                    await found.done("sim-dev", "POST", f"/orders/{random.choice(live)['id']}/release")
                    await found.settle()
    assert seen == {"admitted at once", "admitted", "pending_approval", "held", "rejected"} or seed != 1


async def test_quota_effects_name_every_scope_and_dimension_and_the_wait_its_date(tmp_path: Path) -> None:
    async with inside(tmp_path, scene()) as found:
        limits = {"limits": {"cards": 6, "accelerator_memory_mib": 6 * MEMORY_MIB}}
        await found.done("operator", "PUT", "/quotas/sim/lab", limits)
        await found.settle()
        body = {"project": "sim/lab", "service_model": "vm", "specification": "sim-4", "duration": "PT8H"}
        quote = await found.done("sim-dev", "POST", "/orders:simulate", body)
        left = {(it["scope"], it["dimension"]): it["left_after"] for it in quote["admission"]["effects"]}
        assert (left["sim", "cards"], left["sim/lab", "cards"]) == (22, 2)
        assert left["sim/lab", "accelerator_memory_mib"] == 2 * MEMORY_MIB
        assert left["sim", "card_hours_month@2026-01"] == (5_000 - 32) * 3_600_000_000
        await found.order("sim-dev", **body)
        await found.settle()
        held = await found.done("sim-dev", "POST", "/orders:simulate", body)
        assert held["admission"]["outcome"] == "held"
        assert {it["figures"]["dimension"] for it in held["reasons"]} == {"cards", "accelerator_memory_mib"}
        assert held["queue"]["placed"] is True, "cards are there: it is the quota that stands in the way"


async def test_who_may_not_see_the_project_learns_nothing(tmp_path: Path) -> None:
    async with inside(tmp_path, scene()) as found:
        body = {"project": "sim/lab", "service_model": "vm", "specification": "sim-1"}
        reply = await found.call("nobody", "POST", "/orders:simulate", body)
        assert (reply.status_code, reply.json()["code"]) == (404, "not-found")


def test_a_simulation_is_answered_whole_in_both_ways_to_run(stage: SetUp) -> None:
    play = stage("quoted", limits={"cards": 4})
    quote = play.dev.quote(play.body(cards=4))
    assert (quote["silent"], quote["admission"]["outcome"], quote["queue"]["placed"]) == ([], "admitted", True)
    never = play.dev.quote(play.body(cards=8))
    assert [reason["code"] for reason in never["reasons"]] == ["quota-never-fits"]
