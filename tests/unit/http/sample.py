"""A small catalog behind the real chassis: orders and the directory, enough to send every kind of request to."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field

from qm_events import Event, EventData
from qm_events.catalog import (
    MemberGranted,
    OrderCancelRequested,
    OrderSubmitted,
    ProjectRegistered,
    TenantRegistered,
)
from qm_events.specs import Role
from qm_service.caller import Access, Page, etag
from qm_service.clock import ManualClock
from qm_service.directory import DIRECTORY_PROJECTIONS
from qm_service.http import create_app
from qm_service.local_issuer import LocalIssuer
from qm_service.model import Act, Column, Context, Decider, Decision, Definition, Fold, Projection, Rejected
from qm_service.page import Paged, page
from qm_service.problem import NotFound, ProblemError, VersionConflict, problems
from qm_service.runtime import Runtime
from qm_service.service import Service
from qm_service.testing.world import World
from qm_service.tokens import KeyRing, TokenVerifier
from tests.support.toys import request

ISSUER = "http://issuer.test"
NOW = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)


class SampleFull(ProblemError):
    """The sample takes no more."""

    code, status, title = "sample-full", 409, "The sample is full"
    remedy = "Cancel an order."


@dataclass(frozen=True)
class Row:
    """An order in the list."""

    order: str
    scope: str
    count: int
    phase: str = "submitted"


def _decide(state: Row | None, command: Any, ctx: Context) -> Decision:
    match command:
        case ("submit", order, asked) if state is None:
            if asked.count > 100:
                return Rejected("sample-full", "100 are the most.")
            return [OrderSubmitted(order=order, request=asked, digest="d", submitted_at=ctx.now)]
        case "cancel" if state is not None and state.phase == "submitted":
            return [OrderCancelRequested(order=state.order, requested_at=ctx.now)]
    return []


def _evolve(state: Row | None, data: EventData) -> Row | None:
    match data:
        case OrderSubmitted():
            return Row(data.order, f"{data.request.tenant}/{data.request.project}", data.request.count)
        case OrderCancelRequested() if state is not None:
            return Row(state.order, state.scope, state.count, "cancelled")
    return state


def _fold(row: Row | None, event: Event[Any]) -> Row | None:
    return _evolve(row, event.data)


def _record(_: None, data: Any, ctx: Context) -> Decision:
    return [data]


def _unchanged(_: None, data: Any) -> None:
    return None


DEFINITION = Definition(
    name="catalog",
    deciders=(
        Decider("order", None, _decide, _evolve),
        Decider("tenant", None, _record, _unchanged),
    ),
    projections=(
        *DIRECTORY_PROJECTIONS,
        Projection(
            name="rows",
            version=1,
            model=Row,
            folds={OrderSubmitted: Fold(_fold), OrderCancelRequested: Fold(_fold)},
            columns={"scope": Column(str, lambda row: row.scope), "count": Column(int, lambda row: row.count)},
        ),
    ),
    reactions={},
)


class Submission(BaseModel):
    """The body of an order."""

    model_config = ConfigDict(extra="forbid")

    order: str = Field(min_length=1, max_length=50)
    tenant: str = "acme"
    project: str = "vision"
    count: int = Field(default=1, ge=1, le=10_000, strict=True)


class RowView(BaseModel):
    """An order as the sample shows it."""

    order: str
    scope: str
    phase: str


def _view(row: Row) -> RowView:
    return RowView(order=row.order, scope=row.scope, phase=row.phase)


def routes(runtime: Runtime) -> APIRouter:
    """Return the sample's routes, written as a service writes its own."""
    router = APIRouter()

    @router.post("/orders", status_code=202, responses=problems(SampleFull))
    async def submit_order(body: Submission, access: Access, response: Response) -> RowView:
        access.check(body.tenant, body.project)
        asked = request(tenant=body.tenant, project=body.project, count=body.count)
        act = Act(f"order/{body.order}", ("submit", body.order, asked))
        outcome = await runtime.execute(act, access.cause(body.tenant, body.project, body.order))
        response.headers["Location"] = f"/v1/orders/{body.order}"
        response.headers["ETag"] = etag(outcome.version)
        return _view(await _find(body.order))

    @router.get("/orders", responses=problems())
    async def list_orders(access: Access, window: Page, phase: str | None = None) -> Paged[RowView]:
        scopes = access.scopes()
        where: dict[str, Any] = {} if scopes is None else {"scope": scopes}
        rows = await runtime.docs.page("rows", where, ("count",), after=window.start(int, str), limit=window.fetch)
        shown, following = window.cut(rows, lambda row: (row[1].count, row[0]))
        return page([_view(row) for _, row in shown if phase in (None, row.phase)], following)

    @router.get("/orders/{order}", responses=problems())
    async def read_order(order: str, access: Access) -> RowView:
        row = await _find(order)
        access.check(*row.scope.split("/"))
        return _view(row)

    @router.post("/orders/{order}/cancel", status_code=202, responses=problems(VersionConflict))
    async def cancel_order(order: str, access: Access) -> RowView:
        row = await _find(order)
        tenant, project = row.scope.split("/")
        access.check(tenant, project)
        cause = access.cause(tenant, project, order)
        await runtime.execute(Act(f"order/{order}", "cancel"), cause, expected_version=access.if_match)
        return _view(await _find(order))

    @router.get("/fleet/nodes", responses=problems())
    async def list_nodes(access: Access) -> list[str]:
        return []

    @router.post("/tenants", status_code=202, responses=problems())
    async def register_tenant(access: Access) -> None:
        raise RuntimeError("a fault of the service, password=hunter2")

    async def _find(order: str) -> Row:
        row: Row | None = await runtime.docs.get("rows", order)
        if row is None:
            raise NotFound(f"There is no order {order}.")
        return row

    return router


