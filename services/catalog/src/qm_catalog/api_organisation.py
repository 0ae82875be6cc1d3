"""Who reports to whom, and who is in which group: what approval policies name beside roles and subjects."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from qm_catalog.directory import declare
from qm_catalog.forms import GroupMemberForm, ManagerForm, Subject
from qm_catalog.lookup import everything
from qm_catalog.problems import OwnManager, UnknownName
from qm_events.catalog import GroupJoined, GroupLeft, SubjectManagerSet
from qm_events.units import DnsLabel
from qm_service.caller import Access, Page
from qm_service.organisation import ORGANISATION
from qm_service.page import Paged, page
from qm_service.problem import IdempotencyKeyReused, VersionConflict, problems
from qm_service.runtime import Runtime


class ManagerView(BaseModel):
    """Whom a subject reports to in a tenant."""

    tenant: str = Field(description="Where.")
    subject: str = Field(description="Who reports.")
    manager: str | None = Field(description="Null = nobody.")


class GroupMemberView(BaseModel):
    """A member of a group. A group gives no role."""

    tenant: str = Field(description="Whose group it is.")
    group: str = Field(description="Its name.")
    subject: str = Field(description="Who is in it.")


_Tenant = Annotated[DnsLabel, Path()]
_Subject = Annotated[Subject, Path()]
_Group = Annotated[DnsLabel, Path()]
_CHANGES = problems(UnknownName, OwnManager, VersionConflict, IdempotencyKeyReused)


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.put("/subjects/{subject}/manager", responses=_CHANGES)
    async def set_manager(subject: _Subject, form: ManagerForm, access: Access) -> ManagerView:
        """Say whom a subject reports to; approval policies may ask the manager of the requester."""
        access.check(form.tenant)
        fact = SubjectManagerSet(tenant=form.tenant, subject=subject, manager=form.manager)
        await runtime.execute(declare(form.tenant, fact), access.cause(form.tenant), expected_version=access.if_match)
        return ManagerView(tenant=form.tenant, subject=subject, manager=form.manager)

    @router.get("/tenants/{tenant}/groups/{group}/members", responses=problems())
    async def list_group(tenant: _Tenant, group: _Group, access: Access, window: Page) -> Paged[GroupMemberView]:
        """List who is in a group of a tenant; a group without members is empty, not missing."""
        access.check(tenant)
        positions = await everything(runtime, ORGANISATION)
        members = sorted(
            subject
            for at, _, subject in (key.partition("/") for key, doc in positions.items() if group in doc.groups)
            if at == tenant
        )
        start = window.start(str)
        rest = [name for name in members if start is None or (name,) > start]
        shown, following = window.cut(rest, lambda name: (name,))
        return page([GroupMemberView(tenant=tenant, group=group, subject=name) for name in shown], following)

    @router.post("/tenants/{tenant}/groups/{group}/members", status_code=201, responses=_CHANGES)
    async def join_group(tenant: _Tenant, group: _Group, form: GroupMemberForm, access: Access) -> GroupMemberView:
        """Put a member of the tenant into a group."""
        access.check(tenant)
        fact = GroupJoined(tenant=tenant, group=group, subject=form.subject)
        await runtime.execute(declare(tenant, fact), access.cause(tenant), expected_version=access.if_match)
        return GroupMemberView(tenant=tenant, group=group, subject=form.subject)

    @router.delete("/tenants/{tenant}/groups/{group}/members", responses=_CHANGES)
    async def leave_group(
        tenant: _Tenant,
        group: _Group,
        access: Access,
        subject: Annotated[Subject, Query(description="Who leaves it.")],
    ) -> GroupMemberView:
        """Take a subject out of a group."""
        access.check(tenant)
        fact = GroupLeft(tenant=tenant, group=group, subject=subject)
        await runtime.execute(declare(tenant, fact), access.cause(tenant), expected_version=access.if_match)
        return GroupMemberView(tenant=tenant, group=group, subject=subject)

    return router
