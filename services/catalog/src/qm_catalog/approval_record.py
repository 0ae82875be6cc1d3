"""Approvals as the record keeps them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True)
class ApprovalVote:
    """What somebody said, for himself or (`on_behalf_of`) for another who was away."""

    voter: Annotated[str, Field(description="Who spoke.")]
    on_behalf_of: Annotated[str | None, Field(description="For whom, where it was not for himself.")]
    verdict: Annotated[Literal["approve", "deny"], Field(description="What was said.")]
    comment: Annotated[str, Field(description="Why.")]
    voted_at: Annotated[datetime, Field(description="When.")]


@dataclass(frozen=True, slots=True)
class Approval:
    """One level of agreement that was asked for."""

    approval: str
    policy: str
    level: int
    approvers: Annotated[tuple[str, ...], Field(description="Who may decide, as last told; empty = nobody can.")]
    requested_at: datetime
    lapses_at: datetime | None = None
    status: Literal["pending", "granted", "denied", "lapsed", "void", "withdrawn", "escalated"] = "pending"
    approver: Annotated[str | None, Field(description="Whose word was the last one.")] = None
    comment: str = ""
    decided_at: datetime | None = None
    levels: Annotated[int, Field(description="How many levels the policy has.")] = 1
    needed: Annotated[int, Field(description="How many people must agree at this level.")] = 1
    awaited: Annotated[tuple[str, ...], Field(description="Those of the approvers who are counted on now.")] = ()
    votes: Annotated[tuple[ApprovalVote, ...], Field(description="What was said so far, in order.")] = ()
    escalates_at: Annotated[datetime | None, Field(description="When others are asked, if nobody decides before.")] = (
        None
    )
    escalated_at: Annotated[datetime | None, Field(description="When others were asked.")] = None
    rerouted_at: Annotated[datetime | None, Field(description="When the approvers last changed.")] = None
    rerouted_because: Annotated[str, Field(description="`people_changed` or `policy_changed`; empty = never.")] = ""
    reminders: Annotated[int, Field(description="How often those awaited were reminded.")] = 0

    @property
    def agreed(self) -> int:
        """How many have agreed."""
        return sum(vote.verdict == "approve" for vote in self.votes)
