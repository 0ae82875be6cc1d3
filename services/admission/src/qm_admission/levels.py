"""Asking people: the question of a level, and who may answer it when the directory changes. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from qm_admission.bench import awaited, bench, needed_at_first
from qm_admission.question import Approval, levels_of
from qm_admission.state import Admission, passed
from qm_events.admission import ApprovalRequested, Submission
from qm_events.admission_approval import ApprovalRerouted
from qm_events.approval import ApprovalPolicy
from qm_events.ids import derived_id
from qm_service.model import Context


def next_question(
    state: Admission, order: str, policy: ApprovalPolicy, submission: Submission, ctx: Context
) -> ApprovalRequested | None:
    """Return the question of the first level that was not passed yet; None when there is none left.

    To those who may decide now; to nobody, visibly, where there is nobody.
    """
    done = passed(state, policy, submission.digest)
    if done == len(levels_of(policy)):
        return None
    return question(order, len(state.earlier) + (2 if state.asked else 1), policy, done + 1, submission, ctx)


def question(
    order: str, nth: int, policy: ApprovalPolicy, level: int, submission: Submission, ctx: Context
) -> ApprovalRequested:
    """Return the `nth` question about an order: a level of a policy, to the people of now."""
    asked = _draft(order, nth, policy, level, submission, ctx.now)
    asked = replace(asked, needed=needed_at_first(asked, ctx))
    found = bench(asked, ctx)
    return ApprovalRequested(
        order=order,
        approval=asked.approval,
        policy=policy.name,
        level=level,
        approvers=found.approvers,
        digest=asked.digest,
        requested_at=ctx.now,
        lapses_at=asked.lapses_at,
        approver_role=policy.approver_role,
        approver_subjects=policy.approver_subjects,
        self_approval=policy.self_approval,
        submission=submission,
        by=policy,
        levels=asked.levels,
        needed=asked.needed,
        awaited=awaited(asked, found),
        escalates_at=asked.escalates_at,
        remind_at=asked.remind_at,
    )


def _draft(order: str, nth: int, policy: ApprovalPolicy, level: int, submission: Submission, now: datetime) -> Approval:
    levels, request = levels_of(policy), submission.request
    rule = levels[level - 1]
    return Approval(
        order=order,
        approval=derived_id("approval", order, nth),
        tenant=request.tenant,
        project=request.project,
        policy=policy.name,
        level=level,
        levels=len(levels),
        needed=1,
        request=request,
        digest=submission.digest,
        by=policy,
        approvers=(),
        awaited=(),
        approver_role=policy.approver_role,
        approver_subjects=policy.approver_subjects,
        self_approval=policy.self_approval,
        requested_at=now,
        lapses_at=_later(now, rule.lapses_after_seconds),
        escalates_at=_later(now, rule.escalate_after_seconds),
        remind_at=_later(now, rule.remind_every_seconds),
    )


def _later(now: datetime, seconds: int | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)


def rerouted(asked: Approval, ctx: Context, by: ApprovalPolicy | None = None) -> ApprovalRerouted | None:
    """Return who may decide now, where that is not what was told last; `by` is the policy that changed."""
    found = bench(replace(asked, by=by) if by else asked, ctx)
    people, wait = found.approvers, awaited(asked, found)
    if by is None and (people, wait) == (asked.approvers, asked.awaited):
        return None
    return ApprovalRerouted(
        order=asked.order,
        approval=asked.approval,
        level=asked.level,
        cause="policy_changed" if by else "people_changed",
        approvers=people,
        awaited=wait,
        joined=tuple(name for name in people if name not in asked.approvers),
        needed=asked.needed,
        by=by,
        notices=(by or asked.by).notices,
        rerouted_at=ctx.now,
    )
