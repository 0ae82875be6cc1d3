"""The service on the chassis: fed from the topics, asked over HTTP."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import httpx
import pytest

from qm_events import Event, EventData, new_event
from qm_events.catalog import (
    MemberGranted,
    OrderReleaseRequested,
    OrderSubmitted,
    ProjectRegistered,
    TenantRegistered,
)
from qm_events.provisioner import EnvironmentFailed, EnvironmentReady
from qm_events.scheduler import AllocationAllocated, AllocationReturned
from qm_events.specs import PlacedUnit, Role
from qm_metering.app import build
from qm_metering.consumers import METERING
from qm_service.http import create_app
from qm_service.replay import replay, verify
from qm_service.runtime import Runtime
from qm_service.service import Kit
from qm_service.settings import Settings
from qm_service.testing.world import START, World
from qm_service.tokens import Verified
from tests.unit.metering.facts import REQUEST


class Tokens:
    """A verifier that takes the name of the subject for a token."""

    async def verify(self, token: str) -> Verified:
        return Verified(token, None, 2**40)


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


class Story:
    """Writes facts of others with contiguous versions, as their owners would."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.versions: dict[str, int] = {}

    async def tell(self, stream: str, *facts: EventData, project: str | None = "vision") -> None:
        events: list[Event] = []
        for data in facts:
            self.versions[stream] = version = self.versions.get(stream, 0) + 1
            source = "/quartermaster/story"
            told_at = max(self.world.clock.now(), minute(120))
            events.append(new_event(stream, version, told_at, source, data, tenant="acme", project=project))
        await self.world.publish(*events)
        await self.world.settle()

    async def run(self, order: str, *, ready: int, end: int | None = None, back: int | None = None) -> None:
        self.world.clock.set(minute(back or end or 0))
        allocation = f"a-{order}"
        unit = PlacedUnit(node="n", accelerator="h100", cards=("c1", "c2"))
        await self.tell(f"order/{order}", OrderSubmitted(order=order, request=REQUEST, digest="d", submitted_at=START))
        await self.tell(
            f"allocation/{order}",
            AllocationAllocated(
                order=order, allocation=allocation, request=REQUEST, units=(unit,), allocated_at=minute(0)
            ),
        )
        await self.tell(
            f"environment/{order}",
            EnvironmentReady(order=order, allocation=allocation, endpoint={}, ready_at=minute(ready)),
        )
        if end is not None:
            release = OrderReleaseRequested(order=order, requested_at=minute(end))
            await self.tell(f"order/{order}", release)
        if back is not None:
            returned = AllocationReturned(
                order=order, allocation=allocation, pooled=(), quarantined=(), returned_at=minute(back)
            )
            await self.tell(f"allocation/{order}", returned)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    kit = Kit(world.database("metering"), world.log, world.clock, Settings(), Tokens())
    service = build(kit)
    world.add(service.runtime)
    async with world:
        world.app = create_app([service], Tokens(), title="metering")
        await Story(world).tell(
            "tenant/acme",
            TenantRegistered(tenant="acme", display_name="Acme"),
            ProjectRegistered(tenant="acme", project="vision", display_name="Vision"),
            ProjectRegistered(tenant="acme", project="speech", display_name="Speech"),
            MemberGranted(tenant="acme", project="vision", subject="ada", role=Role.DEVELOPER),
            MemberGranted(tenant="acme", project="speech", subject="bob", role=Role.DEVELOPER),
            MemberGranted(tenant="platform", subject="olga", role=Role.AUDITOR),
            project=None,
        )
        yield world


