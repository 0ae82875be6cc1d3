"""Requests for quota: a project asks, who answers for the level above decides, never the one who asked."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StrictStr, field_validator

from qm_admission.ledger_docs import QuotaRequest, RequestStatus
from qm_admission.problems import REQUEST_PROBLEMS
from qm_admission.quota_api import Limits, in_their_units
from qm_admission.requests import AskQuota, DecideQuota
from qm_events.ids import PLATFORM
from qm_events.specs import Role
from qm_events.units import DnsLabel
from qm_service.caller import Access, Page
from qm_service.clock import new_id
from qm_service.directory import TENANTS
from qm_service.model import Act
from qm_service.page import Paged, page
from qm_service.problem import Forbidden, NotFound, problems
from qm_service.runtime import Runtime

REQUESTS = "quota_requests"
_ORDER = ("requested_at",)


class RequestBody(BaseModel):
    """What is asked for."""

    model_config = ConfigDict(extra="forbid")

    tenant: DnsLabel = Field(description="Whose limits.")
    project: DnsLabel | None = Field(default=None, description="Null = the limits of the tenant itself.")
    limits: Limits = Field(
        min_length=1, max_length=50, description="What these dimensions are to be; those left out stay as they are."
    )
    reason: Annotated[StrictStr, Field(min_length=1, max_length=1_000)] = Field(
        description="Why; who decides reads it."
    )

    _units = field_validator("limits", mode="before")(in_their_units)


class DenyBody(BaseModel):
    """Why not."""

    model_config = ConfigDict(extra="forbid")

    comment: Annotated[StrictStr, Field(max_length=1_000)] = Field(default="", description="The requester reads it.")


class GrantBody(DenyBody):
    """A grant."""

    limits: Limits | None = Field(
        default=None, min_length=1, max_length=50, description="What is granted instead of what was asked for."
    )

    _units = field_validator("limits", mode="before")(in_their_units)


class RequestView(BaseModel):
    """A request and what came of it."""

    request: str = Field(description="Its id")
    tenant: str = Field(description="Whose limits")
    project: str | None = Field(description="Null = the limits of the tenant itself")
    limits: dict[str, int] = Field(description="What was asked for")
    reason: str = Field(description="Why, in the words of the requester")
    requester: str = Field(description="Who asked; he cannot decide")
    requested_at: datetime = Field(description="When")
    status: RequestStatus = Field(description="What came of it")
    granted: dict[str, int] | None = Field(description="What was granted; null = not yet or denied")
    decided_by: str | None = Field(description="Who decided; null = nobody yet")
    decided_at: datetime | None = Field(description="When; null = not yet")
    comment: str = Field(description="What the requester is told with the decision")


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of requests for quota."""
    router = APIRouter()

    @router.get("/quota-requests", responses=problems())
    async def quota_requests(
        access: Access,
        window: Page,
        status: Annotated[RequestStatus | None, Query(description="Only these; all where left out")] = None,
    ) -> Paged[RequestView]:
        """The requests of the projects, and of the tenants as a whole, in which the caller has a role; oldest first."""
        where: dict[str, Any] = {} if status is None else {"status": status}
        scopes = access.scopes()
        if scopes is not None:
            where["scope"] = [*scopes, *sorted({it.tenant for it in access.caller.grants if it.project is None})]
        after = window.start(datetime, str)
        rows = await runtime.docs.page(REQUESTS, where, _ORDER, after=after, limit=window.fetch)
        shown, following = window.cut(rows, lambda row: runtime.docs.place(REQUESTS, _ORDER, *row))
        return page([_view(doc) for _, doc in shown], following)

    @router.post("/quota-requests", status_code=201, responses=problems(*REQUEST_PROBLEMS))
    async def ask_for_quota(access: Access, body: RequestBody) -> RequestView:
        """Ask for other limits. Nothing changes until somebody above decides."""
        access.check(body.tenant, body.project)
        doc = await runtime.docs.get(TENANTS, body.tenant)
        if doc is None or (body.project is not None and body.project not in doc.projects):
            raise NotFound("There is no such tenant or project, or you have no role in it.")
        request = new_id()
        command = AskQuota(request, body.tenant, body.project, body.limits, body.reason, access.caller.subject)
        outcome = await runtime.execute(Act(f"quota/{body.tenant}", command), access.cause(body.tenant, body.project))
        # A repeated call is answered with what the first one made.
        opened = next((it.data.request for it in outcome.events if hasattr(it.data, "requester")), request)
        return await _read(runtime, opened)

    @router.post("/quota-requests/{quota_request}/approve", responses=problems(*REQUEST_PROBLEMS))
    async def approve_quota(access: Access, quota_request: str, body: GrantBody | None = None) -> RequestView:
        """Grant; the limits change in the same step, and who waits for them is examined."""
        grant = body or GrantBody()
        return await _decide(runtime, access, quota_request, "approve", grant.comment, grant.limits)

    @router.post("/quota-requests/{quota_request}/deny", responses=problems(*REQUEST_PROBLEMS))
    async def deny_quota(access: Access, quota_request: str, body: DenyBody | None = None) -> RequestView:
        """Refuse; the limits stay."""
        comment = body.comment if body else ""
        return await _decide(runtime, access, quota_request, "deny", comment)

    return router


async def _read(runtime: Runtime, request: str) -> RequestView:
    return _view((await runtime.docs.many(REQUESTS, [request]))[request])


async def _decide(
    runtime: Runtime,
    access: Access,
    request: str,
    verdict: Literal["approve", "deny"],
    comment: str,
    limits: Mapping[str, int] | None = None,
) -> RequestView:
    doc: QuotaRequest | None = await runtime.docs.get(REQUESTS, request)
    if doc is None:
        raise NotFound("There is no such request, or you have no role in its tenant.")
    access.check(doc.tenant)
    if doc.project is None and Role.OPERATOR not in access.caller.roles(PLATFORM):
        # As with PUT /quotas/{tenant}: who sets his own limit has none.
        raise Forbidden("The limits of a tenant are decided by an operator.", needed_roles=[Role.OPERATOR])
    command = DecideQuota(request, verdict, access.caller.subject, limits, comment)
    await runtime.execute(Act(f"quota/{doc.tenant}", command), access.cause(doc.tenant, doc.project))
    return await _read(runtime, request)


def _view(doc: QuotaRequest) -> RequestView:
    return RequestView(
        request=doc.request,
        tenant=doc.tenant,
        project=doc.project,
        limits=dict(doc.limits),
        reason=doc.reason,
        requester=doc.requester,
        requested_at=doc.requested_at,
        status=doc.status,
        granted=None if doc.granted is None else dict(doc.granted),
        decided_by=doc.decided_by,
        decided_at=doc.decided_at,
        comment=doc.comment,
    )
