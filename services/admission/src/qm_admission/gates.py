"""The gates that an order passes, each answered in facts. Pure.

A request that passes a limit even with nothing in use, or asks for a priority that its scopes do not allow, is
rejected; a policy that matches asks a person, so nobody holds quota while people think; then all amounts are claimed at
all scopes at once, or the order is held (or rejected, where the project says so) with every limit in the way.
"""

from collections.abc import Sequence
from datetime import datetime

from qm_admission import claims, precedence, quota, remedies, ways
from qm_admission.conditions import first_asking
from qm_admission.hours import Life, life_of
from qm_admission.levels import next_question
from qm_admission.quota import Answer
from qm_admission.state import Admission, Phase
from qm_events import EventData
from qm_events.admission import (
    OrderHeld,
    OrderRejected,
    Submission,
)
from qm_events.approval import ApprovalPolicy
from qm_events.specs import Violation
from qm_service.model import Context


def pass_through(
    state: Admission, order: str, submission: Submission, ctx: Context, policies: Sequence[ApprovalPolicy] = ()
) -> list[EventData]:
    """Return what becomes of an order now; `policies` are those that may still ask. An unchanged wait is no fact."""
    request, place = submission.request, (submission.submitted_at, order)
    path, fixed = quota.path_of(request.tenant, request.project), quota.amounts_of(request)
    verdict = claims.weigh(path, fixed, life_of(request), place, request.priority, ctx)
    answer, violations = verdict.answer, verdict.violations
    if answer is Answer.NEVER_FITS:
        urgent = violations[0].dimension == precedence.DIMENSION
        code = "priority-not-allowed" if urgent else "quota-never-fits"
        return [_refused(order, code, remedies.when_never(request, violations), submission, ctx, verdict)]
    policy = first_asking(policies, submission, ctx)
    if policy and (question := next_question(state, order, policy, submission, ctx)):
        return [question]
    if answer is Answer.FITS:
        return claims.claimed(order, submission, verdict, ctx)
    if answer is Answer.REFUSED:
        return [_refused(order, "quota-exceeded", remedies.when_refused(request, violations), submission, ctx, verdict)]
    if state.phase is Phase.HELD and quota.unchanged(quota.blocks(state.blocked), violations):
        return []
    return [_held(order, submission, verdict, ctx)]


def back_in_line(state: Admission, order: str, submission: Submission, life: Life, ctx: Context) -> list[EventData]:
    """Return what becomes of a suspended order now. Nobody is asked again, and it is never turned away: it is the
    owner's to end it."""
    request, place = submission.request, (submission.submitted_at, order)
    path = quota.path_of(request.tenant, request.project)
    # Its priority was allowed when it was admitted: a bound that was lowered since does not keep it out for ever.
    verdict = claims.weigh(path, quota.amounts_of(request), life, place, precedence.DEFAULT, ctx)
    if verdict.answer is Answer.FITS:
        return claims.resumed(order, verdict, ctx)
    if state.phase is Phase.HELD and quota.unchanged(quota.blocks(state.blocked), verdict.violations):
        return []
    return [_held(order, submission, verdict, ctx, life.expires_at)]


def _held(
    order: str, submission: Submission, verdict: claims.Verdict, ctx: Context, ends_at: datetime | None = None
) -> OrderHeld:
    request, place = submission.request, (submission.submitted_at, order)
    return OrderHeld(
        order=order,
        violations=verdict.violations,
        remedy=remedies.when_held(verdict.violations),
        held_at=ctx.now,
        submission=submission,
        remedies=ways.out_of(request, verdict, place, ctx),
        reclaims=claims.lent_out(verdict.path, verdict.amounts, ctx),
        ends_at=ends_at,
    )


def _refused(
    order: str, code: str, remedy: str, submission: Submission, ctx: Context, verdict: claims.Verdict
) -> OrderRejected:
    place = (submission.submitted_at, order)
    said = rejection(order, code, remedy, ctx, verdict.violations)
    return said.model_copy(update={"remedies": ways.out_of(submission.request, verdict, place, ctx)})


def rejection(
    order: str, code: str, remedy: str, ctx: Context, violations: tuple[Violation, ...] = ()
) -> OrderRejected:
    """Return the end of an order that was never admitted."""
    return OrderRejected(order=order, code=code, violations=violations, remedy=remedy, rejected_at=ctx.now)
