"""The embedded product inside the test's own process: its app called without a socket, its parts at hand."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from qm_client.embedded.clock import StoredClock
from qm_client.embedded.product import Product, build, opened
from qm_client.embedded.scenario import Scenario, load_scenario
from qm_client.embedded.settle import settled
from qm_client.embedded.up import SAMPLE, ensure_loaded
from qm_events import TOPICS

URL = "http://127.0.0.1:8080"
ORDER = {"project": "acme/vision", "specification": "a100-1", "service_model": "vm"}


@dataclass
class Inside:
    """The product and a client of its app."""

    product: Product
    client: httpx.AsyncClient
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, subject: str) -> str:
        """Return a token for whoever that is."""
        if subject not in self.tokens:
            self.tokens[subject] = self.product.issuer.mint(subject)
        return self.tokens[subject]

    async def call(
        self,
        subject: str,
        method: str,
        path: str,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        """Call as a subject. `path` begins after `/v1`."""
        named = {"Authorization": f"Bearer {self.token(subject)}", **(headers or {})}
        return await self.client.request(method, f"/v1{path}", json=json, headers=named, **more)

    async def done(self, subject: str, method: str, path: str, json: Any = None, **more: Any) -> dict[str, Any]:
        """Call as a subject, and return the body of the success."""
        reply = await self.call(subject, method, path, json, **more)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        body: dict[str, Any] = reply.json()
        return body

    async def order(self, subject: str = "alice", **more: Any) -> str:
        """Place an order and return its id."""
        return str((await self.done(subject, "POST", "/orders", {**ORDER, **more}))["id"])

    async def record(self, order: str) -> dict[str, Any]:
        """Return the record of an order, as the operator sees it."""
        return await self.done("operator", "GET", f"/orders/{order}")

    async def settle(self) -> None:
        """Return when all that follows from what happened has happened."""
        await settled(self.product.services, self.product.log)

    async def ends(self) -> dict[Any, int]:
        """Return how many facts each partition has."""
        await self.settle()
        return dict(await self.product.log.ends(TOPICS))


@asynccontextmanager
async def inside(folder: Path, scenario: Scenario | None = None) -> AsyncIterator[Inside]:
    """Run the product on a manual clock with a scenario, else its sample world, at rest."""
    built = build(folder, StoredClock(folder / "clock"))
    async with (
        opened(built),
        built.app.router.lifespan_context(built.app),
        httpx.AsyncClient(transport=httpx.ASGITransport(built.app), base_url=URL, timeout=60) as client,
    ):
        await ensure_loaded(built, URL, scenario or load_scenario(SAMPLE))
        found = Inside(built, client)
        await found.settle()
        yield found
