"""The gates that an order passes, each answered in facts. Pure.

A request that passes a limit even with nothing in use is rejected; a policy that matches asks a person, so nobody holds
quota while people think; then all amounts are claimed at all scopes at once, or the order is held (or rejected, where
the project says so) with every limit in the way.
"""

from datetime import timedelta

from qm_admission import approval, quota, remedies
from qm_admission.quota import Answer
from qm_admission.state import Admission, Phase
from qm_events import EventData
from qm_events.admission import (
    ApprovalPolicy,
    ApprovalRequested,
    OrderAdmitted,
    OrderHeld,
    OrderRejected,
    QuotaClaimed,
    Submission,
)
from qm_events.ids import derived_id
from qm_events.specs import Amounts, OrderRequest, Violation
from qm_service.model import Context


def never_fits(order: str, request: OrderRequest, ctx: Context) -> OrderRejected | None:
    """Return the rejection of a request that no refund would ever let in, with every limit that it passes."""
    path = quota.path_of(request.tenant, request.project)
    violations = quota.never_fits(path, ctx.docs.resident("scopes"), quota.amounts_of(request))
    return _never_fits(order, request, violations, ctx) if violations else None


def _never_fits(order: str, request: OrderRequest, violations: tuple[Violation, ...], ctx: Context) -> OrderRejected:
    return rejection(order, "quota-never-fits", remedies.when_never(request, violations), ctx, violations)


def ask(order: str, policy: ApprovalPolicy, submission: Submission, ctx: Context) -> ApprovalRequested:
    """Return the question to those who may decide now; to nobody, visibly, where there is nobody."""
    request, subjects = submission.request, ctx.docs.resident("subjects")
    role = policy.approver_role
    candidates = ctx.index.holders(request.tenant, request.project, role) if role else ()
    lapse = policy.lapses_after_seconds
    return ApprovalRequested(
        order=order,
        approval=derived_id("approval", order, 1),
        policy=policy.name,
        level=1,
        approvers=approval.approvers(
            policy, request, candidates, lambda subject: doc.grants if (doc := subjects.get(subject)) else ()
        ),
        digest=submission.digest,
        requested_at=ctx.now,
        lapses_at=None if lapse is None else ctx.now + timedelta(seconds=lapse),
        approver_role=role,
        approver_subjects=policy.approver_subjects,
        self_approval=policy.self_approval,
        submission=submission,
    )


def claim(state: Admission, order: str, submission: Submission, ctx: Context) -> list[EventData]:
    """Return the claim of all amounts at all scopes, or what stands in the way. An unchanged wait is not said twice."""
    request, lines = submission.request, ctx.index.lines
    path, amounts = quota.path_of(request.tenant, request.project), quota.amounts_of(request)
    ahead = lines.ahead_of((submission.submitted_at, order))
    answer, violations = quota.assess(path, ctx.docs.resident("scopes"), amounts, ahead)
    match answer:
        case Answer.FITS:
            return [
                QuotaClaimed(order=order, scopes=path, amounts=Amounts(values=amounts)),
                OrderAdmitted(order=order, **dict(submission)),
            ]
        case Answer.NEVER_FITS:
            return [_never_fits(order, request, violations, ctx)]
        case Answer.REFUSED:
            return [rejection(order, "quota-exceeded", remedies.when_refused(request, violations), ctx, violations)]
        case Answer.HELD:
            if state.phase is Phase.HELD and quota.unchanged(quota.blocks(state.blocked), violations):
                return []
            remedy = remedies.when_held(violations)
            return [
                OrderHeld(order=order, violations=violations, remedy=remedy, held_at=ctx.now, submission=submission)
            ]


def rejection(
    order: str, code: str, remedy: str, ctx: Context, violations: tuple[Violation, ...] = ()
) -> OrderRejected:
    """Return the end of an order that was never admitted."""
    return OrderRejected(order=order, code=code, violations=violations, remedy=remedy, rejected_at=ctx.now)
