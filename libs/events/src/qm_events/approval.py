"""Approval policies as data: when people must agree to an order, who, how many, and until when.

The fields of the first release (`approver_role`, `approver_subjects`, `lapses_after_seconds`) are one level of the rule
`any`; `levels` says more and replaces them.
"""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from qm_events.envelope import UtcTime
from qm_events.specs import Role, ServiceModel, Text, Value
from qm_events.units import DnsLabel

Seconds = Annotated[int, Field(ge=1, le=366 * 86_400, strict=True)]
Interval = Annotated[int, Field(ge=60, le=366 * 86_400, strict=True)]
Money = Annotated[Decimal, Field(ge=0, max_digits=24, decimal_places=9)]
Names = Annotated[tuple[DnsLabel, ...], Field(min_length=1, max_length=100)]
People = Annotated[tuple[Text, ...], Field(min_length=1, max_length=100)]
Channel = Literal["mail", "webhook"]


class FieldCondition(Value):
    """What a field of the order must hold. Without `any_of` and `at_least` it must merely be there."""

    field: Text = Field(description="`labels.<name>` or `parameters.<name>`; further dots go deeper.")
    any_of: tuple[str | int | bool, ...] | None = Field(
        default=None, min_length=1, max_length=100, description="One of these, of the same JSON type."
    )
    at_least: int | None = Field(default=None, strict=True, description="A number that is not below this.")


class Approvers(Value):
    """Who may decide: everybody whom one of these names. Each needs a role in the tenant, or he counts as gone."""

    role: Role | None = Field(default=None, description="Whoever has this role in the order's project.")
    subjects: People | None = Field(default=None, description="These subjects.")
    groups: Names | None = Field(default=None, description="The members of these groups of the tenant.")
    manager: bool | None = Field(default=None, strict=True, description="The manager of the requester.")
    field: Text | None = Field(
        default=None,
        description="The subjects that this field of the order names, `labels.<name>` or `parameters.<name>`.",
    )


class ApprovalLevel(Value):
    """One level of agreement. Times count from the moment when the level is asked."""

    approvers: Approvers = Field(description="Who may decide at this level.")
    rule: Literal["any", "all", "n_of_m"] = Field(
        default="any",
        description="`any`: the first word decides. `all`: everybody must agree, one refusal refuses. "
        "`n_of_m`: `n` must agree; it is refused when so many can no longer agree.",
    )
    n: int | None = Field(default=None, ge=1, le=100, strict=True, description="How many must agree, for `n_of_m`.")
    lapses_after_seconds: Seconds | None = Field(
        default=None, description="Time-out: undecided by then, the order is rejected."
    )
    remind_every_seconds: Interval | None = Field(
        default=None,
        description="Those awaited are reminded after so long; each further pause is twice the last, up to a day.",
    )
    escalate_after_seconds: Seconds | None = Field(
        default=None, description="Undecided by then, `escalate_to` may decide too; without it the next level is asked."
    )
    escalate_to: Approvers | None = Field(
        default=None,
        description="Who joins on escalation, and also when too few are left to decide; else the tenant's admins do.",
    )


class Notices(Value):
    """How those who are asked are told, where the product is set up to tell them."""

    channels: tuple[Channel, ...] = Field(min_length=1, max_length=2, description="By mail, by webhook, or both.")
    digest_seconds: Interval | None = Field(
        default=None, description="All notices of so long a time in one; left out: each at once."
    )


class ApprovalPolicy(Value):
    """When a person must agree, and who may. Conditions that are given must all hold."""

    name: DnsLabel
    projects: tuple[DnsLabel, ...] | None = None
    service_models: tuple[ServiceModel, ...] | None = None
    accelerators: tuple[DnsLabel, ...] | None = None
    cards_at_least: int | None = Field(default=None, ge=1)
    approver_role: Role | None = None
    approver_subjects: tuple[Text, ...] = ()
    self_approval: bool = False
    lapses_after_seconds: int | None = Field(default=None, ge=1)
    specifications: Names | None = Field(default=None, description="Condition: the name of the specification.")
    images: Names | None = Field(default=None, description="Condition: the image.")
    requester_roles: tuple[Role, ...] | None = Field(
        default=None, min_length=1, max_length=10, description="Condition: a role of the requester in the project."
    )
    requester_managers: People | None = Field(default=None, description="Condition: the manager of the requester.")
    fields: tuple[FieldCondition, ...] | None = Field(
        default=None, min_length=1, max_length=20, description="Conditions on labels and parameters; all must hold."
    )
    cards_at_most: int | None = Field(default=None, ge=1, le=10**9, strict=True, description="Condition: cards in all.")
    count_at_least: int | None = Field(default=None, ge=1, le=10_000, strict=True, description="Condition: units.")
    count_at_most: int | None = Field(default=None, ge=1, le=10_000, strict=True, description="Condition: units.")
    duration_at_least_seconds: int | None = Field(
        default=None,
        ge=1,
        le=10 * 366 * 86_400,
        strict=True,
        description="Condition. An order without an end is longest.",
    )
    duration_at_most_seconds: int | None = Field(
        default=None,
        ge=1,
        le=10 * 366 * 86_400,
        strict=True,
        description="Condition. An order without an end is longest.",
    )
    priority_at_least: int | None = Field(default=None, ge=-1000, le=1000, strict=True, description="Condition.")
    priority_at_most: int | None = Field(default=None, ge=-1000, le=1000, strict=True, description="Condition.")
    cost_at_least: Money | None = Field(
        default=None,
        description="Condition, in `currency`: cards x hours x the dearest price of the offerings that fit.",
    )
    cost_at_most: Money | None = Field(default=None, description="Condition, in `currency`.")
    currency: str | None = Field(default=None, pattern=r"^[A-Z]{3}$", description="Of the costs; ISO 4217.")
    levels: tuple[ApprovalLevel, ...] | None = Field(
        default=None,
        max_length=10,
        description="Asked one after the other. None of them (`[]`): such orders pass without a question.",
    )
    notices: Notices | None = Field(default=None, description="How those who are asked are told; left out: not at all.")


class Absence(Value):
    """A time in which somebody is not counted on; `delegate` speaks for him, where one is named."""

    delegate: Text | None = None
    starts_at: UtcTime
    ends_at: UtcTime
    """The first instant at which he is back."""
    timezone: Text
    """In whose days it was said."""
    reason: str = Field(default="", max_length=500)
