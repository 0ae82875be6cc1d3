"""What an order would be, cost, take and wait for: the catalog's own part, joined with what its peers say."""

import asyncio
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from qm_catalog.approval_record import Approval
from qm_catalog.billing import money
from qm_catalog.forms import OrderForm
from qm_catalog.lookup import project_named
from qm_catalog.ordering import ORDERING, offering_of, resolve, warnings
from qm_catalog.peers import MAY_IT, WHERE, Peers, Silence
from qm_catalog.record_phase import Reason, reasons
from qm_catalog.request_record import Asked, Placed, Record, Vetted
from qm_events.specs import OrderRequest
from qm_service.caller import Access
from qm_service.problem import problems
from qm_service.runtime import Runtime
from qm_service.simulation import Admissibility, ApprovalRoute, Standing


class Quote(BaseModel):
    """What would become of an order. A part that cannot be told now is null, and `silent` says why."""

    request: OrderRequest = Field(description="The order with every name looked up")
    cards: int
    offering: str | None = Field(description="Whose price holds; null = the specification is not on sale")
    currency: str | None
    price_per_card_hour: str | None
    price_per_hour: str | None = Field(description="Of all cards together")
    price_total: str | None = Field(description="For the whole duration, where one was given")
    warnings: list[str]
    admission: Admissibility | None = Field(description="What quota and approval say")
    queue: Standing | None = Field(description="Where it would stand once admitted, were that now")
    reasons: list[Reason] | None = Field(
        description="What its record would give as reasons, were it placed now; empty = it would get its cards at once"
    )
    silent: list[Silence] = Field(description="Why parts are null; empty = all is answered")


def routes(runtime: Runtime, peers: Peers) -> APIRouter:
    """Return the route of the simulation."""
    router = APIRouter()

    @router.post("/orders:simulate", responses=problems(*ORDERING))
    async def simulate_order(form: OrderForm, access: Access, call: Request) -> Quote:
        """Tell what an order would be and cost, what it would take of each quota, who would be asked, what it would
        wait for and when it may start. Nothing is changed, nothing is reserved."""
        tenant, project = await project_named(runtime, access, form.project)
        ctx = runtime.context()
        request = resolve(form, tenant, project, access.caller.subject, ctx.docs, ctx.now)
        own = _own(request, ctx.docs)
        may_it, where = peers.ask(call, MAY_IT, request), peers.ask(call, WHERE, request)
        admission, queue = await asyncio.gather(may_it, where)
        silent = [said for said in (admission, queue) if isinstance(said, Silence)]
        said = None if isinstance(admission, Silence) else admission
        stands = None if isinstance(queue, Silence) else queue
        return Quote(
            request=request,
            **own,
            admission=said,
            queue=stands,
            reasons=would_wait(request, said, stands, ctx.now),
            silent=silent,
        )

    return router


def _own(request: OrderRequest, docs: Any) -> dict[str, Any]:
    offering = offering_of(docs.resident("offerings").values(), request)
    price = offering.prices[-1] if offering else None
    an_hour = Fraction(price.per_card_hour) * request.portion if price else None
    hourly = None if price is None else str(price.per_card_hour * request.cards)
    total = None
    if an_hour is not None and request.duration_seconds is not None:
        total = an_hour * request.duration_seconds / 3600
    return {
        "cards": request.cards,
        "offering": offering.name if offering else None,
        "currency": price.currency if price else None,
        "price_per_card_hour": str(price.per_card_hour) if price else None,
        "price_per_hour": money(an_hour) if an_hour and request.specification.slice else hourly,
        "price_total": None if total is None else money(total),
        "warnings": warnings(request, docs),
    }


def would_wait(
    request: OrderRequest, said: Admissibility | None, stands: Standing | None, now: datetime
) -> list[Reason] | None:
    """Return the reasons of the record that the order would have; None where that is not known.

    What waits for people or quota is in no queue, so the queue's reasons are its own only once it is admitted.
    """
    if said is None or (said.outcome == "admitted" and stands is None):
        return None
    placed = Placed()
    if said.outcome == "admitted" and stands is not None:
        placed = Placed(queued_at=now, reasons=tuple(stands.reasons), waiting_since=now)
    asked = Asked(request=request, submitted_at=now)
    return list(reasons(Record(order="", asked=asked, vetted=_vetted(said, now), placed=placed)))


def _vetted(said: Admissibility, now: datetime) -> Vetted:
    stopped = Vetted(violations=tuple(said.violations), remedy=said.remedy, remedies=tuple(said.remedies))
    match said.outcome:
        case "rejected":
            return replace(stopped, rejected_at=now, reject_code=said.code)
        case "held":
            return replace(stopped, gate="quota", held_at=now)
        case "pending_approval":
            return Vetted(gate="approval", approvals=_asked(said.approval, now))
        case "admitted":
            return Vetted(admitted_at=now)


def _asked(route: ApprovalRoute | None, now: datetime) -> tuple[Approval, ...]:
    """Return the first question of a route."""
    if route is None:
        return ()
    first = route.levels[0]
    return (
        Approval(
            approval="",
            policy=route.policy,
            level=first.level,
            levels=len(route.levels),
            needed=first.needed,
            approvers=tuple(first.approvers),
            awaited=tuple(first.awaited),
            requested_at=now,
            lapses_at=first.lapses_at,
        ),
    )
