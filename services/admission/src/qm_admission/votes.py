"""What a person's decision leads to, and what its absence does. Pure.

A vote binds to the digest of the parameters: what was approved is what executes. Late, double and conflicting votes
change nothing and are told why.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from qm_admission import approval, gates
from qm_admission.state import Admission, Phase
from qm_events import EventData
from qm_events.admission import ApprovalDenied, ApprovalGranted, ApprovalLapsed, ApprovalRequested, Submission
from qm_events.specs import OrderRequest
from qm_service.model import Context, Decision, Rejected


@dataclass(frozen=True, slots=True)
class Vote:
    """A person decides; `digest` None means the parameters as they are."""

    order: str
    approval: str
    verdict: Literal["approve", "deny"]
    approver: str
    digest: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Lapse:
    """The time for an approval may be over."""

    order: str


def vote(state: Admission, command: Vote, ctx: Context) -> Decision:
    """Return the decision and what follows from it at once; a refusal where the vote does not count."""
    asked, submission = state.asked, state.submission
    if asked is None or submission is None or asked.approval != command.approval:
        return Rejected("approval-not-open", "this approval was never asked for", "read GET /v1/approvals again")
    subject = ctx.docs.get("subjects", command.approver)
    if not approval.entitled(asked, submission.request, command.approver, subject.grants if subject else ()):
        return _not_entitled(command.approver, submission.request, asked)
    if refused := _too_late(state, asked, command, ctx):
        return refused
    if command.digest not in (None, asked.digest):
        return Rejected(
            "approval-digest-mismatch",
            f"the order's parameters have the digest {asked.digest}, not {command.digest}",
            "read the approval again and decide on what it shows",
        )
    return _decided(state, command, asked, submission, ctx)


def _not_entitled(subject: str, request: OrderRequest, asked: ApprovalRequested) -> Rejected:
    if subject == request.requester and not asked.self_approval:
        return Rejected("approval-own-order", "nobody decides on an order of his own", "ask another approver")
    return Rejected("approval-not-yours", f"{subject} is not an approver of this order", "ask one of its approvers")


def _too_late(state: Admission, asked: ApprovalRequested, command: Vote, ctx: Context) -> Rejected | None:
    match state.verdict:
        case ApprovalGranted(approver=approver, decided_at=at) | ApprovalDenied(approver=approver, decided_at=at):
            same = isinstance(state.verdict, ApprovalGranted) == (command.verdict == "approve")
            code = "approval-already-decided" if same else "approval-conflict"
            return Rejected(code, f"{approver} decided at {at.isoformat()}", "nothing to do: the decision stands")
        case ApprovalLapsed():
            return _over(state.verdict.lapsed_at)
    if asked.lapses_at is not None and asked.lapses_at <= ctx.now:
        return _over(asked.lapses_at)
    if state.phase is not Phase.PENDING:
        return Rejected("approval-void", "the order ended before anybody decided", "nothing to do")
    return None


def _over(at: datetime) -> Rejected:
    return Rejected("approval-lapsed", f"the time to decide was over at {at.isoformat()}", "submit the order again")


def _decided(
    state: Admission, command: Vote, asked: ApprovalRequested, submission: Submission, ctx: Context
) -> list[EventData]:
    said = {
        "order": command.order,
        "approval": asked.approval,
        "level": asked.level,
        "approver": command.approver,
        "comment": command.comment,
        "digest": asked.digest,
        "decided_at": ctx.now,
    }
    if command.verdict == "deny":
        remedy = f"Speak to {command.approver}, change the order and submit it again."
        return [ApprovalDenied(**said), gates.rejection(command.order, "approval-denied", remedy, ctx)]
    return [ApprovalGranted(**said), *gates.pass_through(state, command.order, submission, ctx)]


def lapse(state: Admission, command: Lapse, ctx: Context) -> Decision:
    """Return the end of an open approval whose time is over, dated as it was promised however late it is noticed."""
    asked = state.asked
    if state.phase is not Phase.PENDING or asked is None or asked.lapses_at is None or asked.lapses_at > ctx.now:
        return []
    lapsed = ApprovalLapsed(order=command.order, approval=asked.approval, level=asked.level, lapsed_at=asked.lapses_at)
    remedy = "Nobody decided in time: submit the order again, and tell an approver."
    return [lapsed, gates.rejection(command.order, "approval-lapsed", remedy, ctx)]
