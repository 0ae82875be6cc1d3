"""What a person is shown of a question."""

from typing import Literal

from pydantic import BaseModel, Field

from qm_admission.question import Approval, ApprovalStatus
from qm_events.envelope import UtcTime
from qm_events.specs import OrderRequest, Role


class VoteView(BaseModel):
    """One word: who, for whom, what, why and when."""

    voter: str = Field(description="Who spoke.")
    on_behalf_of: str | None = Field(description="For whom, where it was not for himself.")
    verdict: Literal["approve", "deny"] = Field(description="What was said.")
    comment: str = Field(description="Why.")
    voted_at: UtcTime = Field(description="When.")


class ApprovalView(BaseModel):
    """A question to people. A vote may name `digest`: then it counts for exactly these parameters or not at all."""

    approval: str
    order: str
    tenant: str
    project: str
    policy: str
    level: int
    levels: int = Field(description="How many levels the policy has; each is a question of its own.")
    rule: Literal["any", "all", "n_of_m"] = Field(description="How the words of this level count.")
    needed: int = Field(description="How many people must agree at this level.")
    agreed: int = Field(description="How many have agreed.")
    status: ApprovalStatus
    requester: str
    cards: int
    request: OrderRequest
    digest: str
    approvers: list[str] = Field(description="Who may decide, as last told; empty = nobody can, and the order waits.")
    awaited: list[str] = Field(description="Those of the approvers who are counted on now.")
    votes: list[VoteView] = Field(description="What was said so far, in order.")
    approver_role: Role | None
    requested_at: UtcTime
    lapses_at: UtcTime | None
    escalates_at: UtcTime | None = Field(description="When others are asked too, if nobody decides before.")
    escalated_at: UtcTime | None = Field(description="When others were asked too.")
    rerouted_at: UtcTime | None = Field(description="When the approvers last changed.")
    reminders: int = Field(description="How often those awaited were reminded.")
    decided_by: str | None
    decided_at: UtcTime | None
    comment: str
    can_decide_for: list[str] = Field(
        description="For whom the caller may speak now: himself, or those who have named him and are away."
    )


def view(doc: Approval, seats: list[str]) -> ApprovalView:
    """Return what is shown to somebody who may speak for these seats."""
    return ApprovalView(
        approval=doc.approval,
        order=doc.order,
        tenant=doc.tenant,
        project=doc.project,
        policy=doc.policy,
        level=doc.level,
        levels=doc.levels,
        rule=doc.rule.rule,
        needed=doc.needed,
        agreed=sum(vote.verdict == "approve" for vote in doc.votes),
        status=doc.status,
        requester=doc.request.requester,
        cards=doc.request.cards,
        request=doc.request,
        digest=doc.digest,
        approvers=list(doc.approvers),
        awaited=list(doc.awaited),
        votes=[
            VoteView(
                voter=vote.voter,
                on_behalf_of=None if vote.seat == vote.voter else vote.seat,
                verdict=vote.verdict,
                comment=vote.comment,
                voted_at=vote.at,
            )
            for vote in doc.votes
        ],
        approver_role=doc.approver_role,
        requested_at=doc.requested_at,
        lapses_at=doc.lapses_at,
        escalates_at=doc.escalates_at,
        escalated_at=doc.escalated_at,
        rerouted_at=doc.rerouted_at,
        reminders=doc.reminders,
        decided_by=doc.decided_by,
        decided_at=doc.decided_at,
        comment=doc.comment,
        can_decide_for=seats,
    )
