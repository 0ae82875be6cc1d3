"""More facts of admission: what happens to a question between asking and its end (`admissions`), and who is away
(`quotas`). `admission` has the others."""

from typing import Literal

from pydantic import Field

from qm_events.approval import Absence, ApprovalPolicy, Notices
from qm_events.envelope import EventData, UtcTime
from qm_events.registry import ADMISSIONS, QUOTAS, event
from qm_events.specs import Text
from qm_events.units import DnsLabel

# ---- admissions: streams `admission/<order>`


@event("approval.voted", version=1, topic=ADMISSIONS)
class ApprovalVoted(EventData):
    """Someone entitled spoke, and the level needs more words. The last word is the grant or the denial itself."""

    order: str
    approval: str
    level: int
    approver: str
    on_behalf_of: str | None = None
    verdict: Literal["approve", "deny"]
    comment: str = ""
    digest: str
    voted_at: UtcTime
    awaited: tuple[str, ...]


@event("approval.rerouted", version=1, topic=ADMISSIONS)
class ApprovalRerouted(EventData):
    """Other people may decide than before: the directory, a delegation or the policy changed. Votes stay."""

    order: str
    approval: str
    level: int
    cause: Literal["people_changed", "policy_changed"]
    approvers: tuple[str, ...]
    """All who may decide now; empty = nobody can, and the order waits."""
    awaited: tuple[str, ...]
    joined: tuple[str, ...]
    """Those who could not before."""
    needed: int = Field(ge=1)
    by: ApprovalPolicy | None = None
    """The new policy, where that is the cause."""
    notices: Notices | None = None
    rerouted_at: UtcTime


@event("approval.escalated", version=1, topic=ADMISSIONS)
class ApprovalEscalated(EventData):
    """Undecided for too long: more people may decide, or (`next_level`) the next level is asked in the same step."""

    order: str
    approval: str
    level: int
    to: Literal["approvers", "next_level"]
    approvers: tuple[str, ...]
    awaited: tuple[str, ...]
    joined: tuple[str, ...]
    notices: Notices | None = None
    escalated_at: UtcTime
    lapses_at: UtcTime | None = None


@event("approval.reminded", version=1, topic=ADMISSIONS)
class ApprovalReminded(EventData):
    """Those awaited are to be reminded."""

    order: str
    approval: str
    level: int
    awaited: tuple[str, ...]
    number: int = Field(ge=1)
    notices: Notices | None = None
    reminded_at: UtcTime
    remind_at: UtcTime | None = None
    """When again."""


@event("approval.withdrawn", version=1, topic=ADMISSIONS)
class ApprovalWithdrawn(EventData):
    """The question is taken back, as the policies changed; what follows is in the same step."""

    order: str
    approval: str
    level: int
    cause: str
    withdrawn_at: UtcTime


# ---- quotas: streams `delegations/<tenant>`


@event("delegation.set", version=1, topic=QUOTAS)
class DelegationSet(EventData):
    """When somebody is away, and who speaks for him then: all of it at once."""

    tenant: DnsLabel
    subject: Text
    absences: tuple[Absence, ...]
