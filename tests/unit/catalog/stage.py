"""The catalog, served in this process on a log in memory; facts of the other services are told by the tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from qm_catalog.app import build
from qm_catalog.settings import Settings
from qm_events import EventData, new_event
from qm_service.http import create_app
from qm_service.local_issuer import LocalIssuer
from qm_service.service import Kit
from qm_service.testing.world import World
from qm_service.tokens import KeyRing, TokenVerifier

ISSUER = "http://issuer.test"
OPERATOR = "otto"
SPECIFICATION = {
    "name": "gpu-2x",
    "accelerators": ["a100"],
    "cards_per_unit": 2,
    "accelerator_memory_mib": 81_920,
    "cpu_milli": 32_000,
    "memory_mib": 262_144,
}
OFFERING = {
    "name": "gpu-2x-vm",
    "specification": "gpu-2x",
    "service_model": "vm",
    "price_per_card_hour": "2.50",
    "currency": "EUR",
}
ORDER = {"project": "vision", "specification": "gpu-2x", "service_model": "vm"}
_STREAMS = {"admissions": "admission", "allocations": "allocation", "environments": "environment"}
_SERVICES = {"admissions": "admission", "allocations": "scheduler", "environments": "provisioner", "usage": "metering"}


@dataclass
class Stage:
    """The catalog and its callers."""

    world: World
    client: httpx.AsyncClient
    issuer: LocalIssuer
    versions: dict[str, int] = field(default_factory=dict)

    def token(self, subject: str) -> dict[str, str]:
        """Return the header that says who calls."""
        return {"Authorization": f"Bearer {self.issuer.mint(subject, timedelta(hours=1))}"}

    async def call(
        self, method: str, path: str, body: Any = None, *, by: str = "dora", **headers: str
    ) -> httpx.Response:
        """Send a request; header names are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(method, f"/v1{path}", json=body, headers=self.token(by) | named)

    async def done(self, method: str, path: str, body: Any = None, *, by: str = "dora", **headers: str) -> Any:
        """Send a request that must go well and return its body."""
        reply = await self.call(method, path, body, by=by, **headers)
        assert reply.is_success, reply.text
        return reply.json()

    async def order(self, **changes: Any) -> dict[str, Any]:
        """Place an order and return its record."""
        record: dict[str, Any] = await self.done("POST", "/orders", ORDER | changes)
        return record

    async def tell(self, *facts: EventData, key: str | None = None) -> None:
        """Put facts of other services on the log and let the catalog read them."""
        for fact in facts:
            kind = _STREAMS.get(fact.topic)
            stream = f"{kind}/{fact.order}" if kind else f"usage/{fact.allocation}"
            self.versions[stream] = version = self.versions.get(stream, 0) + 1
            source = f"/quartermaster/{_SERVICES[fact.topic]}"
            now = self.world.clock.now()
            await self.world.publish(
                new_event(stream, version, now, source, fact, tenant="acme", project="vision", correlation=fact.order)
            )
        await self.world.settle()


@asynccontextmanager
async def staged(folder: Path, **more: Any) -> AsyncIterator[Stage]:
    """Serve the catalog with two tenants, a few people, and something to order; `more` are further settings."""
    world = World()
    issuer = LocalIssuer(folder / "issuer.pem", ISSUER)
    tokens = TokenVerifier(ISSUER, "quartermaster", KeyRing(issuer.fetch))
    settings = Settings(bootstrap_operator=OPERATOR, **more)
    service = build(Kit(world.database("catalog"), world.log, world.clock, settings, tokens))
    world.add(service.runtime)
    async with world:
        await service.workers[0].prepare()
        transport = httpx.ASGITransport(create_app([service], tokens, title="Catalog"))
        async with httpx.AsyncClient(transport=transport, base_url="http://catalog.test") as client:
            stage = Stage(world, client, issuer)
            await furnish(stage)
            await world.settle()
            yield stage
        for worker in service.workers:
            await worker.stop()


async def furnish(stage: Stage) -> None:
    """Fill the directory and the catalogue, as an operator does."""
    for tenant in ("acme", "beta"):
        await stage.done("POST", "/tenants", {"name": tenant}, by=OPERATOR)
        await stage.done("POST", "/projects", {"tenant": tenant, "name": "vision"}, by=OPERATOR)
    members = (
        ("/projects/acme.vision", "dora", "developer"),
        ("/projects/acme.vision", "vera", "viewer"),
        ("/projects/acme.vision", "owen", "project_owner"),
        ("/tenants/acme", "tina", "tenant_admin"),
        ("/projects/beta.vision", "bert", "developer"),
        ("/tenants/platform", "anna", "auditor"),
    )
    for place, subject, role in members:
        await stage.done("POST", f"{place}/members", {"subject": subject, "role": role}, by=OPERATOR)
    await stage.done("POST", "/specifications", SPECIFICATION, by=OPERATOR)
    await stage.done("POST", "/offerings", OFFERING, by=OPERATOR)
    image = {"name": "ubuntu", "service_models": ["vm", "bare_metal"], "reference": "img-1"}
    await stage.done("POST", "/images", image, by=OPERATOR)
    await stage.done("POST", "/models", {"name": "llama", "reference": "m-1"}, by=OPERATOR)
