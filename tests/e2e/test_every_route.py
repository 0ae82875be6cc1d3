"""The sweep over the whole product: five services, their directory, an order at work and one that awaits approval."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from qm_catalog.directory import declare
from qm_client.embedded.clock import StoredClock
from qm_client.embedded.product import OPERATOR, Product, build, opened
from qm_client.embedded.scenario import load_scenario
from qm_client.embedded.settle import settled
from qm_client.embedded.up import SAMPLE, ensure_loaded
from qm_events.catalog import MemberGranted
from qm_events.ids import PLATFORM
from qm_events.specs import Role
from qm_service.access import ACCESS, PLATFORM_ROLES
from qm_service.directory import Grant
from tests.contract.access_sweep import HOME, PROJECT, Ask, Site, cast, sweep

pytestmark = pytest.mark.e2e
URL = "http://127.0.0.1:8080"
LATER = "2026-02-01T00:00:00Z"
SPECIFICATION = {
    "accelerators": ["a100"],
    "cards_per_unit": 1,
    "accelerator_memory_mib": 1,
    "cpu_milli": 1,
    "memory_mib": 1,
}
REQUEST = {
    "tenant": HOME,
    "project": PROJECT,
    "requester": "sweep",
    "specification": {"name": "tiny", "version": 1, **SPECIFICATION},
    "service_model": "vm",
}
OBSERVATION = {"card": "npu-2-c7", "source": "sweep", "status": "healthy", "observed_at": "2026-01-01T00:00:00Z"}
ITEMS = {
    "specifications": "npu-1",
    "offerings": "maas-npu",
    "images": "pytorch",
    "models": "llama-small",
    "accelerators": "npu910",
}
RESERVED = {
    "tenant": HOME,
    "accelerator": "a100",
    "starts_at": "2090-01-01T00:00:00Z",
    "ends_at": "2090-01-02T00:00:00Z",
    "reason": "sweep",
}
ASKS: Mapping[str, Ask] = {
    "POST /v1/orders:simulate": Ask({"project": "acme/vision", "specification": "a100-1", "service_model": "vm"}),
    "POST /v1/orders": Ask({"project": "acme/vision", "specification": "a100-1", "service_model": "vm"}),
    "POST /v1/orders/{order}/extend": Ask({"expires_at": LATER}),
    "POST /v1/tenants": Ask({"name": "initech"}),
    "POST /v1/projects": Ask({"tenant": HOME, "name": "audio"}),
    "POST /v1/projects/{project}/members": Ask({"subject": "alice", "role": "viewer"}),
    "DELETE /v1/projects/{project}/members": Ask(query={"subject": "alice", "role": "viewer"}),
    "POST /v1/tenants/{tenant}/members": Ask({"subject": "alice", "role": "viewer"}),
    "DELETE /v1/tenants/{tenant}/members": Ask(query={"subject": "alice", "role": "viewer"}),
    "POST /v1/specifications": Ask({"name": "tiny", **SPECIFICATION}),
    "POST /v1/offerings": Ask(
        {"name": "o", "specification": "a100-1", "service_model": "vm", "price_per_card_hour": "1", "currency": "EUR"}
    ),
    "POST /v1/images": Ask({"name": "i", "service_models": ["vm"], "reference": "image:i"}),
    "POST /v1/accelerators": Ask({"name": "x1", "vendor": "x", "memory_mib": 1}),
    "POST /v1/models": Ask({"name": "m", "reference": "oci:m"}),
    "POST /v1/subjects": Ask({"tenant": HOME, "subject": "zoe"}),
    "POST /v1/subjects/{subject}/erase": Ask({"tenant": HOME}),
    "PUT /v1/subjects/{subject}/manager": Ask({"tenant": HOME, "manager": "bob"}),
    "POST /v1/tenants/{tenant}/groups/{group}/members": Ask({"subject": "victor"}),
    "DELETE /v1/tenants/{tenant}/groups/{group}/members": Ask(query={"subject": "victor"}),
    "GET /v1/delegations/{subject}": Ask(query={"tenant": HOME}, values={"subject": "bob"}),
    "PUT /v1/delegations/{subject}": Ask({"absences": []}, query={"tenant": HOME}, values={"subject": "bob"}),
    "PUT /v1/quotas/{tenant}": Ask({"limits": {"cards": 40}}),
    "PUT /v1/quotas/{tenant}/{project}": Ask({"limits": {"cards": 24}}, values={"project": PROJECT}),
    "GET /v1/quotas/{tenant}/{project}": Ask(values={"project": PROJECT}),
    "POST /v1/quotas/{tenant}/{project}:simulate": Ask({"request": REQUEST}, values={"project": PROJECT}),
    "POST /v1/quota-requests": Ask({"tenant": HOME, "project": PROJECT, "limits": {"cards": 30}, "reason": "sweep"}),
    "GET /v1/approval-policies": Ask(query={"tenant": HOME}),
    "PUT /v1/approval-policies": Ask({"policies": []}, query={"tenant": HOME}),
    "PUT /v1/fleet/nodes/{node}": Ask({"cpu_milli": 1, "memory_mib": 1, "cards": []}, values={"node": "spare"}),
    "POST /v1/fleet/nodes/{node}/cordon": Ask({"reason": "sweep"}),
    "POST /v1/fleet/nodes/{node}/drain": Ask({"reason": "sweep"}),
    "POST /v1/fleet/nodes/{node}/retire": Ask({"reason": "sweep"}, values={"node": "spare"}),
    "POST /v1/fleet/claims/{order}/clear": Ask({"reason": "sweep"}, values={"order": "no-such-claim"}),
    "POST /v1/fleet/health": Ask([OBSERVATION]),
    "GET /v1/exports/focus": Ask(query={"tenant": HOME, "month": "2026-01"}),
    "POST /v1/budgets": Ask({"tenant": HOME, "budget": "june", "amount": "1", "currency": "EUR"}),
    "POST /v1/prices": Ask(
        {"offering": "maas-npu", "price_per_card_hour": "1.5", "currency": "EUR", "from_at": "2026-02-01T00:00:00Z"}
    ),
    "POST /v1/queue:simulate": Ask({}),
    "POST /v1/queue/{tenant}/{project}:simulate": Ask({"request": REQUEST}, values={"project": PROJECT}),
    "PUT /v1/shares/{tenant}/{project}": Ask({"weight": 2}, values={"project": PROJECT}),
    "POST /v1/reservations": Ask(RESERVED),
    "POST /v1/sim/token": Ask({"subject": "bob"}),
    "POST /v1/sim/clock": Ask({}),
    "PUT /v1/sim/backends/{service_model}": Ask({"steps": {}}),
    "PUT /v1/sim/cards/{card}": Ask({"broken": False}),
    **{f"GET /v1/{kind}/{{name}}": Ask(values={"name": name}) for kind, name in ITEMS.items()},
    **{
        f"POST /v1/{kind}/{{name}}/status": Ask({"status": "deprecated"}, values={"name": name})
        for kind, name in ITEMS.items()
    },
}


@asynccontextmanager
async def product(folder: Path) -> AsyncIterator[tuple[Product, httpx.AsyncClient]]:
    """Run the product with its sample world, at rest."""
    async with (
        opened(build(folder, StoredClock(folder / "clock"))) as built,
        built.app.router.lifespan_context(built.app),
        httpx.AsyncClient(transport=httpx.ASGITransport(built.app), base_url=URL, timeout=60) as client,
    ):
        await ensure_loaded(built, URL, load_scenario(SAMPLE))
        await settled(built.services, built.log)
        yield built, client


async def people(built: Product) -> dict[str, Grant | None]:
    """Put the cast into the directory, as far as a role has a place where it is granted."""
    catalog, known = built.services[0].runtime, cast()
    for subject, grant in cast().items():
        if grant is None:
            continue
        if (grant.tenant == PLATFORM) != (grant.role in PLATFORM_ROLES):
            del known[subject]
            continue
        tenant = "globex" if grant.tenant == "beta" else grant.tenant
        fact = MemberGranted(tenant=tenant, project=grant.project, subject=subject, role=grant.role)
        await catalog.execute(declare(tenant, fact))
    return known


async def test_every_route_keeps_its_promise_to_every_role(tmp_path: Path) -> None:
    async with product(tmp_path) as (built, client):
        known = await people(built)

        @cache
        def header(subject: str) -> Mapping[str, str]:
            return {"Authorization": f"Bearer {built.issuer.mint(subject)}"}

        async def placed(**order: Any) -> str:
            body = {"project": "acme/vision", "specification": "a100-1", "service_model": "vm", **order}
            reply = await client.post("/v1/orders", json=body, headers=header(f"project-{Role.DEVELOPER}"))
            assert reply.status_code == 202, reply.text
            return str(reply.json()["id"])

        order, big = await placed(), await placed(specification="a100-8", service_model="bare_metal")
        await settled(built.services, built.log)
        open_ones = await client.get("/v1/approvals", headers=header(f"project-{Role.APPROVER}"))
        (approval,) = [one["approval"] for one in open_ones.json()["items"] if one["order"] == big]
        request = await client.post(
            "/v1/quota-requests",
            json={"tenant": HOME, "project": PROJECT, "limits": {"cards": 28}, "reason": "more"},
            headers=header(f"project-{Role.DEVELOPER}"),
        )
        assert request.status_code == 201, request.text
        reserved = await client.post("/v1/reservations", json=RESERVED, headers=header(f"tenant-{Role.TENANT_ADMIN}"))
        assert reserved.status_code == 201, reserved.text
        site = Site(
            client=client,
            lines=built.app.state.bound.values(),
            header=header,
            values={
                "order": order,
                "approval": approval,
                "quota_request": request.json()["request"],
                "tenant": HOME,
                "project": f"{HOME}.{PROJECT}",
                "subject": "alice",
                "node": "gpu-2",
                "card": "gpu-1-c0",
                "service_model": "vm",
                "group": "board",
                "reservation": reserved.json()["reservation"],
                "period": f"{HOME}.2025-12",
            },
            asks=ASKS,
            people=known,
            secrets=[order, big, "alice"],
        )
        assert {line.action for line in site.lines} == {f"{method} {path}" for method, path in ACCESS}
        faults = await sweep(site)
        assert not faults, "\n".join(faults)
        assert OPERATOR not in known
