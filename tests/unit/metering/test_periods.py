"""Months that close: what runs is cut, what is late is on a later bill, and nothing that was closed moves."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import httpx
import pytest

from qm_events.catalog import MemberGranted, OrderReleaseRequested, ProjectRegistered, TenantRegistered
from qm_events.provisioner import EnvironmentFailed
from qm_events.scheduler import AllocationReturned
from qm_events.specs import Role
from qm_metering.app import build
from qm_metering.consumers import METERING
from qm_service.http import create_app
from qm_service.replay import replay, verify
from qm_service.service import Kit
from qm_service.settings import Settings
from qm_service.testing.world import World
from tests.unit.metering.test_service import Story, Tokens, minute

JULY = datetime(2026, 7, 1, tzinfo=UTC)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    service = build(Kit(world.database("metering"), world.log, world.clock, Settings(), Tokens()))
    world.add(service.runtime)
    async with world:
        world.app, world.closer = create_app([service], Tokens(), title="metering"), service.workers[0]
        await Story(world).tell(
            "tenant/acme",
            TenantRegistered(tenant="acme", display_name="Acme"),
            ProjectRegistered(tenant="acme", project="vision", display_name="Vision"),
            MemberGranted(tenant="acme", subject="ada", role=Role.TENANT_ADMIN),
            MemberGranted(tenant="platform", subject="olga", role=Role.OPERATOR),
            project=None,
        )
        yield world


async def call(world: World, who: str, method: str, path: str, body: dict | None = None) -> httpx.Response:
    transport = httpx.ASGITransport(app=world.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://metering") as client:
        return await client.request(method, f"/v1{path}", json=body, headers={"Authorization": f"Bearer {who}"})


async def months(world: World) -> dict[str, dict]:
    return {it["month"]: it for it in (await call(world, "ada", "GET", "/periods")).json()["items"]}


async def running(world: World) -> Story:
    """An order that runs over the end of June, and one that ended in June."""
    story = Story(world)
    await story.run("o-1", ready=10)
    await story.run("o-2", ready=10, end=70, back=90)
    return story


async def end(world: World, story: Story, at: datetime) -> None:
    world.clock.set(at)
    await story.tell("order/o-1", OrderReleaseRequested(order="o-1", requested_at=at))
    back = AllocationReturned(order="o-1", allocation="a-o-1", pooled=(), quarantined=(), returned_at=at)
    await story.tell("allocation/o-1", back)


async def test_a_month_closes_by_itself_when_its_grace_is_over(world):
    await running(world)
    world.clock.set(JULY + timedelta(hours=71))
    await world.closer.step()
    assert (await months(world))["2026-06"]["state"] == "open"
    world.clock.set(JULY + timedelta(hours=72))
    assert not world.closer.idle()
    await world.closer.step()
    assert world.closer.idle()
    june = (await months(world))["2026-06"]
    assert (june["state"], june["lines"]) == ("closed", 4)
    assert june["held"]["card_us"] == 2 * 90 * 60_000_000 + 2 * int((JULY - minute(0)) / timedelta(microseconds=1))


async def test_the_digest_is_over_the_lines_in_the_order_of_their_ids(world):
    await running(world)
    world.clock.set(JULY)
    june = (await call(world, "olga", "POST", "/periods/acme.2026-06/close")).json()
    await world.settle()
    lines = sorted(
        await world.facts("usage", "usage/a-o-1") + await world.facts("usage", "usage/a-o-2"), key=lambda it: it.record
    )
    text = "".join(
        f"{it.record}|{it.meter}|acme/vision|{it.order}|h100|vm|{it.cards}|{us(it.from_at)}|{us(it.to_at)}|\n"
        for it in lines
    )
    assert june["digest"] == sha256(text.encode()).hexdigest()


def us(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


async def test_a_month_that_is_not_over_is_not_closed(world):
    await running(world)
    reply = await call(world, "olga", "POST", "/periods/acme.2026-06/close")
    assert (reply.status_code, reply.json()["code"]) == (409, "period-not-over")
    assert (await call(world, "ada", "POST", "/periods/acme.2026-06/close")).status_code == 403
    for nonsense in ("acme.2026-13", "acme", "none.2026-06", "acme.2026-6"):
        assert (await call(world, "olga", "POST", f"/periods/{nonsense}/close")).status_code == 404


async def test_what_is_learnt_after_the_close_is_on_the_next_bill_and_names_the_month_of_use(world):
    story = await running(world)
    world.clock.set(JULY)
    closed = (await call(world, "olga", "POST", "/periods/acme.2026-06/close")).json()
    failed_at = minute(40)
    failure = EnvironmentFailed(order="o-2", allocation="a-o-2", step="run", error="no", failed_at=failed_at)
    await story.tell("environment/o-2", failure)
    late = [it for it in await world.facts("usage", "usage/a-o-2") if it.used_in]
    assert {(it.period, it.used_in) for it in late} == {("2026-07", "2026-06")}
    now = await months(world)
    unchanged = ("state", "lines", "held", "billable", "digest", "closed_at")
    assert {name: now["2026-06"][name] for name in unchanged} == {name: closed[name] for name in unchanged}
    assert now["2026-07"]["billable"]["card_us"] == -2 * 30 * 60_000_000
    assert now["2026-07"]["held"]["card_us"] == 0


async def test_the_months_of_an_order_add_up_to_what_it_used(world):
    story = await running(world)
    world.clock.set(JULY)
    await call(world, "olga", "POST", "/periods/acme.2026-06/close")
    await end(world, story, JULY + timedelta(days=3))
    found = await months(world)
    total = sum(month["billable"]["card_us"] for month in found.values())
    assert total == 2 * us_between(minute(10), JULY + timedelta(days=3)) + 2 * 60 * 60_000_000


def us_between(start: datetime, until: datetime) -> int:
    return (until - start) // timedelta(microseconds=1)


async def test_a_month_is_not_closed_while_a_partition_is_not_read(world):
    world.expects_trouble = True
    story = await running(world)
    story.versions["order/o-1"] += 1
    await story.tell("order/o-1", OrderReleaseRequested(order="o-1", requested_at=minute(30)))
    world.clock.set(JULY)
    reply = await call(world, "olga", "POST", "/periods/acme.2026-06/close")
    assert (reply.status_code, reply.json()["code"]) == (409, "period-not-ready")


async def test_a_rebuild_after_a_close_has_the_same_digest_and_closes_nothing_again(world):
    story = await running(world)
    world.clock.set(JULY + timedelta(days=4))
    await world.closer.step()
    await end(world, story, JULY + timedelta(days=5))
    before = await world.facts("usage")
    live = world.runtimes["metering"].database
    assert (await verify(METERING, live, world.database("fresh"), world.log)).differing == []
    rebuilt = World(log=world.log)
    await replay(METERING, (again := rebuilt.database("again")), world.log)
    service = build(Kit(again, world.log, world.clock, Settings(), Tokens()))
    rebuilt.add(service.runtime)
    rebuilt.clock.set(world.clock.now())
    await service.runtime.start()
    # Facts go on to come while the rebuilt one begins.
    await story.run("o-3", ready=60 * 24 * 40, end=60 * 24 * 41, back=60 * 24 * 42)
    await rebuilt.settle()
    await service.workers[0].step()
    closed = [it for it in await world.facts("usage") if it.wire_type == "period.closed.v1"]
    assert closed == [it for it in before if it.wire_type == "period.closed.v1"]
    assert len(closed) == 1
    await service.runtime.stop()
    await again.close()
