"""Admission, served in this process on a log in memory; facts of the other services are told by the tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from qm_admission.app import build
from qm_admission.settings import Settings
from qm_events import EventData, new_event
from qm_events.catalog import MemberGranted, OrderSubmitted, ProjectRegistered, TenantRegistered
from qm_events.specs import OrderRequest, Role
from qm_service.http import create_app
from qm_service.service import Kit
from qm_service.testing.world import World
from qm_service.tokens import Verified

PEOPLE = (
    ("acme", "vision", "dev", Role.DEVELOPER),
    ("acme", "vision", "ann", Role.APPROVER),
    ("acme", None, "bob", Role.APPROVER),
    ("acme", None, "tina", Role.TENANT_ADMIN),
    ("acme", "speech", "kim", Role.VIEWER),
    ("beta", None, "bert", Role.TENANT_ADMIN),
    ("platform", None, "otto", Role.OPERATOR),
)


class Tokens:
    """A verifier that takes the name of the subject for a token."""

    async def verify(self, token: str) -> Verified:
        return Verified(token, None, 2**40)


@dataclass
class Stage:
    """Admission and its callers."""

    world: World
    client: httpx.AsyncClient
    versions: dict[str, int] = field(default_factory=dict)

    async def call(
        self, method: str, path: str, body: Any = None, *, by: str = "tina", **headers: str
    ) -> httpx.Response:
        """Send a request; header names are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(
            method, f"/v1{path}", json=body, headers={"Authorization": f"Bearer {by}"} | named
        )

    async def done(self, method: str, path: str, body: Any = None, *, by: str = "tina", **headers: str) -> Any:
        """Send a request that must go well and return its body."""
        reply = await self.call(method, path, body, by=by, **headers)
        assert reply.is_success, reply.text
        return reply.json()

    async def refused(self, method: str, path: str, body: Any = None, *, by: str = "tina", **headers: str) -> Any:
        """Send a request that must not go well; return status and code."""
        reply = await self.call(method, path, body, by=by, **headers)
        assert reply.headers["content-type"] == "application/problem+json", reply.text
        problem = reply.json()
        assert problem["remedy"]
        return reply.status_code, problem["code"]

    async def tell(self, stream: str, *facts: EventData) -> None:
        """Put facts of another service on the log and let admission read them."""
        await self.publish(stream, *facts)
        await self.world.settle()

    async def publish(self, stream: str, *facts: EventData, tenant: str = "acme") -> None:
        """Put facts of another service on the log."""
        for fact in facts:
            self.versions[stream] = version = self.versions.get(stream, 0) + 1
            event = new_event(stream, version, self.world.clock.now(), "/quartermaster/test", fact, tenant=tenant)
            await self.world.publish(event)

    async def submit(self, order: str, asked: OrderRequest) -> None:
        """Submit an order."""
        at = self.world.clock.now()
        fact = OrderSubmitted(order=order, request=asked, digest=f"digest-{order}", submitted_at=at)
        await self.tell(f"order/{order}", fact)

    async def said(self, order: str) -> list[str]:
        """Return what admission wrote about an order."""
        return list(await self.world.types("admissions", f"admission/{order}"))


@asynccontextmanager
async def staged(world: World | None = None) -> AsyncIterator[Stage]:
    """Serve admission with two tenants and a few people."""
    world = world or World()
    tokens: Any = Tokens()
    service = build(Kit(world.database("admission"), world.log, world.clock, Settings(), tokens))
    world.add(service.runtime)
    async with world:
        transport = httpx.ASGITransport(create_app([service], tokens, title="Admission"))
        async with httpx.AsyncClient(transport=transport, base_url="http://admission.test") as client:
            stage = Stage(world, client)
            await furnish(stage)
            yield stage


async def furnish(stage: Stage) -> None:
    """Fill the directory."""
    facts: dict[str, list[EventData]] = {"platform": []}
    for tenant in ("acme", "beta"):
        projects = [ProjectRegistered(tenant=tenant, project=name, display_name=name) for name in ("vision", "speech")]
        facts[tenant] = [TenantRegistered(tenant=tenant, display_name=tenant), *projects]
    for tenant, project, subject, role in PEOPLE:
        facts[tenant].append(MemberGranted(tenant=tenant, project=project, subject=subject, role=role))
    for tenant, some in facts.items():
        await stage.publish(f"tenant/{tenant}", *some, tenant=tenant)
    await stage.world.settle()
