"""What admission would say to an order now. It runs the very gates that a real order passes, and writes nothing.

The catalog resolves names to an exact request (`POST /orders:simulate` answers with it as `request`); this route takes
that request. The SDK and `qm quote` ask both and join the answers.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from qm_admission import claims, gates, hours, quota, ways
from qm_admission.quota_view import EffectView, effects
from qm_admission.state import Admission
from qm_events import EventData
from qm_events.admission import ApprovalRequested, OrderAdmitted, OrderHeld, OrderRejected, QuotaClaimed, Submission
from qm_events.specs import OrderRequest, Remedy, Violation
from qm_service.caller import Access
from qm_service.model import Context
from qm_service.problem import ValidationFailed, problems
from qm_service.runtime import Runtime

LAST = "~"
"""Sorts after every id: the order is the youngest."""


class SimulateBody(BaseModel):
    """An order as `POST /orders:simulate` resolved it."""

    model_config = ConfigDict(extra="forbid")

    request: OrderRequest = Field(description="The `request` of the catalog's quote, unchanged.")


class ApprovalRoute(BaseModel):
    """Who would be asked first."""

    policy: str = Field(description="The policy that asks")
    level: int = Field(description="Its level, from 1")
    approvers: list[str] = Field(description="Who may decide as of now; empty = nobody, and the order would wait")
    lapses_at: datetime | None = Field(description="When the time to decide would be over; null = never")


class Admissibility(BaseModel):
    """What admission would do with the order, were it submitted now."""

    outcome: Literal["admitted", "pending_approval", "held", "rejected"] = Field(description="What becomes of it")
    quota: Literal["fits", "held", "refused", "never-fits"] = Field(
        description="What the ledger says by itself, whether or not a person is asked before"
    )
    effects: list[EffectView] = Field(description="Every scope and dimension that the order would take from")
    violations: list[Violation] = Field(description="Every limit in the way")
    remedies: list[Remedy] = Field(description="The ways out, the easiest first")
    approval: ApprovalRoute | None = Field(description="Null = nobody is asked")
    covered_until: datetime | None = Field(
        description="How far the monthly card-hours of an order without an end would reach; null = to its end"
    )
    borrowed: dict[str, int] = Field(description="What of it would be borrowed, and may be reclaimed")
    reported: list[Violation] = Field(description="Limits that it would pass and that only report")


def routes(runtime: Runtime) -> APIRouter:
    """Return the route of the simulation."""
    router = APIRouter()

    @router.post("/quotas/{tenant}/{project}:simulate", responses=problems())
    async def simulate_admission(access: Access, tenant: str, project: str, body: SimulateBody) -> Admissibility:
        """Tell what quota and approval would say to an order; nothing is changed, nothing is reserved."""
        access.check(tenant, project)
        if (body.request.tenant, body.request.project) != (tenant, project):
            raise ValidationFailed(
                f"The request is of {body.request.tenant}/{body.request.project}.",
                field="request",
                remedy="Use the path of the request's own tenant and project.",
            )
        # Policies look at who orders: nobody tries them out in another's name.
        request = body.request.model_copy(update={"requester": access.caller.subject})
        return simulated(request, runtime.context())

    return router


def simulated(request: OrderRequest, ctx: Context) -> Admissibility:
    """Return what the gates say to a request now."""
    submission = Submission(request=request, digest="", submitted_at=ctx.now)
    policies = ctx.docs.resident("policies").get(request.tenant, ())
    said = gates.pass_through(Admission(), LAST, submission, ctx, policies)
    path, place = quota.path_of(request.tenant, request.project), (ctx.now, LAST)
    verdict = claims.weigh(path, quota.amounts_of(request), hours.life_of(request), place, ctx)
    asked, claim = _one(said, ApprovalRequested), _one(said, QuotaClaimed)
    return Admissibility(
        outcome=next(_OUTCOMES[type(data)] for data in reversed(said) if type(data) in _OUTCOMES),
        quota=verdict.answer.value,
        effects=effects(path, ctx.docs.resident("scopes"), verdict.amounts),
        violations=list(verdict.violations),
        remedies=list(ways.out_of(request, verdict, place, ctx)) if verdict.violations else [],
        approval=asked
        and ApprovalRoute(
            policy=asked.policy, level=asked.level, approvers=list(asked.approvers), lapses_at=asked.lapses_at
        ),
        covered_until=verdict.covered_until,
        borrowed=dict(claim.borrowed.values) if claim and claim.borrowed else {},
        reported=list(quota.reported(path, ctx.docs.resident("scopes"), verdict.amounts)),
    )


_OUTCOMES: dict[type[EventData], Literal["admitted", "pending_approval", "held", "rejected"]] = {
    OrderAdmitted: "admitted",
    ApprovalRequested: "pending_approval",
    OrderHeld: "held",
    OrderRejected: "rejected",
}


def _one(said: Sequence[EventData], kind: type[EventData]) -> Any:
    return next((data for data in said if isinstance(data, kind)), None)
