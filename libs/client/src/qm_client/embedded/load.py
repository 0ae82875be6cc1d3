"""Putting a scenario into a product, over the same HTTP API that everyone uses."""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from time import monotonic
from typing import Any

import httpx

from qm_client.embedded.scenario import Grant, Scenario

Call = tuple[str, str, Any]
"""Method, path under `/v1`, body."""

_HEARD_SECONDS = 30.0
"""How long a service may take to hear of what another was told."""
_RETRY_SECONDS = 0.05
_UNHEARD = frozenset({401, 403, 404, 503})


class LoadError(Exception):
    """The product refused a part of the scenario; names the call and its problem."""


async def load(client: httpx.AsyncClient, scenario: Scenario, at: datetime) -> None:
    """Make the world of `scenario`, its observations dated `at`. Raises LoadError."""
    for method, path, body in calls(scenario, at):
        await _send(client, method, path, body)


async def _send(client: httpx.AsyncClient, method: str, path: str, body: Any) -> None:
    end = monotonic() + _HEARD_SECONDS
    while True:
        answer = await client.request(method, f"/v1{path}", json=body)
        if answer.is_success:
            return
        if answer.status_code not in _UNHEARD or monotonic() > end:
            raise LoadError(f"{method} {path}: {answer.status_code} {answer.text}")
        await asyncio.sleep(_RETRY_SECONDS)


def calls(scenario: Scenario, at: datetime) -> Iterator[Call]:
    """Yield the calls, in an order in which each finds what it names."""
    yield from _directory(scenario)
    for kind in ("accelerators", "specifications", "images", "models", "offerings"):
        for item in getattr(scenario, kind):
            yield "POST", f"/{kind}", item.model_dump(mode="json")
    for quota in scenario.quotas:
        scope = f"{quota.tenant}/{quota.project}" if quota.project else quota.tenant
        yield "PUT", f"/quotas/{scope}", quota.model_dump(mode="json", exclude={"tenant", "project"})
    for policies in scenario.approval_policies:
        body = policies.model_dump(mode="json", exclude={"tenant"}, exclude_none=True)
        yield "PUT", f"/approval-policies?tenant={policies.tenant}", body
    for group in scenario.nodes:
        for name, node in group.nodes().items():
            yield "PUT", f"/fleet/nodes/{name}", node
    if scenario.sick_cards:
        seen = {"source": "scenario", "observed_at": at.isoformat()}
        yield "POST", "/fleet/health", [card.model_dump() | seen for card in scenario.sick_cards]
    for service_model, script in scenario.backends.items():
        yield "PUT", f"/sim/backends/{service_model}", script
    for share in scenario.shares:
        yield "PUT", f"/shares/{share.tenant}/{share.project}", {"weight": share.weight}


def _directory(scenario: Scenario) -> Iterator[Call]:
    for tenant in scenario.tenants:
        display = tenant.display_name or tenant.name
        yield "POST", "/tenants", {"name": tenant.name, "display_name": display, "timezone": tenant.timezone}
        for project in tenant.projects:
            yield "POST", "/projects", {"tenant": tenant.name, "name": project}
    for user in scenario.users:
        yield "POST", "/subjects", user.model_dump(exclude={"grants", "manager", "groups"}, exclude_none=True)
        for grant in user.grants:
            yield "POST", f"{_place(grant)}/members", {"subject": user.subject, "role": grant.role}
    for user in scenario.users:
        if user.manager is not None:
            yield "PUT", f"/subjects/{user.subject}/manager", {"tenant": user.tenant, "manager": user.manager}
        for group in user.groups:
            yield "POST", f"/tenants/{user.tenant}/groups/{group}/members", {"subject": user.subject}


def _place(grant: Grant) -> str:
    return f"/projects/{grant.tenant}.{grant.project}" if grant.project else f"/tenants/{grant.tenant}"
