"""What admission and the scheduler say to an order that might come: the bodies of their `:simulate` routes.

Both sides of the call share them: who answers, and the catalog, which joins the answers for `POST /v1/orders:simulate`.
"""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from qm_events.specs import OrderRequest, Remedy, Violation, WaitReason
from qm_service.caller import Permit
from qm_service.problem import ValidationFailed

ADMISSION = "/quotas/{tenant}/{project}:simulate"
QUEUE = "/queue/{tenant}/{project}:simulate"
"""Where the two are asked, under `/v1`."""
LAST = "~"
"""Sorts after every id of an order: the one that might come is the youngest."""


class SimulateBody(BaseModel):
    """An order as `POST /v1/orders:simulate` resolved it."""

    model_config = ConfigDict(extra="forbid")

    request: OrderRequest = Field(description="The `request` of the catalog's answer, unchanged.")

    def asked_by(self, access: Permit, tenant: str, project: str) -> OrderRequest:
        """Return the request as the caller's own. Raises NotFound, Forbidden, ValidationFailed."""
        access.check(tenant, project)
        if (self.request.tenant, self.request.project) != (tenant, project):
            raise ValidationFailed(
                f"The request is of {self.request.tenant}/{self.request.project}.",
                field="request",
                remedy="Use the path of the request's own tenant and project.",
            )
        # Policies look at who orders: nobody tries them out in another's name.
        return self.request.model_copy(update={"requester": access.caller.subject})


class Effect(BaseModel):
    """What an order does to one limit."""

    scope: str = Field(description="`tenant` or `tenant/project`")
    dimension: str = Field(description="Card-hours with their month, `card_hours_month@2026-06`")
    unit: str = Field(description="Of the figures, in words")
    limit: int | None = Field(description="Null = nothing limits it here")
    used: int = Field(description="Now")
    requested: int = Field(description="What the order would take")
    left_after: int | None = Field(description="What is left once the order has it; negative = that much is missing")


class RouteLevel(BaseModel):
    """One level of a policy, and who would be asked there."""

    level: int = Field(description="From 1")
    rule: Literal["any", "all", "n_of_m"] = Field(description="How the words of this level count")
    needed: int = Field(description="How many people must agree")
    approvers: list[str] = Field(description="Who may decide as of now; empty = nobody, and the order would wait")
    awaited: list[str] = Field(description="Those of them who would be counted on")
    lapses_at: datetime | None = Field(
        description="When the time to decide would be over, were the level asked now; null = never"
    )


class ApprovalRoute(BaseModel):
    """Who would be asked: all levels, in the order in which they are."""

    policy: str = Field(description="The policy that asks")
    levels: list[RouteLevel]


Outcome = Literal["admitted", "pending_approval", "held", "rejected"]


class Admissibility(BaseModel):
    """What admission would do with the order, were it submitted now."""

    outcome: Outcome = Field(description="What becomes of it")
    code: str = Field(description="The problem code of a rejection; empty = none")
    quota: Literal["fits", "held", "refused", "never-fits"] = Field(
        description="What the ledger says by itself, whether or not a person is asked before"
    )
    effects: list[Effect] = Field(description="Every scope and dimension that the order would take from")
    violations: list[Violation] = Field(description="Every limit in the way")
    remedy: str = Field(description="The way out in one sentence; empty = none is needed")
    remedies: list[Remedy] = Field(description="The ways out, the easiest first")
    approval: ApprovalRoute | None = Field(description="Null = nobody is asked")
    covered_until: datetime | None = Field(
        description="How far the monthly card-hours of an order without an end would reach; null = to its end"
    )
    borrowed: dict[str, int] = Field(description="What of it would be borrowed, and may be reclaimed")
    reported: list[Violation] = Field(description="Limits that it would pass and that only report")


class Standing(BaseModel):
    """Where the order would stand in the queue, were it admitted now."""

    placed: bool = Field(description="Whether it would get its cards at once")
    position: int | None = Field(description="Its place in the queue, from 1; null where it would be placed")
    reasons: list[WaitReason] = Field(description="All that would keep it waiting, the one that matters most first")
    starts_at: datetime | None = Field(
        description="When it would get its cards, if leases end as promised and nobody better ranked comes; "
        "null = unknown"
    )
