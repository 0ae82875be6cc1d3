"""The gates that an order passes, each answered in facts. Pure.

A request that passes a limit even with nothing in use is rejected; a policy that matches asks a person, so nobody holds
quota while people think; then all amounts are claimed at all scopes at once, or the order is held (or rejected, where
the project says so) with every limit in the way.
"""

from collections.abc import Sequence
from datetime import timedelta

from qm_admission import approval, claims, quota, remedies, ways
from qm_admission.hours import life_of
from qm_admission.quota import Answer
from qm_admission.state import Admission, Phase
from qm_events import EventData
from qm_events.admission import (
    ApprovalPolicy,
    ApprovalRequested,
    OrderHeld,
    OrderRejected,
    Submission,
)
from qm_events.ids import derived_id
from qm_events.specs import Violation
from qm_service.model import Context


def pass_through(
    state: Admission, order: str, submission: Submission, ctx: Context, policies: Sequence[ApprovalPolicy] = ()
) -> list[EventData]:
    """Return what becomes of an order now; `policies` are those that may still ask. An unchanged wait is no fact."""
    request, place = submission.request, (submission.submitted_at, order)
    path, fixed = quota.path_of(request.tenant, request.project), quota.amounts_of(request)
    verdict = claims.weigh(path, fixed, life_of(request), place, ctx)
    answer, violations = verdict.answer, verdict.violations
    if answer is Answer.NEVER_FITS:
        return [_refused(order, "quota-never-fits", remedies.when_never(request, violations), submission, ctx, verdict)]
    if policy := approval.first_asking(policies, request):
        return [_ask(order, policy, submission, ctx)]
    if answer is Answer.FITS:
        return claims.claimed(order, submission, verdict, ctx)
    if answer is Answer.REFUSED:
        return [_refused(order, "quota-exceeded", remedies.when_refused(request, violations), submission, ctx, verdict)]
    if state.phase is Phase.HELD and quota.unchanged(quota.blocks(state.blocked), violations):
        return []
    return [
        OrderHeld(
            order=order,
            violations=violations,
            remedy=remedies.when_held(violations),
            held_at=ctx.now,
            submission=submission,
            remedies=ways.out_of(request, verdict, place, ctx),
            reclaims=claims.lent_out(path, verdict.amounts, ctx),
        )
    ]


def _refused(
    order: str, code: str, remedy: str, submission: Submission, ctx: Context, verdict: claims.Verdict
) -> OrderRejected:
    place = (submission.submitted_at, order)
    said = rejection(order, code, remedy, ctx, verdict.violations)
    return said.model_copy(update={"remedies": ways.out_of(submission.request, verdict, place, ctx)})


def _ask(order: str, policy: ApprovalPolicy, submission: Submission, ctx: Context) -> ApprovalRequested:
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


def rejection(
    order: str, code: str, remedy: str, ctx: Context, violations: tuple[Violation, ...] = ()
) -> OrderRejected:
    """Return the end of an order that was never admitted."""
    return OrderRejected(order=order, code=code, violations=violations, remedy=remedy, rejected_at=ctx.now)
