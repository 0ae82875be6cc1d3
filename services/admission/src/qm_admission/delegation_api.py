"""When somebody is away, and who decides for him then: set by himself, or by the admins of the tenant."""

from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from qm_admission.delegations import Days, SetAbsences, days_of
from qm_admission.problems import DelegationInvalid
from qm_events.approval import Absence
from qm_events.envelope import UtcTime
from qm_events.specs import Text
from qm_events.units import DnsLabel
from qm_service.caller import Access, etag
from qm_service.directory import SUBJECTS, TENANTS
from qm_service.model import Act
from qm_service.problem import NotFound, VersionConflict, problems
from qm_service.runtime import Runtime


def _written_out(value: Any) -> Any:
    # A number would be read as seconds since 1970.
    if isinstance(value, str) and len(value) == 10:
        return value
    raise ValueError("a day is written as in 2026-06-30")


Day = Annotated[date, BeforeValidator(_written_out)]
Subject = Annotated[str, Path(min_length=1, max_length=200)]


class AbsenceBody(BaseModel):
    """Whole days in which somebody is away."""

    model_config = ConfigDict(extra="forbid")

    first_day: Day = Field(description="From the beginning of this day.")
    last_day: Day = Field(description="To the end of this day.")
    delegate: Text | None = Field(
        default=None, description="Who decides for him; left out: nobody, and he is not counted on."
    )
    timezone: Text | None = Field(default=None, description="IANA zone of the days; left out: that of the tenant.")
    reason: str = Field(default="", max_length=500, description="Why; kept with the fact.")


class DelegationBody(BaseModel):
    """All absences of a subject; an empty list ends them."""

    model_config = ConfigDict(extra="forbid")

    absences: list[AbsenceBody] = Field(max_length=50, description="All of them: what is not here is forgotten.")


class AbsenceView(BaseModel):
    """An absence, as days and as instants."""

    first_day: date = Field(description="In `timezone`.")
    last_day: date = Field(description="In `timezone`; this day is the last one away.")
    delegate: str | None = Field(description="Who decides for him, if anybody.")
    timezone: str = Field(description="IANA zone of the days.")
    reason: str = Field(description="Why.")
    starts_at: UtcTime = Field(description="The first instant of it.")
    ends_at: UtcTime = Field(description="The first instant after it.")


class DelegationView(BaseModel):
    """The absences of a subject, the earliest first. The ETag is the version of all delegations of the tenant."""

    tenant: str = Field(description="Where it counts.")
    subject: str = Field(description="Who is away.")
    absences: list[AbsenceView] = Field(description="Past ones included, until they are replaced.")


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of delegations."""
    router = APIRouter()

    async def read(tenant: str, subject: str, response: Response) -> DelegationView:
        response.headers["ETag"] = etag(await runtime.version(f"delegations/{tenant}"))
        absences: tuple[Absence, ...] = await runtime.docs.get("delegations", f"{tenant}/{subject}") or ()
        return DelegationView(tenant=tenant, subject=subject, absences=[_view(absence) for absence in absences])

    async def known(tenant: str, subject: str) -> None:
        doc = await runtime.docs.get(SUBJECTS, subject)
        if await runtime.docs.get(TENANTS, tenant) is None or doc is None:
            raise NotFound("There is no such tenant, or nobody of that name in it.")
        if all(grant.tenant != tenant for grant in doc.grants):
            raise NotFound("There is no such tenant, or nobody of that name in it.")

    @router.get("/delegations/{subject}", responses=problems())
    async def delegations(access: Access, subject: Subject, tenant: DnsLabel, response: Response) -> DelegationView:
        """When a subject is away, and who decides for him."""
        access.check(tenant)
        await known(tenant, subject)
        return await read(tenant, subject, response)

    @router.put("/delegations/{subject}", responses=problems(DelegationInvalid, VersionConflict))
    async def set_delegations(
        access: Access, subject: Subject, tenant: DnsLabel, body: DelegationBody, response: Response
    ) -> DelegationView:
        """Replace the absences of a subject. Everybody may set his own, the admins of the tenant all."""
        if subject != access.caller.subject or not access.caller.roles_within(tenant):
            access.check(tenant)
        await known(tenant, subject)
        days = tuple(Days(**absence.model_dump()) for absence in body.absences)
        command = SetAbsences(tenant, subject, days)
        act = Act(f"delegations/{tenant}", command)
        await runtime.execute(act, access.cause(tenant), expected_version=access.if_match)
        return await read(tenant, subject, response)

    return router


def _view(absence: Absence) -> AbsenceView:
    first, last = days_of(absence)
    return AbsenceView(
        first_day=first,
        last_day=last,
        delegate=absence.delegate,
        timezone=absence.timezone,
        reason=absence.reason,
        starts_at=absence.starts_at,
        ends_at=absence.ends_at,
    )
