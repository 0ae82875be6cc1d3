"""What becomes of an open question without a vote: its times, changes of its people, changes of the policies. Pure.

A change of the directory only changes who may speak: whatever happens to it, only a vote approves. When the policies of
a tenant change, each waiting order ends where the new ones put it: levels that were passed stay passed where their rule
and the digest are the same; an open question whose level stays the same keeps its votes and times; any other is taken
back, and the order is asked anew or goes on.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from qm_admission import gates
from qm_admission.bench import awaited, bench
from qm_admission.conditions import first_asking
from qm_admission.levels import next_question, rerouted
from qm_admission.question import Approval, levels_of
from qm_admission.state import Admission, Phase, evolve, passed
from qm_events import EventData
from qm_events.admission import ApprovalLapsed, Submission
from qm_events.admission_approval import ApprovalEscalated, ApprovalReminded, ApprovalWithdrawn
from qm_events.approval import ApprovalPolicy
from qm_service.model import Context, Decision

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Alarm:
    """A time of an open question may be over."""

    order: str


@dataclass(frozen=True, slots=True)
class Reroute:
    """The people of an open question may have changed."""

    order: str


@dataclass(frozen=True, slots=True)
class Review:
    """The policies of the tenant changed."""

    order: str


def reroute(state: Admission, _: Reroute, ctx: Context) -> Decision:
    """Return who may decide now; nothing where that is as it was told."""
    if state.phase is not Phase.PENDING or state.asked is None:
        return []
    fact = rerouted(state.asked, ctx)
    return [fact] if fact else []


# ---- time


def alarm(state: Admission, _: Alarm, ctx: Context) -> Decision:
    """Return what is due first: escalation, then the end, then a reminder; one at a time."""
    asked, submission = state.asked, state.submission
    if state.phase is not Phase.PENDING or asked is None or submission is None:
        return []
    instants = (asked.escalates_at, asked.lapses_at, asked.remind_at)
    due = [(at, rank) for rank, at in enumerate(instants) if at is not None and at <= ctx.now]
    if not due:
        return []
    at, rank = min(due)
    if rank == 0:
        return _escalate(state, asked, at, submission, ctx)
    return _lapse(asked, at, ctx) if rank == 1 else [_remind(asked, ctx)]


def _escalate(state: Admission, asked: Approval, at: datetime, submission: Submission, ctx: Context) -> list[EventData]:
    """Dated as it was promised. Time that was lost before it was noticed is given back to those who join."""
    said = {"order": asked.order, "approval": asked.approval, "level": asked.level, "escalated_at": at}
    if asked.rule.escalate_to is None:
        gone = ApprovalEscalated(**said, to="next_level", approvers=(), awaited=(), joined=())
        after = evolve(state, gone)
        return [gone, *_onward(after, asked.order, asked.by, submission, ctx)]
    more = replace(asked, escalated_at=at)
    found = bench(more, ctx)
    return [
        ApprovalEscalated(
            **said,
            to="approvers",
            approvers=found.approvers,
            awaited=awaited(more, found),
            joined=tuple(name for name in found.approvers if name not in asked.approvers),
            notices=asked.by.notices,
            lapses_at=asked.lapses_at and asked.lapses_at + (ctx.now - at),
        )
    ]


def _lapse(asked: Approval, at: datetime, ctx: Context) -> list[EventData]:
    """Dated as it was promised, however late it is noticed."""
    lapsed = ApprovalLapsed(order=asked.order, approval=asked.approval, level=asked.level, lapsed_at=at)
    remedy = "Nobody decided in time: submit the order again, and tell an approver."
    return [lapsed, gates.rejection(asked.order, "approval-lapsed", remedy, ctx)]


def _remind(asked: Approval, ctx: Context) -> ApprovalReminded:
    return ApprovalReminded(
        order=asked.order,
        approval=asked.approval,
        level=asked.level,
        awaited=asked.awaited,
        number=asked.reminders + 1,
        notices=asked.by.notices,
        reminded_at=ctx.now,
        remind_at=_again(asked, ctx.now),
    )


def _again(asked: Approval, now: datetime) -> datetime | None:
    """Return when to remind after this reminder: each pause is twice the last, up to a day (or the pause of the
    rule, where that is longer). A question that nobody answers would else fill the log for as long as it is open."""
    every = asked.rule.remind_every_seconds
    if every is None:
        return None
    return now + timedelta(seconds=min(every << asked.reminders + 1, max(every, DAY_SECONDS)))


# ---- policies


def review(state: Admission, command: Review, ctx: Context) -> Decision:
    """Return what the policies of now make of a waiting order; nothing where that is what it waits for already."""
    submission = state.submission
    if submission is None or state.hold.suspended or state.phase not in (Phase.PENDING, Phase.HELD):
        return []
    policies = ctx.docs.resident("policies").get(submission.request.tenant, ())
    policy = first_asking(policies, submission, ctx)
    if state.phase is Phase.HELD:
        question = policy and next_question(state, command.order, policy, submission, ctx)
        return [question] if question else []
    asked = state.asked
    return [] if asked is None or policy == asked.by else _replaced(state, asked, policy, submission, ctx)


def _replaced(
    state: Admission, asked: Approval, policy: ApprovalPolicy | None, submission: Submission, ctx: Context
) -> list[EventData]:
    if policy is not None and _stays(state, asked, policy):
        fact = rerouted(asked, ctx, by=policy)
        return [fact] if fact else []
    cause = f"policy {policy.name} asks now" if policy else "no policy asks about this order any more"
    gone = ApprovalWithdrawn(
        order=asked.order, approval=asked.approval, level=asked.level, cause=cause, withdrawn_at=ctx.now
    )
    after = evolve(state, gone)
    return [gone, *_onward(after, asked.order, policy, submission, ctx)]


def _stays(state: Admission, asked: Approval, policy: ApprovalPolicy) -> bool:
    """Whether the open level is the one that the policy would ask now, with the same rule."""
    done, levels = passed(state, policy, asked.digest), levels_of(policy)
    same = done == asked.level - 1 and done < len(levels) and levels[done] == asked.rule
    return same and policy.self_approval == asked.by.self_approval


def _onward(
    state: Admission, order: str, policy: ApprovalPolicy | None, submission: Submission, ctx: Context
) -> list[EventData]:
    question = policy and next_question(state, order, policy, submission, ctx)
    return [question] if question else gates.pass_through(state, order, submission, ctx)
