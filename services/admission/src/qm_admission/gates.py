"""The gates that an order passes, each answered in facts. Pure.

A request that passes a limit even with nothing in use is rejected; a policy that matches asks a person, so nobody holds
quota while people think; then all amounts are claimed at all scopes at once, or the order is held (or rejected, where
the project says so) with every limit in the way.
"""

from collections.abc import Sequence

from qm_admission import quota, remedies
from qm_admission.conditions import first_asking
from qm_admission.levels import next_question
from qm_admission.quota import Answer
from qm_admission.state import Admission, Phase
from qm_events import EventData
from qm_events.admission import (
    OrderAdmitted,
    OrderHeld,
    OrderRejected,
    QuotaClaimed,
    Submission,
)
from qm_events.approval import ApprovalPolicy
from qm_events.specs import Amounts, Violation
from qm_service.model import Context


def pass_through(
    state: Admission, order: str, submission: Submission, ctx: Context, policies: Sequence[ApprovalPolicy] = ()
) -> list[EventData]:
    """Return what becomes of an order now; `policies` are those that may still ask. An unchanged wait is no fact."""
    request, scopes = submission.request, ctx.docs.resident("scopes")
    path, amounts = quota.path_of(request.tenant, request.project), quota.amounts_of(request)
    ahead = ctx.index.lines.ahead_of((submission.submitted_at, order))
    answer, violations = quota.assess(path, scopes, amounts, ahead)
    if answer is Answer.NEVER_FITS:
        return [rejection(order, "quota-never-fits", remedies.when_never(request, violations), ctx, violations)]
    policy = first_asking(policies, submission, ctx)
    if policy and (question := next_question(state, order, policy, submission, ctx)):
        return [question]
    if answer is Answer.FITS:
        claimed = QuotaClaimed(order=order, scopes=path, amounts=Amounts(values=amounts))
        return [claimed, OrderAdmitted(order=order, **dict(submission))]
    if answer is Answer.REFUSED:
        return [rejection(order, "quota-exceeded", remedies.when_refused(request, violations), ctx, violations)]
    if state.phase is Phase.HELD and quota.unchanged(quota.blocks(state.blocked), violations):
        return []
    remedy = remedies.when_held(violations)
    return [OrderHeld(order=order, violations=violations, remedy=remedy, held_at=ctx.now, submission=submission)]


def rejection(
    order: str, code: str, remedy: str, ctx: Context, violations: tuple[Violation, ...] = ()
) -> OrderRejected:
    """Return the end of an order that was never admitted."""
    return OrderRejected(order=order, code=code, violations=violations, remedy=remedy, rejected_at=ctx.now)
