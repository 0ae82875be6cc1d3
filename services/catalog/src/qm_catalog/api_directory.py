"""Who there is: tenants, projects, members and their roles, and the people behind the subjects."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from qm_catalog.directory import declare
from qm_catalog.forms import EraseForm, MemberForm, ProjectForm, Subject, SubjectForm, TenantForm
from qm_catalog.lookup import everything, project_named
from qm_catalog.people import People, PersonView
from qm_catalog.problems import AlreadyExists, AmbiguousProject, PlatformHasNoProjects, RoleOutOfPlace, UnknownName
from qm_events.catalog import MemberGranted, MemberRevoked, ProjectRegistered, TenantRegistered
from qm_events.ids import PLATFORM
from qm_events.specs import Role
from qm_service.access import grantable
from qm_service.caller import Access, Page, Permit
from qm_service.directory import SUBJECTS, TENANTS, SubjectDoc, TenantDoc
from qm_service.page import Paged, page
from qm_service.problem import Forbidden, IdempotencyKeyReused, NotFound, VersionConflict, problems
from qm_service.runtime import Runtime
from qm_service.sealed import SubjectKeys


class ProjectView(BaseModel):
    """A project, and what the caller may be in it."""

    id: str
    """`tenant/name`."""
    tenant: str
    name: str
    display_name: str
    roles: list[Role]
    """Of the caller."""


class TenantView(BaseModel):
    """A customer."""

    name: str
    display_name: str
    timezone: str
    projects: list[str]
    """Those in which the caller has a role."""


class MemberView(BaseModel):
    """A role of a subject, with `project` null in the whole tenant. Only owners and admins are shown addresses."""

    tenant: str
    project: str | None
    subject: str
    role: Role
    display_name: str | None
    email: str | None


_OWNERS = frozenset({Role.PROJECT_OWNER, Role.TENANT_ADMIN, Role.OPERATOR})
_FAULTS = (AlreadyExists, UnknownName, AmbiguousProject, RoleOutOfPlace, IdempotencyKeyReused)
_CHANGES = problems(*_FAULTS, VersionConflict)


def routes(runtime: Runtime, keys: SubjectKeys) -> APIRouter:
    """Return the routes."""
    router, people = APIRouter(), People(runtime, keys)
    _tenants(router, runtime)
    _projects(router, runtime)
    _members(router, runtime, people)
    _subjects(router, people)
    return router


def _tenants(router: APIRouter, runtime: Runtime) -> None:
    @router.get("/tenants", responses=problems())
    async def list_tenants(access: Access, window: Page) -> Paged[TenantView]:
        """List the tenants in which the caller has a role."""
        docs, names = await everything(runtime, TENANTS), access.tenants()
        visible = sorted(docs if names is None else [name for name in names if name in docs])
        start = window.start(str)
        rest = [name for name in visible if start is None or (name,) > start]
        shown, following = window.cut(rest, lambda name: (name,))
        return page([_tenant(access, name, docs[name]) for name in shown], following)

    @router.get("/tenants/{tenant}", responses=problems())
    async def read_tenant(tenant: str, access: Access) -> TenantView:
        """Return a tenant."""
        access.check(tenant)
        doc: TenantDoc | None = await runtime.docs.get(TENANTS, tenant)
        if doc is None:
            raise NotFound(f"There is no tenant {tenant}.")
        return _tenant(access, tenant, doc)

    @router.post("/tenants", status_code=201, responses=_CHANGES)
    async def register_tenant(form: TenantForm, access: Access, response: Response) -> TenantView:
        """Register a customer."""
        display_name = form.display_name or form.name
        fact = TenantRegistered(tenant=form.name, display_name=display_name, timezone=form.timezone)
        await runtime.execute(declare(form.name, fact), access.cause(form.name), expected_version=access.if_match)
        response.headers["Location"] = f"/v1/tenants/{form.name}"
        return _tenant(access, form.name, runtime.context().docs.resident(TENANTS)[form.name])


def _tenant(access: Permit, name: str, doc: TenantDoc) -> TenantView:
    projects = [project for project in doc.projects if access.caller.roles(name, project)]
    return TenantView(name=name, display_name=doc.display_name, timezone=doc.timezone, projects=projects)


def _projects(router: APIRouter, runtime: Runtime) -> None:
    @router.get("/projects", responses=problems())
    async def list_projects(access: Access, window: Page) -> Paged[ProjectView]:
        """List the projects in which the caller has a role."""
        docs = await everything(runtime, TENANTS)
        tenants = access.tenants()
        ids = sorted(
            (tenant, project)
            for tenant in (docs if tenants is None else tenants)
            if tenant in docs
            for project in docs[tenant].projects
            if access.caller.roles(tenant, project)
        )
        start = window.start(str, str)
        rest = [id_ for id_ in ids if start is None or id_ > start]
        shown, following = window.cut(rest, lambda id_: id_)
        return page([_project(access, *id_, docs[id_[0]]) for id_ in shown], following)

    @router.post("/projects", status_code=201, responses=problems(*_FAULTS, PlatformHasNoProjects, VersionConflict))
    async def register_project(form: ProjectForm, access: Access, response: Response) -> ProjectView:
        """Register a project of a tenant."""
        access.check(form.tenant)
        fact = ProjectRegistered(tenant=form.tenant, project=form.name, display_name=form.display_name or form.name)
        cause = access.cause(form.tenant, form.name)
        await runtime.execute(declare(form.tenant, fact), cause, expected_version=access.if_match)
        response.headers["Location"] = f"/v1/projects/{form.tenant}.{form.name}/members"
        return _project(access, form.tenant, form.name, runtime.context().docs.resident(TENANTS)[form.tenant])


def _project(access: Permit, tenant: str, name: str, doc: TenantDoc) -> ProjectView:
    roles = sorted(access.caller.roles(tenant, name))
    return ProjectView(id=f"{tenant}/{name}", tenant=tenant, name=name, display_name=doc.projects[name], roles=roles)


def _members(router: APIRouter, runtime: Runtime, people: People) -> None:
    async def listed(access: Permit, window: Page, tenant: str, project: str | None) -> Paged[MemberView]:
        rows = sorted(_granted(await everything(runtime, SUBJECTS), tenant, project))
        start = window.start(str, str, str)
        rest = [row for row in rows if start is None or row > start]
        shown, following = window.cut(rest, lambda row: row)
        known = await people.known(tenant, {row[0] for row in shown})
        open_ = access.caller.may(_OWNERS, tenant, project)
        items = [_member(tenant, *row, known.get(row[0]), open_) for row in shown]
        return page(items, following)

    async def changed(access: Permit, fact: MemberGranted | MemberRevoked) -> MemberView:
        tenant, project = fact.tenant, fact.project
        allowed = grantable(access.caller.roles(tenant, project))
        if fact.role not in allowed:
            raise Forbidden(f"You may give and take the roles {', '.join(sorted(allowed))} here.")
        await runtime.execute(declare(tenant, fact), access.cause(tenant, project), expected_version=access.if_match)
        known = await people.known(tenant, [fact.subject])
        return _member(tenant, fact.subject, fact.role, project or "", known.get(fact.subject), True)

    @router.get("/projects/{project}/members", responses=problems(AmbiguousProject))
    async def list_members(project: str, access: Access, window: Page) -> Paged[MemberView]:
        """List who has a role in the project, by itself or in the whole tenant."""
        return await listed(access, window, *await project_named(runtime, access, project))

    @router.post("/projects/{project}/members", status_code=201, responses=_CHANGES)
    async def grant_role(project: str, form: MemberForm, access: Access) -> MemberView:
        """Give a subject a role in the project; nobody gives more than he has."""
        tenant, name = await project_named(runtime, access, project)
        return await changed(access, MemberGranted(tenant=tenant, project=name, subject=form.subject, role=form.role))

    @router.delete("/projects/{project}/members", responses=_CHANGES)
    async def revoke_role(
        project: str, access: Access, subject: Annotated[Subject, Query()], role: Annotated[Role, Query()]
    ) -> MemberView:
        """Take a role in the project back; orders stay with the project."""
        tenant, name = await project_named(runtime, access, project)
        return await changed(access, MemberRevoked(tenant=tenant, project=name, subject=subject, role=role))

    @router.get("/tenants/{tenant}/members", responses=problems())
    async def list_tenant_members(tenant: str, access: Access, window: Page) -> Paged[MemberView]:
        """List who has a role in the whole tenant."""
        access.check(tenant)
        await _check_known(runtime, tenant)
        return await listed(access, window, tenant, None)

    @router.post("/tenants/{tenant}/members", status_code=201, responses=_CHANGES)
    async def grant_tenant_role(tenant: str, form: MemberForm, access: Access) -> MemberView:
        """Give a subject a role in the whole tenant, all its projects included."""
        access.check(tenant)
        await _check_known(runtime, tenant)
        return await changed(access, MemberGranted(tenant=tenant, subject=form.subject, role=form.role))

    @router.delete("/tenants/{tenant}/members", responses=_CHANGES)
    async def revoke_tenant_role(
        tenant: str, access: Access, subject: Annotated[Subject, Query()], role: Annotated[Role, Query()]
    ) -> MemberView:
        """Take a role in the whole tenant back."""
        access.check(tenant)
        await _check_known(runtime, tenant)
        return await changed(access, MemberRevoked(tenant=tenant, subject=subject, role=role))


async def _check_known(runtime: Runtime, tenant: str) -> None:
    if tenant != PLATFORM and tenant not in await everything(runtime, TENANTS):
        raise NotFound(f"There is no tenant {tenant}.")


def _granted(docs: Mapping[str, SubjectDoc], tenant: str, project: str | None) -> Iterator[tuple[str, Role, str]]:
    for subject, doc in docs.items():
        for at, part, role in doc.grants:
            if at == tenant and part in (None, project):
                yield subject, role, part or ""


def _member(tenant: str, subject: str, role: Role, part: str, person: PersonView | None, open_: bool) -> MemberView:
    return MemberView(
        tenant=tenant,
        project=part or None,
        subject=subject,
        role=role,
        display_name=person.display_name if person else None,
        email=person.email if person and open_ else None,
    )


def _subjects(router: APIRouter, people: People) -> None:
    @router.post("/subjects", status_code=201, responses=problems(*_FAULTS))
    async def register_subject(form: SubjectForm, access: Access) -> PersonView:
        """Make a person or a service account known; its name and address are sealed before they are written."""
        access.check(form.tenant)
        return await people.register(form, access.cause(form.tenant))

    @router.post("/subjects/{subject}/erase", responses=problems(*_FAULTS))
    async def erase_subject(subject: str, form: EraseForm, access: Access) -> PersonView:
        """Forget a person for good, and take all roles in the tenant; facts stay, with the name unreadable."""
        access.check(form.tenant)
        if subject not in await people.known(form.tenant, [subject]):
            raise NotFound(f"The tenant {form.tenant} knows no subject {subject}.")
        await people.erase(form.tenant, subject, access.cause(form.tenant))
        return (await people.known(form.tenant, [subject]))[subject]
