"""What several routes look up: a record that the caller may read, a project by its name, whole projections."""

from collections.abc import Iterator, Mapping
from typing import Any

from qm_catalog.domain import RECORDS
from qm_catalog.problems import AmbiguousProject
from qm_catalog.request_record import Record
from qm_events.ids import PLATFORM
from qm_service.access import PLATFORM_ROLES
from qm_service.caller import Permit, Principal
from qm_service.commands import Unavailable
from qm_service.directory import TENANTS, TenantDoc
from qm_service.problem import NotFound
from qm_service.runtime import Runtime

_ALL = 1_000_000


async def readable(runtime: Runtime, access: Permit, order: str) -> Record:
    """Return the record of an order on which the caller may do what the route does. Raises NotFound, Forbidden."""
    record: Record | None = await runtime.docs.get(RECORDS, order)
    if record is None or record.tenant is None:
        raise NotFound
    access.check(record.tenant, record.project)
    return record


async def everything(runtime: Runtime, projection: str) -> Mapping[str, Any]:
    """Return all documents of a small projection, by key; from memory, or on a stand-by from the database."""
    try:
        return runtime.context().docs.resident(projection)
    except Unavailable:
        return dict(await runtime.docs.page(projection, limit=_ALL))


async def project_named(runtime: Runtime, access: Permit, name: str) -> tuple[str, str]:
    """Return tenant and project of a name, and check the caller's roles there: `name`, `tenant/name`, `tenant.name`.

    A bare name is looked for where the caller has a role. Raises NotFound, Forbidden, AmbiguousProject.
    """
    tenant, _, project = name.replace(".", "/").rpartition("/")
    tenants = await everything(runtime, TENANTS)
    found = sorted(_candidates(access.caller, tenants, tenant, project))
    if not found:
        raise NotFound
    if len(found) > 1:
        choices = [f"{at}/{project}" for at in found]
        raise AmbiguousProject(f"{project} may be any of {', '.join(choices)}.", field="project", choices=choices)
    access.check(found[0], project)
    return found[0], project


def _candidates(caller: Principal, tenants: Mapping[str, TenantDoc], tenant: str, project: str) -> Iterator[str]:
    everywhere = bool(caller.roles(PLATFORM) & PLATFORM_ROLES)
    own = tenants.keys() if everywhere else {grant.tenant for grant in caller.grants}
    for name in {tenant} if tenant else own:
        doc = tenants.get(name)
        if doc is not None and project in doc.projects and caller.roles(name, project):
            yield name