async def get(world: World, who: str, path: str, **params: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=world.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://metering") as client:
        return await client.get(f"/v1{path}", params=params, headers={"Authorization": f"Bearer {who}"})


async def test_an_order_is_metered_from_allocated_to_returned_and_billed_from_ready_to_release(world):
    await Story(world).run("o-1", ready=10, end=70, back=90)
    assert [(line.meter, line.card_us // 60_000_000) for line in await world.facts("usage")] == [
        ("billable", 120),
        ("held", 180),
    ]
    report = (await get(world, "ada", "/usage/orders/o-1")).json()
    assert report["held"] == {"card_us": 10_800_000_000, "card_hours": "3.000000000", "card_hours_ratio": "3/1"}
    assert report["billable"]["card_hours"] == "2.000000000"
    assert [(it["counts_as"], it["payer"], it["began"]["said"]) for it in report["stretches"]] == [
        ("provisioning", "platform", "allocated"),
        ("billable", "project", "ready"),
        ("recovering", "platform", "released"),
    ]


async def test_what_runs_counts_up_to_now(world):
    await Story(world).run("o-1", ready=10)
    await world.advance(minutes=30)
    row = (await get(world, "ada", "/usage", group_by="order,accelerator")).json()["items"][0]
    assert (row["order"], row["accelerator"], row["tenant"]) == ("o-1", "h100", None)
    assert (row["held"]["card_hours_ratio"], row["billable"]["card_hours_ratio"]) == ("1/1", "2/3")
    await world.advance(minutes=30)
    totals = (await get(world, "ada", "/usage")).json()["totals"]
    assert (totals["held"]["card_hours_ratio"], totals["billable"]["card_hours_ratio"]) == ("2/1", "5/3")


async def test_a_window_is_cut_exactly(world):
    await Story(world).run("o-1", ready=10, end=70, back=90)
    window = {"from": minute(60).isoformat(), "to": minute(80).isoformat()}
    report = (await get(world, "ada", "/usage", **window)).json()
    assert report["totals"]["held"]["card_hours_ratio"] == "2/3"
    assert report["totals"]["billable"]["card_hours_ratio"] == "1/3"


async def test_the_groups_come_in_pages_and_the_totals_hold_all(world):
    story = Story(world)
    for number in range(3):
        await story.run(f"o-{number}", ready=0, end=30, back=30)
    first = (await get(world, "ada", "/usage", group_by="order", limit="2")).json()
    second = (await get(world, "ada", "/usage", group_by="order", limit="2", after=first["next"])).json()
    assert [row["order"] for row in (*first["items"], *second["items"])] == ["o-0", "o-1", "o-2"]
    assert first["totals"] == second["totals"]
    assert second["next"] is None


async def test_nobody_sees_the_usage_of_a_project_without_a_role_there(world):
    await Story(world).run("o-1", ready=10, end=70, back=90)
    assert (await get(world, "bob", "/usage", group_by="project")).json()["items"] == []
    assert (await get(world, "bob", "/usage/orders/o-1")).status_code == 404
    assert (await get(world, "bob", "/usage/orders/o-1")).json()["detail"] == (
        await get(world, "bob", "/usage/orders/none")
    ).json()["detail"]
    assert (await get(world, "olga", "/usage", group_by="project")).json()["items"][0]["project"] == "vision"
    assert (await get(world, "olga", "/usage/orders/o-1")).status_code == 200


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"from": "2026-06-02T00:00:00Z", "to": "2026-06-01T00:00:00Z"}, "window-reversed"),
        ({"group_by": "colour"}, "validation-failed"),
        ({"group_by": "order,order"}, "validation-failed"),
        ({"from": "2026-06-02T00:00:00"}, "validation-failed"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(world, params, code):
    reply = await get(world, "ada", "/usage", **params)
    assert (reply.status_code, reply.json()["code"]) == (422, code)


async def test_a_late_failure_corrects_what_was_recorded_and_the_sums_follow(world):
    story = Story(world)
    await story.run("o-1", ready=10, end=70)
    failure = EnvironmentFailed(order="o-1", allocation="a-o-1", step="boot", error="no", failed_at=minute(40))
    await story.tell("environment/o-1", failure)
    assert await world.types("usage") == ["usage.recorded", "usage.corrected", "usage.recorded"]
    totals = (await get(world, "ada", "/usage")).json()["totals"]
    assert (totals["held"]["card_hours_ratio"], totals["billable"]["card_hours_ratio"]) == ("7/3", "1/1")
    report = (await get(world, "ada", "/usage/orders/o-1")).json()
    assert (report["stretches"][-1]["counts_as"], report["stretches"][-1]["to_at"]) == ("failed", None)


async def test_a_rebuild_from_the_topics_is_the_same_to_the_byte_and_writes_nothing_new(world):
    story = Story(world)
    await story.run("o-1", ready=10, end=70)
    failure = EnvironmentFailed(order="o-1", allocation="a-o-1", step="boot", error="no", failed_at=minute(40))
    await story.tell("environment/o-1", failure)
    await story.run("o-2", ready=10, end=20, back=30)
    await story.run("o-3", ready=10)
    before = await world.facts("usage")
    live = world.runtimes["metering"].database
    assert (await verify(METERING, live, world.database("fresh"), world.log)).differing == []
    rebuilt = World(log=world.log)
    await replay(METERING, (again := rebuilt.database("again")), world.log)
    rebuilt.add(Runtime(METERING, again, world.log, world.clock))
    rebuilt.clock.set(world.clock.now())
    await rebuilt.runtimes["metering"].start()
    await rebuilt.settle()
    assert await world.facts("usage") == before
    await rebuilt.runtimes["metering"].stop()
    await again.close()
