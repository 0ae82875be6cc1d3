"""The routes on reservations: cards that are kept for a window of time, or nodes for nobody."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field, model_validator

from qm_events.envelope import UtcTime
from qm_events.ids import PLATFORM, stream_name
from qm_events.scheduler import ReservationMade
from qm_events.specs import Role, Text
from qm_events.units import DnsLabel, MemoryMib, MilliCpu
from qm_scheduler.health import Name
from qm_scheduler.problems import (
    NodeUnknown,
    ProjectUnknown,
    ReservationOver,
    ReservationOverbooked,
    ReservationUnknown,
)
from qm_scheduler.reservations import EndReservation, Maintain, Reservation, Reserve
from qm_scheduler.view import Shape
from qm_service.caller import Access
from qm_service.caller import Page as Window
from qm_service.clock import new_id
from qm_service.model import Act
from qm_service.page import Paged, page
from qm_service.problem import Forbidden, NotFound, problems
from qm_service.runtime import Runtime

LONGEST = timedelta(days=366)
LAST = datetime(3000, 1, 1, tzinfo=UTC)


class ReservationInput(BaseModel):
    """Cards for the orders of a project or tenant; or, with `nodes`, the maintenance of these nodes."""

    model_config = ConfigDict(extra="forbid")

    tenant: DnsLabel | None = None
    project: DnsLabel | None = None
    """Left out: orders of all projects of the tenant may use it."""
    accelerator: DnsLabel | None = None
    cards_per_unit: Annotated[int, Field(ge=1, le=256, strict=True)] = 1
    """A unit is on one node."""
    units: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 1
    cpu_milli: MilliCpu = 0
    """Of one unit, as the next: kept beside the cards."""
    memory_mib: MemoryMib = 0
    nodes: Annotated[list[Name], Field(min_length=1, max_length=1_000)] | None = None
    """Maintain these: nobody is given cards there unless he ends before it starts."""
    starts_at: UtcTime
    ends_at: UtcTime
    reason: Text

    @model_validator(mode="after")
    def _one_kind(self) -> "ReservationInput":
        if self.ends_at <= self.starts_at:
            raise ValueError("ends_at must be after starts_at")
        if self.ends_at - self.starts_at > LONGEST or self.ends_at >= LAST:
            raise ValueError("a window is at most a year long, and ends before the year 3000")
        if self.nodes is None and (self.tenant is None or self.accelerator is None):
            raise ValueError("name a tenant and an accelerator, or the nodes to maintain")
        if self.nodes is not None and {"tenant", "project", "accelerator"} & self.model_fields_set:
            raise ValueError("nodes are maintained for nobody: leave out tenant, project and accelerator")
        return self

    def command(self, reservation: str) -> Reserve | Maintain:
        """Return what is asked of the scheduler."""
        if self.nodes is not None:
            return Maintain(reservation, tuple(self.nodes), self.starts_at, self.ends_at, self.reason)
        types = (self.accelerator or "",)
        shape = Shape(types, 0, self.cards_per_unit, self.cpu_milli, self.memory_mib, self.units, None, False)
        return Reserve(reservation, self.tenant or "", self.project, shape, self.starts_at, self.ends_at, self.reason)


class ReservationView(BaseModel):
    """A reservation. Orders name it as `reservation`; others use its place before only if they end first."""

    reservation: str
    tenant: str | None
    """Null: the nodes are maintained."""
    project: str | None
    accelerators: list[str]
    cards: int
    nodes: list[str] | None
    """Where it is kept; null: the caller may not see nodes."""
    starts_at: datetime
    ends_at: datetime
    reason: str
    made_at: datetime


def _view(doc: Reservation, *, whole: bool) -> ReservationView:
    return ReservationView(
        reservation=doc.id,
        tenant=doc.tenant,
        project=doc.project,
        accelerators=sorted({at.accelerator for at in doc.places}),
        cards=doc.cards,
        nodes=sorted({at.node for at in doc.places}) if whole else None,
        starts_at=doc.starts_at,
        ends_at=doc.ends_at,
        reason=doc.reason,
        made_at=doc.made_at,
    )


def reservation_routes(runtime: Runtime) -> APIRouter:
    """Return the routes on reservations."""
    router = APIRouter()

    @router.get("/reservations", responses=problems())
    async def list_reservations(access: Access, window: Window) -> Paged[ReservationView]:
        """List reservations that are not over, of the tenants in which the caller has a role, by start."""
        tenants = access.tenants()
        after = window.start(datetime, str)
        docs = [
            doc
            for doc in runtime.context().docs.resident("reservations").values()
            if tenants is None or doc.tenant in tenants
        ]
        rows = sorted(docs, key=lambda doc: (doc.starts_at, doc.id))
        rows = [doc for doc in rows if not after or (doc.starts_at, doc.id) > after][: window.fetch]
        shown, following = window.cut(rows, lambda doc: (doc.starts_at, doc.id))
        return page([_view(doc, whole=tenants is None) for doc in shown], following)

    @router.post(
        "/reservations",
        status_code=201,
        responses=problems(ReservationOverbooked, ReservationOver, ProjectUnknown, NodeUnknown, Forbidden),
    )
    async def make_reservation(body: ReservationInput, access: Access) -> ReservationView:
        """Keep cards for a window of time, or refuse it and say which window fits; maintain nodes (operators)."""
        access.check(body.tenant or PLATFORM)
        _check_maintains(body, access)
        reservation = new_id()
        act = Act(stream_name("reservation", reservation), body.command(reservation))
        outcome = await runtime.execute(act, access.cause(body.tenant, body.project))
        # A repeated call is answered with what the first one made.
        made = next((each.data for each in outcome.events if isinstance(each.data, ReservationMade)), None)
        return await _show(runtime, made.reservation if made else reservation, access)

    @router.post("/reservations/{reservation}/cancel", responses=problems(ReservationUnknown))
    async def cancel_reservation(reservation: Annotated[Name, Path()], access: Access) -> ReservationView:
        """Keep nothing for it any more; who runs there, runs on. Calling it again changes nothing."""
        doc: Reservation | None = await runtime.docs.get("reservations", reservation)
        if doc is None:
            raise NotFound("There is no such reservation, or you have no role in its tenant.")
        access.check(doc.tenant or PLATFORM)
        command = EndReservation(reservation, "cancelled", runtime.clock.now())
        act = Act(stream_name("reservation", reservation), command)
        await runtime.execute(act, access.cause(doc.tenant, doc.project))
        return _view(doc, whole=access.tenants() is None)

    return router


def _check_maintains(body: ReservationInput, access: Access) -> None:
    if body.nodes is not None and Role.OPERATOR not in access.caller.roles(PLATFORM):
        raise Forbidden("Nodes are maintained by operators.", needed_roles=[Role.OPERATOR])


async def _show(runtime: Runtime, reservation: str, access: Access) -> ReservationView:
    doc: Reservation | None = await runtime.docs.get("reservations", reservation)
    if doc is None:
        raise NotFound("There is no such reservation.")
    return _view(doc, whole=access.tenants() is None)
