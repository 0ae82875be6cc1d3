"""What a person's word leads to. Pure.

A vote binds to the digest of the parameters: what was approved is what executes. Late, double and conflicting votes
change nothing and are told why. The last word that a level needs is its grant or its denial.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from qm_admission import gates
from qm_admission.bench import Bench, awaited, bench, fulfilled, refuses, seats_of
from qm_admission.levels import next_question
from qm_admission.question import Approval, CastVote, changed
from qm_admission.state import Admission, Phase, evolve
from qm_events import EventData
from qm_events.admission import ApprovalDenied, ApprovalGranted, Submission
from qm_events.admission_approval import ApprovalVoted
from qm_events.envelope import utc_text
from qm_service.model import Context, Decision, Rejected


@dataclass(frozen=True, slots=True)
class Vote:
    """A person decides; `digest` None means the parameters as they are, `on_behalf_of` None his own seat or, where he
    has none, the first for which he may speak."""

    order: str
    approval: str
    verdict: Literal["approve", "deny"]
    approver: str
    digest: str | None = None
    comment: str = ""
    on_behalf_of: str | None = None


def vote(state: Admission, command: Vote, ctx: Context) -> Decision:
    """Return the decision and what follows from it at once; a refusal where the vote does not count."""
    asked = next((it for it in (state.asked, *state.earlier) if it and it.approval == command.approval), None)
    submission = state.submission
    if asked is None or submission is None:
        return Rejected("approval-not-open", "this approval was never asked for", "read GET /v1/approvals again")
    found = bench(asked, ctx)
    seats = [it for it in seats_of(found, command.approver) if command.on_behalf_of in (None, it)]
    if not seats:
        return _not_entitled(command, asked)
    if refused := _too_late(state, asked, command, ctx) or _spoken(asked, command, seats):
        return refused
    if command.digest not in (None, asked.digest):
        return Rejected(
            "approval-digest-mismatch",
            f"the order's parameters have the digest {asked.digest}, not {command.digest}",
            "read the approval again and decide on what it shows",
        )
    taken = {it.seat for it in asked.votes}
    seat = next(it for it in seats if it not in taken)
    return _decided(state, command, asked, submission, seat, found, ctx)


def may_speak(asked: Approval, subject: str, ctx: Context) -> list[str]:
    """Return the seats for which a subject may speak now and has not."""
    if any(it.voter == subject for it in asked.votes):
        return []
    taken = {it.seat for it in asked.votes}
    return [seat for seat in seats_of(bench(asked, ctx), subject) if seat not in taken]


def _not_entitled(command: Vote, asked: Approval) -> Rejected:
    if command.approver == asked.request.requester and not asked.by.self_approval:
        return Rejected("approval-own-order", "nobody decides on an order of his own", "ask another approver")
    whom = f" for {command.on_behalf_of}" if command.on_behalf_of else ""
    detail = f"{command.approver} is not an approver of this order{whom}"
    return Rejected("approval-not-yours", detail, "ask one of its approvers")


def _too_late(state: Admission, asked: Approval, command: Vote, ctx: Context) -> Rejected | None:
    at = asked.decided_at
    match asked.status:
        case "granted" | "denied" if at:
            same = (asked.status == "granted") == (command.verdict == "approve")
            code = "approval-already-decided" if same else "approval-conflict"
            return Rejected(code, f"{asked.decided_by} decided at {utc_text(at)}", "nothing to do: the decision stands")
        case "lapsed" if at:
            return _over(at)
        case "withdrawn" | "escalated":
            detail = asked.comment or "it was not decided in time, and the next level is asked"
            return Rejected("approval-void", detail, "read GET /v1/approvals again")
    if asked.lapses_at is not None and asked.lapses_at <= ctx.now:
        return _over(asked.lapses_at)
    if state.phase is not Phase.PENDING:
        return Rejected("approval-void", "the order ended before anybody decided", "nothing to do")
    return None


def _over(at: datetime) -> Rejected:
    return Rejected("approval-lapsed", f"the time to decide was over at {utc_text(at)}", "submit the order again")


def _spoken(asked: Approval, command: Vote, seats: list[str]) -> Rejected | None:
    """Return why a word was said already: one a person and one a seat."""
    mine = next((it for it in asked.votes if it.voter == command.approver), None)
    others: Mapping[str, CastVote] = {it.seat: it for it in asked.votes}
    said = mine or (others[seats[0]] if all(seat in others for seat in seats) else None)
    if said is None:
        return None
    code = "approval-already-voted" if said.verdict == command.verdict else "approval-conflict"
    detail = f"{said.voter} said {said.verdict} for {said.seat} at {utc_text(said.at)}"
    return Rejected(code, detail, "nothing to do: one word a person and one an approver; it stands")


def _decided(
    state: Admission, command: Vote, asked: Approval, submission: Submission, seat: str, found: Bench, ctx: Context
) -> list[EventData]:
    said: dict[str, Any] = {
        "order": command.order,
        "approval": asked.approval,
        "level": asked.level,
        "approver": command.approver,
        "on_behalf_of": None if seat == command.approver else seat,
        "comment": command.comment,
        "digest": asked.digest,
    }
    if command.verdict == "deny" and refuses(asked, found, seat):
        remedy = f"Speak to {command.approver}, change the order and submit it again."
        return [
            ApprovalDenied(**said, decided_at=ctx.now),
            gates.rejection(command.order, "approval-denied", remedy, ctx),
        ]
    voted = ApprovalVoted(**said, verdict=command.verdict, voted_at=ctx.now, awaited=())
    after = changed(asked, voted) or asked
    seats = bench(after, ctx)
    if not fulfilled(after, seats):
        return [voted.model_copy(update={"awaited": awaited(after, seats)})]
    granted = ApprovalGranted(**said, decided_at=ctx.now)
    passed = evolve(state, granted)
    question = next_question(passed, command.order, asked.by, submission, ctx)
    granted = granted.model_copy(update={"last": question is None})
    return [granted, question] if question else [granted, *gates.pass_through(passed, command.order, submission, ctx)]
