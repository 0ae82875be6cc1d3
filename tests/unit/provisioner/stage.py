"""The provisioner, served in this process on a log in memory; facts of the other services are told by the tests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from qm_events import EventData, new_event
from qm_events.catalog import MemberGranted, OrderReleaseRequested, ProjectRegistered, TenantRegistered
from qm_events.scheduler import AllocationAllocated
from qm_events.specs import Role
from qm_provisioner.app import build
from qm_provisioner.settings import Settings
from qm_service.http import create_app
from qm_service.service import Kit, Service
from qm_service.testing.world import World
from qm_service.tokens import Verified
from tests.support.provisioning import order_of

PEOPLE = (
    ("acme", "vision", "dev", Role.DEVELOPER),
    ("acme", "vision", "vic", Role.VIEWER),
    ("beta", None, "bert", Role.TENANT_ADMIN),
    ("platform", None, "otto", Role.OPERATOR),
)


class Tokens:
    """A verifier that takes the name of the subject for a token."""

    async def verify(self, token: str) -> Verified:
        """Accept."""
        return Verified(token, None, 2**40)


@dataclass
class Stage:
    """The provisioner and its callers."""

    world: World
    service: Service
    client: httpx.AsyncClient
    versions: dict[str, int] = field(default_factory=dict)

    async def call(self, method: str, path: str, body: Any = None, *, by: str = "dev") -> httpx.Response:
        """Send a request."""
        return await self.client.request(method, f"/v1{path}", json=body, headers={"Authorization": f"Bearer {by}"})

    async def done(self, method: str, path: str, body: Any = None, *, by: str = "dev") -> Any:
        """Send a request that must go well and return its body."""
        reply = await self.call(method, path, body, by=by)
        assert reply.is_success, reply.text
        return reply.json()

    async def refused(self, method: str, path: str, body: Any = None, *, by: str = "dev") -> tuple[int, str]:
        """Send a request that must not go well; return status and code."""
        reply = await self.call(method, path, body, by=by)
        assert reply.headers["content-type"] == "application/problem+json", reply.text
        return reply.status_code, reply.json()["code"]

    async def publish(self, stream: str, *facts: EventData, tenant: str = "acme") -> None:
        """Put facts of another service on the log."""
        for fact in facts:
            self.versions[stream] = version = self.versions.get(stream, 0) + 1
            event = new_event(stream, version, self.world.clock.now(), "/quartermaster/test", fact, tenant=tenant)
            await self.world.publish(event)

    async def allocate(self, order: str, model: str = "vm", count: int = 1, allocation: str = "a1") -> None:
        """Let cards be allocated, and all follow."""
        await self.place(order, model, count, allocation)
        await self.world.settle()

    async def place(self, order: str, model: str = "vm", count: int = 1, allocation: str = "a1") -> None:
        """Let cards be allocated."""
        begin = order_of(model, count)
        request = begin.request.model_validate(begin.request.model_dump(warnings=False))
        at = self.world.clock.now()
        fact = AllocationAllocated(
            order=order, allocation=allocation, request=request, units=begin.units, allocated_at=at
        )
        await self.publish(f"allocation/{order}", fact)

    async def release(self, order: str) -> None:
        """Let the order be released, and all follow."""
        await self.publish(f"order/{order}", OrderReleaseRequested(order=order, requested_at=self.world.clock.now()))
        await self.world.settle()

    async def said(self, order: str) -> Sequence[str]:
        """Return what was written about an environment."""
        return [
            name.removeprefix("environment.") for name in await self.world.types("environments", f"environment/{order}")
        ]


@asynccontextmanager
async def staged(folder: Path, world: World | None = None) -> AsyncIterator[Stage]:
    """Serve the provisioner with two tenants and a few people."""
    world = world or World()
    tokens: Any = Tokens()
    settings = Settings(simulated_clouds=folder / "clouds.sqlite", credential_keys_path=folder / "keys")
    service = build(Kit(world.database("provisioner"), world.log, world.clock, settings, tokens))
    world.add(service.runtime)
    async with world:
        for worker in service.workers:
            await worker.start()
        world.workers += service.workers
        transport = httpx.ASGITransport(create_app([service], tokens, title="Provisioner"))
        async with httpx.AsyncClient(transport=transport, base_url="http://provisioner.test") as client:
            stage = Stage(world, service, client)
            await furnish(stage)
            yield stage
        await asyncio.gather(*(worker.stop() for worker in service.workers))


async def furnish(stage: Stage) -> None:
    """Fill the directory."""
    facts: dict[str, list[EventData]] = {"platform": []}
    for tenant in ("acme", "beta"):
        project = ProjectRegistered(tenant=tenant, project="vision", display_name="Vision")
        facts[tenant] = [TenantRegistered(tenant=tenant, display_name=tenant), project]
    for tenant, project_name, subject, role in PEOPLE:
        facts[tenant].append(MemberGranted(tenant=tenant, project=project_name, subject=subject, role=role))
    for tenant, some in facts.items():
        await stage.publish(f"tenant/{tenant}", *some, tenant=tenant)
    await stage.world.settle()
