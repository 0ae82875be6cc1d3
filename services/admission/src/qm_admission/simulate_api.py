"""What admission would say to an order now. It runs the very gates that a real order passes, and writes nothing.

The catalog resolves names to an exact request and asks here, with the caller's own token (`POST /v1/orders:simulate`).
"""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter

from qm_admission import claims, gates, hours, quota, ways
from qm_admission.levels import question
from qm_admission.question import levels_of
from qm_admission.quota_view import effects
from qm_admission.state import Admission
from qm_events import EventData
from qm_events.admission import ApprovalRequested, OrderAdmitted, OrderHeld, OrderRejected, QuotaClaimed, Submission
from qm_events.specs import OrderRequest
from qm_service.caller import Access
from qm_service.model import Context
from qm_service.problem import problems
from qm_service.runtime import Runtime
from qm_service.simulation import ADMISSION, LAST, Admissibility, ApprovalRoute, Outcome, RouteLevel, SimulateBody


def routes(runtime: Runtime) -> APIRouter:
    """Return the route of the simulation."""
    router = APIRouter()

    @router.post(ADMISSION, responses=problems())
    async def simulate_admission(access: Access, tenant: str, project: str, body: SimulateBody) -> Admissibility:
        """Tell what quota and approval would say to an order; nothing is changed, nothing is reserved."""
        return simulated(body.asked_by(access, tenant, project), runtime.context())

    return router


def simulated(request: OrderRequest, ctx: Context) -> Admissibility:
    """Return what the gates say to a request now."""
    submission = Submission(request=request, digest="", submitted_at=ctx.now)
    policies = ctx.docs.resident("policies").get(request.tenant, ())
    said = gates.pass_through(Admission(), LAST, submission, ctx, policies)
    path, place = quota.path_of(request.tenant, request.project), (ctx.now, LAST)
    verdict = claims.weigh(path, quota.amounts_of(request), hours.life_of(request), place, ctx)
    last = next(data for data in reversed(said) if type(data) in _OUTCOMES)
    claim, asked = _one(said, QuotaClaimed), _one(said, ApprovalRequested)
    return Admissibility(
        outcome=_OUTCOMES[type(last)],
        code=last.code if isinstance(last, OrderRejected) else "",
        quota=verdict.answer.value,
        effects=effects(path, ctx.docs.resident("scopes"), verdict.amounts),
        violations=list(verdict.violations),
        remedy=last.remedy if isinstance(last, OrderHeld | OrderRejected) else "",
        remedies=list(ways.out_of(request, verdict, place, ctx)) if verdict.violations else [],
        approval=_route(asked, submission, ctx) if asked else None,
        covered_until=verdict.covered_until,
        borrowed=dict(claim.borrowed.values) if claim and claim.borrowed else {},
        reported=list(quota.reported(path, ctx.docs.resident("scopes"), verdict.amounts)),
    )


_OUTCOMES: dict[type[EventData], Outcome] = {
    OrderAdmitted: "admitted",
    ApprovalRequested: "pending_approval",
    OrderHeld: "held",
    OrderRejected: "rejected",
}


def _route(first: ApprovalRequested, submission: Submission, ctx: Context) -> ApprovalRoute | None:
    """Return all levels of the policy that asks, each with the people of now."""
    policy = first.by
    if policy is None:
        return None
    levels = levels_of(policy)
    asked = [question(LAST, nth, policy, nth, submission, ctx) for nth in range(1, len(levels) + 1)]
    return ApprovalRoute(
        policy=policy.name,
        levels=[
            RouteLevel(
                level=it.level,
                rule=rule.rule,
                needed=it.needed or 1,
                approvers=list(it.approvers),
                awaited=list(it.awaited or ()),
                lapses_at=it.lapses_at,
            )
            for it, rule in zip(asked, levels, strict=True)
        ],
    )


def _one(said: Sequence[EventData], kind: type[EventData]) -> Any:
    return next((data for data in said if isinstance(data, kind)), None)
