"""Limits and use of a tenant and of its projects: read by its members, set by who answers for the level above."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator

from qm_admission import quota
from qm_admission.book import SetLimits
from qm_admission.dimensions import DIMENSIONS, LARGEST_LIMIT, whole_number
from qm_admission.problems import LIMIT_PROBLEMS
from qm_admission.quota import NOTICE_SECONDS, Exhausted, OverQuota
from qm_admission.quota_view import QuotaView, view
from qm_service.caller import Access, etag
from qm_service.commands import Unavailable
from qm_service.directory import TENANTS
from qm_service.model import Act
from qm_service.problem import NotFound, VersionConflict, problems
from qm_service.runtime import Runtime

_LIMITS = (
    f"A whole number from 0 to {LARGEST_LIMIT} for each of {', '.join(DIMENSIONS)}; what is left out is unlimited."
)
Limits = dict[Annotated[str, Field(max_length=100)], StrictInt]


def in_their_units(value: Any) -> Any:
    """Refuse a quantity that is no whole number, its unit named. Raises ValueError."""
    for name, quantity in value.items() if isinstance(value, dict) else ():
        if isinstance(name, str) and (wrong := whole_number(name, quantity)):
            raise ValueError(wrong)
    return value


class QuotaBody(BaseModel):
    """All limits of a scope; it replaces what was set before."""

    model_config = ConfigDict(extra="forbid")

    limits: Limits = Field(max_length=200, description=_LIMITS)
    over_quota: OverQuota = Field(
        default="hold", description="What happens to an order that does not fit now: it waits in line, or is rejected."
    )
    report_only: list[Annotated[str, Field(max_length=100)]] = Field(
        default_factory=list,
        max_length=200,
        description="Dimensions of `limits` that are told and not enforced: to adopt a limit over existing use.",
    )
    borrow: Limits = Field(
        default_factory=dict,
        max_length=200,
        description="How much beyond its limit a project may use of what other projects of the tenant lend.",
    )
    lend: Limits = Field(
        default_factory=dict,
        max_length=200,
        description="How much of what it does not use a project lends; it takes it back by ordering.",
    )
    hours_exhausted: Exhausted = Field(
        default="warn",
        description="What happens to a running order whose monthly card-hours are used up, after a notice: it runs on "
        "and is told so, or it expires.",
    )
    notice_seconds: StrictInt = Field(
        default=NOTICE_SECONDS, ge=0, le=31 * 86_400, description="How long before that the notice comes."
    )
    priority_at_most: StrictInt | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="The highest priority that an order may ask for; it must keep the bound of its project and of its "
        "tenant. Null: 0 for a tenant, as the tenant for a project.",
    )

    _units = field_validator("limits", "borrow", "lend", mode="before")(in_their_units)


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of quotas."""
    router = APIRouter()

    async def read(tenant: str, project: str | None, response: Response) -> QuotaView:
        # The version first: a change in between then gives an old ETag, which is refused, and never a new one.
        response.headers["ETag"] = etag(await runtime.version(f"quota/{tenant}"))
        scopes = await runtime.docs.many("scopes", quota.path_of(tenant, project))
        doc = await runtime.docs.get(TENANTS, tenant)
        try:
            lending = runtime.context().index.lending
        except Unavailable:
            # A stand-by keeps no sums of the whole tenant; it shows the rest.
            lending = None
        return view(tenant, project, scopes, lending, runtime.clock.now(), doc.timezone if doc else "UTC")

    async def known(tenant: str, project: str | None) -> None:
        doc = await runtime.docs.get(TENANTS, tenant)
        if doc is None or (project is not None and project not in doc.projects):
            raise NotFound("There is no such tenant or project, or you have no role in it.")

    async def write(access: Access, tenant: str, project: str | None, body: QuotaBody, response: Response) -> QuotaView:
        access.check(tenant, project)
        await known(tenant, project)
        command = SetLimits(
            tenant,
            project,
            body.limits,
            body.over_quota,
            tuple(body.report_only),
            body.borrow,
            body.lend,
            body.hours_exhausted,
            body.notice_seconds,
            body.priority_at_most,
        )
        await runtime.execute(
            Act(f"quota/{tenant}", command), access.cause(tenant, project), expected_version=access.if_match
        )
        return await read(tenant, project, response)

    @router.get("/quotas/{tenant}", responses=problems())
    async def tenant_quota(access: Access, tenant: str, response: Response) -> QuotaView:
        """Limits and use of a tenant, all its projects together."""
        access.check(tenant)
        await known(tenant, None)
        return await read(tenant, None, response)

    @router.put("/quotas/{tenant}", responses=problems(*LIMIT_PROBLEMS, VersionConflict))
    async def set_tenant_quota(access: Access, tenant: str, body: QuotaBody, response: Response) -> QuotaView:
        """Replace the limits of a tenant. Below use is lawful: nothing is taken away, nothing new admitted."""
        return await write(access, tenant, None, body, response)

    @router.get("/quotas/{tenant}/{project}", responses=problems())
    async def project_quota(access: Access, tenant: str, project: str, response: Response) -> QuotaView:
        """Limits and use of a project; what is available depends on the tenant too."""
        access.check(tenant, project)
        await known(tenant, project)
        return await read(tenant, project, response)

    @router.put("/quotas/{tenant}/{project}", responses=problems(*LIMIT_PROBLEMS, VersionConflict))
    async def set_project_quota(
        access: Access, tenant: str, project: str, body: QuotaBody, response: Response
    ) -> QuotaView:
        """Replace the limits of a project. Below use is lawful: nothing is taken away, nothing new admitted."""
        return await write(access, tenant, project, body, response)

    return router