GRANTS: Sequence[tuple[str, str | None, str, Role]] = (
    ("acme", "vision", "dora", Role.DEVELOPER),
    ("acme", "vision", "vera", Role.VIEWER),
    ("acme", None, "tina", Role.TENANT_ADMIN),
    ("beta", None, "bert", Role.TENANT_ADMIN),
    ("platform", None, "otto", Role.OPERATOR),
    ("platform", None, "anna", Role.AUDITOR),
)


def directory() -> list[EventData]:
    """Return the facts of two tenants and their people."""
    facts: list[EventData] = []
    for tenant in ("acme", "beta"):
        facts.append(TenantRegistered(tenant=tenant, display_name=tenant.title()))
        facts += [ProjectRegistered(tenant=tenant, project=p, display_name=p) for p in ("vision", "speech")]
    facts += [MemberGranted(tenant=t, project=p, subject=s, role=role) for t, p, s, role in GRANTS]
    return facts


@dataclass
class Stage:
    """The sample, served."""

    app: FastAPI
    client: httpx.AsyncClient
    issuer: LocalIssuer
    world: World
    clock: ManualClock

    def token(self, subject: str) -> dict[str, str]:
        """Return the header that says who calls."""
        return {"Authorization": f"Bearer {self.issuer.mint(subject, timedelta(hours=1))}"}

    async def submit(self, order: str, subject: str = "dora", **changes: Any) -> httpx.Response:
        """Place an order."""
        return await self.client.post("/v1/orders", json={"order": order, **changes}, headers=self.token(subject))


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """Serve the sample in this process, without a socket."""
    async with World(DEFINITION) as world:
        runtime = world.runtimes["catalog"]
        for fact in directory():
            await runtime.execute(Act(f"tenant/{fact.tenant}", fact))  # type: ignore[attr-defined]  # all of these have it
        clock = ManualClock(NOW)
        issuer = LocalIssuer(folder / "issuer.pem", ISSUER, clock=clock)
        tokens = TokenVerifier(ISSUER, "quartermaster", KeyRing(issuer.fetch), clock)
        app = create_app([Service("catalog", runtime, routes(runtime))], tokens, title="Sample")
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sample.test") as client:
            yield Stage(app, client, issuer, world, clock)
