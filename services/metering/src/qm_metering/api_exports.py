"""Exports for other people's tools."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from qm_events.metering import Month
from qm_events.units import DnsLabel
from qm_metering.consumers import zones_of
from qm_metering.focus import as_csv, as_json_lines, priced
from qm_metering.months import bounds
from qm_metering.periods import PERIODS, Period, period_key
from qm_metering.projections import LEDGER, LedgerLine
from qm_service.caller import Access
from qm_service.problem import problems
from qm_service.runtime import Runtime

_CHUNK = 1_000
_TYPES = {"csv": "text/csv", "jsonl": "application/jsonl"}


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of exports."""
    router = APIRouter()

    @router.get("/exports/focus", responses=problems(), response_class=StreamingResponse)
    async def export_focus(
        access: Access,
        tenant: Annotated[DnsLabel, Query(description="Whose month")],
        month: Annotated[Month, Query(description="The month on whose bill the lines are, as `2026-06`")],
        format: Annotated[Literal["csv", "jsonl"], Query(description="CSV, or a JSON object a line")] = "csv",
    ) -> StreamingResponse:
        """The priced lines on the bill of a month, of the projects in which the caller has a role, as FOCUS rows."""
        known: Period | None = runtime.context().docs.resident(PERIODS).get(period_key(tenant, month))
        limits = bounds(month, zones_of(runtime.context(), tenant))
        if known and known.from_us is not None and known.to_us is not None:
            limits = known.from_us, known.to_us
        pages = _pages(runtime, period_key(tenant, month), access.scopes())
        return StreamingResponse(_written(pages, limits, format), media_type=_TYPES[format])

    return router


async def _written(
    pages: AsyncIterator[list[LedgerLine]], limits: tuple[int, int], form: Literal["csv", "jsonl"]
) -> AsyncIterator[str]:
    first = True
    async for lines in pages:
        rows = priced(lines, limits)
        yield as_csv(rows, header=first) if form == "csv" else as_json_lines(rows)
        first = False


async def _pages(runtime: Runtime, period: str, scopes: Sequence[str] | None) -> AsyncIterator[list[LedgerLine]]:
    """Yield the billable lines of a month by their ids, a page at a time and at least one."""
    table, last = runtime.schema.documents[LEDGER.name], ""
    query = select(table.c.key, table.c.doc).where(table.c.period == period, table.c.meter == "billable")
    if scopes is not None:
        query = query.where(table.c.scope.in_(scopes))
    while True:
        async with runtime.database.read() as tx:
            rows = (await tx.execute(query.where(table.c.key > last).order_by(table.c.key).limit(_CHUNK))).all()
        yield [LedgerLine.model_validate_json(raw) for _, raw in rows]
        if len(rows) < _CHUNK:
            return
        last = rows[-1].key
