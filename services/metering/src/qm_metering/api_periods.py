"""The months of tenants over HTTP: which are open, what was in those that are closed, and how they are closed."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from qm_events.units import DnsLabel
from qm_metering.closing import close
from qm_metering.consumers import zones_of
from qm_metering.intervals import instant
from qm_metering.months import bounds, zone_name
from qm_metering.periods import PERIODS, Period, State
from qm_metering.problems import PeriodNotOver, PeriodNotReady
from qm_metering.quantity import Quantity, quantity
from qm_service.caller import Access, Page
from qm_service.directory import TENANTS
from qm_service.page import Paged, page
from qm_service.problem import NotFound, problems
from qm_service.runtime import Runtime


class PeriodView(BaseModel):
    """A month of a tenant. `held` and `billable` are of the lines on its bill, corrections of older months included."""

    period: str
    """`tenant.month`, as the path to close it takes it."""
    tenant: str
    month: str
    state: State
    timezone: str
    from_at: datetime
    to_at: datetime
    lines: int
    held: Quantity
    billable: Quantity
    digest: str | None
    """SHA-256 over the lines; null until it is closed."""
    closed_at: datetime | None


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of months."""
    router = APIRouter()

    @router.get("/periods", responses=problems())
    async def periods(
        access: Access,
        window: Page,
        tenant: Annotated[DnsLabel | None, Query(description="Only of this tenant")] = None,
    ) -> Paged[PeriodView]:
        """The months with lines of the tenants in which the caller has a role, by tenant and month."""
        seen = access.tenants()
        tenants = seen if tenant is None else [tenant] if seen is None or tenant in seen else []
        where = {} if tenants is None else {"tenant": tenants}
        rows = await runtime.docs.page(PERIODS, where, after=window.start(str), limit=window.fetch)
        shown, following = window.cut(rows, lambda row: (row[0],))
        return page([_view(runtime, doc) for _, doc in shown], following)

    @router.post("/periods/{period}/close", responses=problems(PeriodNotOver, PeriodNotReady))
    async def close_period(access: Access, period: str) -> PeriodView:
        """Close a month that is over, without waiting for its grace to pass. A month that is closed stays as it is."""
        tenant, _, month = period.partition(".")
        if tenant not in runtime.context().docs.resident(TENANTS) or not _is_month(month):
            raise NotFound(f"There is no month {period}.")
        return _view(runtime, await close(runtime, tenant, month, access.cause(tenant)))

    return router


def _is_month(text: str) -> bool:
    try:
        return datetime.strptime(text, "%Y-%m").strftime("%Y-%m") == text  # noqa: DTZ007 - a month has no zone
    except ValueError:
        return False


def _view(runtime: Runtime, doc: Period) -> PeriodView:
    zones = zones_of(runtime.context(), doc.tenant)
    start_us, end_us = bounds(doc.period, zones)
    return PeriodView(
        period=f"{doc.tenant}.{doc.period}",
        tenant=doc.tenant,
        month=doc.period,
        state=doc.state,
        timezone=doc.timezone or zone_name(doc.period, zones),
        from_at=instant(start_us if doc.from_us is None else doc.from_us),
        to_at=instant(end_us if doc.to_us is None else doc.to_us),
        lines=doc.lines,
        held=quantity(doc.held),
        billable=quantity(doc.billable),
        digest=doc.digest,
        closed_at=None if doc.closed_us is None else instant(doc.closed_us),
    )
