"""The topics are the truth: a catalog that lost its database answers as before, byte for byte."""

from pathlib import Path

import httpx

from qm_catalog.app import build
from qm_catalog.consumers import CATALOG
from qm_catalog.settings import Settings
from qm_events.admission import OrderRejected
from qm_service.http import create_app
from qm_service.replay import replay, state_hash, verify
from qm_service.runtime import Runtime
from qm_service.sealed import METADATA
from qm_service.service import Kit
from qm_service.testing.world import World
from qm_service.tokens import KeyRing, TokenVerifier
from tests.unit.catalog import walk
from tests.unit.catalog.stage import ISSUER, OPERATOR, Stage, staged

PATHS = (
    "/orders",
    "/tenants",
    "/projects",
    "/specifications",
    "/offerings",
    "/images",
    "/models",
    "/projects/acme.vision/members",
)


async def played(stage: Stage) -> list[str]:
    """Play every story of `walk`, each for an order of its own, and return what can be read."""
    ids = []
    for story in walk.STORIES.values():
        order = (await stage.order(duration="PT8H"))["id"]
        ids.append(order)
        for event in walk.in_order(story):
            if event.data.topic != "orders":
                await stage.tell(event.data.model_copy(update=_for(event.data, order)))
            elif event.version > 1:
                await stage.done("POST", f"/orders/{order}/release")
    subject = {"tenant": "acme", "subject": "dora", "display_name": "Dora", "email": "dora@example.org"}
    await stage.done("POST", "/subjects", subject, by="tina")
    await stage.world.settle()
    return [*PATHS, *(f"/orders/{order}" for order in ids), *(f"/orders/{order}/events" for order in ids)]


def _for(data: object, order: str) -> dict[str, str]:
    names = {"order": order}
    return names | ({"allocation": f"allocation-of-{order}"} if hasattr(data, "allocation") else {})


async def test_every_answer_is_the_same_after_a_rebuild(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        paths = await played(stage)
        before = {path: (await stage.call("GET", path, by=OPERATOR)).content for path in paths}
        assert all(b'"status":4' not in body[:200] for body in before.values())
        live = stage.world.runtimes["catalog"].database

        world = World(log=stage.world.log)
        world.clock.set(stage.world.clock.now())
        database = world.database("catalog")
        await replay(CATALOG, database, stage.world.log)
        await keep_keys(live, database)
        tokens = TokenVerifier(ISSUER, "quartermaster", KeyRing(stage.issuer.fetch))
        service = build(Kit(database, world.log, world.clock, Settings(bootstrap_operator=OPERATOR), tokens))
        world.add(service.runtime)
        async with world:
            await service.workers[0].prepare()
            await world.settle()
            transport = httpx.ASGITransport(create_app([service], tokens, title="Catalog"))
            async with httpx.AsyncClient(transport=transport, base_url="http://catalog.test") as client:
                again = Stage(world, client, stage.issuer)
                for path, body in before.items():
                    assert (await again.call("GET", path, by=OPERATOR)).content == body, path
            assert await state_hash(database, CATALOG) == await state_hash(live, CATALOG)


async def keep_keys(live: object, rebuilt: object) -> None:
    """Bring the keys of people over, as a backup does: they are not on the log."""
    (keys,) = METADATA.sorted_tables
    async with live.read() as tx:
        rows = [dict(row._mapping) for row in await tx.execute(keys.select())]
    async with rebuilt.write() as tx:
        await tx.run_sync(METADATA.create_all)
        await tx.execute(keys.insert(), rows)


async def test_a_rebuild_expires_nothing_that_was_over(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        orders = [(await stage.order(expires_at="2026-06-01T09:00:00Z"))["id"] for _ in range(3)]
        for order in orders:
            over = OrderRejected(order=order, code="never-fits", remedy="Order less.", rejected_at=walk.at(1))
            await stage.tell(over)
        await stage.world.advance(hours=5)
        assert await stage.world.types("orders") == ["order.submitted"] * 3
        world = World(log=stage.world.log)
        world.clock.set(stage.world.clock.now())
        database = world.database("catalog")
        await replay(CATALOG, database, stage.world.log)
        world.add(Runtime(CATALOG, database, world.log, world.clock, batch=1))
        async with world:
            await world.settle()
            assert await world.types("orders") == ["order.submitted"] * 3


async def test_the_live_database_is_what_the_topics_say(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await played(stage)
        live = stage.world.runtimes["catalog"].database
        comparison = await verify(CATALOG, live, stage.world.database("beside"), stage.world.log)
        assert comparison.equal, comparison.differing
