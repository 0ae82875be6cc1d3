"""Limits and use of a tenant and of its projects: read by its members, set by who answers for the level above."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from qm_admission import quota
from qm_admission.book import SetLimits
from qm_admission.dimensions import DIMENSIONS, LARGEST_LIMIT
from qm_admission.problems import LIMIT_PROBLEMS
from qm_admission.quota import EMPTY, PER_ACCELERATOR, OverQuota, Scope
from qm_service.caller import Access, etag
from qm_service.directory import TENANTS
from qm_service.model import Act
from qm_service.problem import NotFound, VersionConflict, problems
from qm_service.runtime import Runtime

_LIMITS = (
    f"A whole number from 0 to {LARGEST_LIMIT} for each of {', '.join(DIMENSIONS)}; what is left out is unlimited."
)


class QuotaBody(BaseModel):
    """All limits of a scope; it replaces what was set before."""

    model_config = ConfigDict(extra="forbid")

    limits: dict[Annotated[str, Field(max_length=100)], StrictInt] = Field(max_length=200, description=_LIMITS)
    over_quota: OverQuota = Field(
        default="hold", description="What happens to an order that does not fit now: it waits in line, or is rejected."
    )


class DimensionView(BaseModel):
    """One dimension at one scope, in the unit that its name tells."""

    limit: int | None = Field(description="Of this scope; null = none")
    used: int
    available: int | None = Field(description="The least that is left on the whole path; null = nothing limits it")
    bound_by: str | None = Field(description="The scope that leaves the least")


class QuotaView(BaseModel):
    """Limits and use of a scope. Its ETag is the version of all rules of the tenant."""

    tenant: str
    project: str | None
    over_quota: OverQuota
    limits: dict[str, int]
    dimensions: dict[str, DimensionView]


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of quotas."""
    router = APIRouter()

    async def read(tenant: str, project: str | None, response: Response) -> QuotaView:
        # The version first: a change in between then gives an old ETag, which is refused, and never a new one.
        response.headers["ETag"] = etag(await runtime.version(f"quota/{tenant}"))
        path = quota.path_of(tenant, project)
        return _view(tenant, project, path, await runtime.docs.many("scopes", path))

    async def known(tenant: str, project: str | None) -> None:
        doc = await runtime.docs.get(TENANTS, tenant)
        if doc is None or (project is not None and project not in doc.projects):
            raise NotFound("There is no such tenant or project, or you have no role in it.")

    async def write(access: Access, tenant: str, project: str | None, body: QuotaBody, response: Response) -> QuotaView:
        access.check(tenant, project)
        await known(tenant, project)
        command = SetLimits(tenant, project, body.limits, body.over_quota)
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


def _view(tenant: str, project: str | None, path: Sequence[str], scopes: Mapping[str, Scope]) -> QuotaView:
    own = scopes.get(path[-1], EMPTY)
    names = [name for name in DIMENSIONS if not name.startswith(PER_ACCELERATOR)]
    typed = {name for scope in scopes.values() for name in (*scope.limits, *scope.used)} - set(names)
    return QuotaView(
        tenant=tenant,
        project=project,
        over_quota=quota.over_quota_of(path, scopes),
        limits=dict(own.limits),
        dimensions={name: _dimension(name, own, path, scopes) for name in (*names, *sorted(typed))},
    )


def _dimension(name: str, own: Scope, path: Sequence[str], scopes: Mapping[str, Scope]) -> DimensionView:
    left, bound_by = quota.available(path, scopes, name) or (None, None)
    return DimensionView(limit=own.limits.get(name), used=own.used.get(name, 0), available=left, bound_by=bound_by)
