"""Everything that the product says over HTTP: each GET route, for each thing that it can be asked about."""

import json
from collections.abc import Iterator, Mapping

import httpx

from qm_client.sdk import Client
from qm_service.access import ACCESS
from tests.support.product import Product

FEED = "/v1/events"
GROUP = "board"
GROUPS = "tenant,project,accelerator,service_model,order"
SECRET = "/v1/orders/{order}/credentials"
"""Handing out a secret is a fact, and a secret is on no topic: not asked for here."""


def answers(product: Product) -> dict[str, tuple[int, str | None, bytes]]:
    """Return status, ETag and bytes by path. Raises AssertionError where the access table has a route left out here."""
    with product.client() as operator:
        paths, feed = list(_paths(operator)), _feed(operator)
    asked = {template for template, _ in paths}
    assert asked == {path for method, path in ACCESS if method == "GET"} - {SECRET}
    # With a fixed id of the call, problems are the same bytes too.
    headers = {"authorization": f"Bearer {product.token('operator')}", "x-request-id": "answers"}
    with httpx.Client(base_url=product.url, headers=headers, timeout=30, trust_env=False) as client:
        replies = {path: client.get(path) for _, path in paths}
    said = {path: (reply.status_code, reply.headers.get("etag"), reply.content) for path, reply in replies.items()}
    return said | {FEED: (200, None, feed)}


def _feed(operator: Client) -> bytes:
    """Return the whole feed by stream: no order is promised across streams, and a cursor is a place in one order."""
    items = operator.pages(FEED.removeprefix("/v1"), limit=500)
    return json.dumps(sorted(items, key=lambda fact: (fact["subject"], fact["version"]))).encode()


def _paths(operator: Client) -> Iterator[tuple[str, str]]:
    """Yield (template, path)."""
    for template, values in _values(operator).items():
        for value in values:
            path = template
            for name, filled in value.items():
                path = path.replace(f"{{{name}}}", filled)
            yield template.partition("?")[0], path


def _values(operator: Client) -> Mapping[str, list[dict[str, str]]]:
    orders = [{"order": item["order"]} for item in operator.pages("/orders", limit=500)]
    tenants = [{"tenant": item["name"]} for item in operator.pages("/tenants", limit=500)]
    projects = [{"tenant": item["tenant"], "project": item["name"]} for item in operator.pages("/projects", limit=500)]
    nodes = [{"node": item["node"]} for item in operator.pages("/fleet/nodes", limit=500)]
    members = [
        {"tenant": one["tenant"], "subject": member["subject"]}
        for one in projects
        for member in operator.pages(f"/projects/{one['tenant']}.{one['project']}/members", limit=500)
    ]
    lists = (
        "orders",
        "tenants",
        "projects",
        "approvals",
        "quota-requests",
        "queue",
        "shares",
        "reservations",
        "fleet/nodes",
        "fleet/cards",
        "fleet/findings",
        "periods",
        "prices",
        "budgets",
        "usage/findings",
    )
    kinds = ("specifications", "offerings", "images", "models", "accelerators")
    return {
        **{f"/v1/{name}?limit=500": [{}] for name in (*lists, *kinds)},
        **{f"/v1/{kind}/{{name}}": [{"name": item["name"]} for item in operator.pages(f"/{kind}")] for kind in kinds},
        FEED: [{}],
        "/v1/fleet/capacity": [{}],
        "/v1/usage/fleet": [{}],
        "/v1/exports/focus?tenant={tenant}&month=2026-01": tenants,
        f"/v1/usage?group_by={GROUPS}&limit=500": [{}],
        "/v1/fleet/nodes/{node}": nodes,
        "/v1/fleet/nodes/{node}/drain": nodes,
        "/v1/approval-policies?tenant={tenant}": tenants,
        "/v1/delegations/{subject}?tenant={tenant}": members,
        "/v1/tenants/{tenant}/groups/{group}/members": [{**tenant, "group": GROUP} for tenant in tenants],
        **{path: tenants for path in ("/v1/tenants/{tenant}", "/v1/tenants/{tenant}/members", "/v1/quotas/{tenant}")},
        "/v1/quotas/{tenant}/{project}": projects,
        "/v1/projects/{project}/members": [{"project": f"{one['tenant']}.{one['project']}"} for one in projects],
        **{f"/v1/{path}": orders for path in ("orders/{order}", "environments/{order}", "usage/orders/{order}")},
        "/v1/orders/{order}/events?limit=500": orders,
    }
