"""The fleet over HTTP: what every card's time was, and what does not fit together."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from qm_events.envelope import UtcTime
from qm_metering.conservation import conservation
from qm_metering.findings import Finding, findings
from qm_metering.fleet import CLAIMS, NODES
from qm_metering.intervals import Span, instant, micros
from qm_metering.problems import WindowReversed
from qm_metering.projections import ORDERS
from qm_metering.quantity import Quantity, quantity
from qm_service.caller import Access, Page
from qm_service.page import Paged, page
from qm_service.problem import problems
from qm_service.runtime import Runtime


class ClassRow(BaseModel):
    """The time in one class."""

    counts_as: str
    quantity: Quantity


class FleetReport(BaseModel):
    """Each card and instant of the window is in exactly one class: they add up to `whole`, to the microsecond."""

    from_at: datetime = Field(serialization_alias="from")
    to_at: datetime = Field(serialization_alias="to")
    whole: Quantity
    """Cards x time in the fleet."""
    classes: list[ClassRow]
    """`unaccounted`: what the fleet and the orders say differently; see GET /v1/usage/findings."""


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of the fleet."""
    router = APIRouter()

    @router.get("/usage/fleet", responses=problems(WindowReversed))
    async def usage_of_fleet(
        access: Access,  # noqa: ARG001 - of scope `platform`: checked already
        from_at: Annotated[UtcTime | None, Query(alias="from")] = None,
        to_at: Annotated[UtcTime | None, Query(alias="to")] = None,
    ) -> FleetReport:
        """The time of all cards by class, up to now at most; without `from`, since there are cards."""
        docs, now_us = runtime.context().docs, micros(runtime.clock.now())
        nodes = docs.resident(NODES.name)
        first = min((card.from_us for node in nodes.values() for card in node.cards), default=0)
        end_us = min(now_us, micros(to_at)) if to_at else now_us
        window = Span(min(first, end_us) if from_at is None else micros(from_at), end_us)
        if window.start_us > end_us:
            raise WindowReversed(f"The window begins at {instant(window.start_us).isoformat()}, after its end.")
        running = list(docs.resident(ORDERS.name).values())
        async with runtime.database.read() as tx:
            found = await conservation(tx, runtime.schema, nodes, running, window)
        rows = [ClassRow(counts_as=name, quantity=quantity(card_us)) for name, card_us in found.classes.items()]
        return FleetReport(
            from_at=instant(window.start_us), to_at=instant(end_us), whole=quantity(found.whole_us), classes=rows
        )

    @router.get("/usage/findings", responses=problems())
    async def usage_findings(access: Access, window: Page) -> Paged[Finding]:  # noqa: ARG001 - as above
        """What is wrong with the time of live orders, and who has to say what is missing."""
        docs, status = runtime.context().docs, runtime.status()
        orders, claims = docs.resident(ORDERS.name), docs.resident(CLAIMS.name)
        found = list(findings(orders, claims, status.halted, micros(runtime.clock.now())))
        (skip,) = window.start(int) or (0,)
        shown = list(enumerate(found, 1))[skip : skip + window.fetch]
        cut, following = window.cut(shown, lambda row: (row[0],))
        return page([finding for _, finding in cut], following)

    return router
