"""The budgets over HTTP."""

from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from qm_events.metering import BudgetSet, Currency
from qm_events.units import DnsLabel
from qm_metering.budgets import BUDGET_DOCS, Budget, SetBudget
from qm_service.caller import Access, Page
from qm_service.directory import TENANTS
from qm_service.model import Act
from qm_service.page import Paged, page
from qm_service.problem import IdempotencyKeyReused, NotFound, problems
from qm_service.runtime import Runtime

Threshold = Annotated[int, Field(ge=1, le=1000, strict=True)]


class ReachedView(BaseModel):
    """A threshold that was reached in a month."""

    month: str
    percent: int


class BudgetView(BaseModel):
    """A budget and what was said of it."""

    tenant: str
    project: str | None
    """Null: all projects of the tenant together."""
    budget: str
    amount: str
    currency: str
    thresholds: list[int]
    reached: list[ReachedView]


class BudgetForm(BaseModel):
    """What a month of a tenant, or of one of its projects, may cost."""

    model_config = ConfigDict(extra="forbid")

    tenant: DnsLabel
    project: DnsLabel | None = Field(default=None, description="Null: all projects of the tenant together")
    budget: DnsLabel = Field(description="Its name; the budget of that name is replaced")
    amount: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$")]
    currency: Currency
    thresholds: list[Threshold] = Field(
        default=[50, 80, 100], min_length=1, max_length=10, description="In percent; each is said once a month"
    )

    @field_validator("thresholds")
    @classmethod
    def ascending(cls, value: list[int]) -> list[int]:
        """Return them sorted, each once."""
        return sorted(set(value))


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of budgets."""
    router = APIRouter()

    @router.get("/budgets", responses=problems())
    async def budgets(access: Access, window: Page) -> Paged[BudgetView]:
        """The budgets of the projects, and of the tenants as a whole, in which the caller has a role."""
        scopes, where = access.scopes(), dict[str, Any]()
        if scopes is not None:
            whole = {grant.tenant for grant in access.caller.grants if grant.project is None}
            where["scope"] = [*scopes, *sorted(whole)]
        rows = await runtime.docs.page(BUDGET_DOCS.name, where, after=window.start(str), limit=window.fetch)
        shown, following = window.cut(rows, lambda row: (row[0],))
        return page([_view(doc) for _, doc in shown], following)

    @router.post("/budgets", status_code=201, responses=problems(IdempotencyKeyReused))
    async def set_budget(access: Access, body: BudgetForm) -> BudgetView:
        """Set a budget. Reaching a part of it is a fact on the topic `usage`; nothing is stopped."""
        access.check(body.tenant)
        known = runtime.context().docs.resident(TENANTS).get(body.tenant)
        if known is None or (body.project is not None and body.project not in known.projects):
            raise NotFound(f"There is no project {body.project} in {body.tenant}.")
        amount = Decimal(body.amount)
        told = BudgetSet(**body.model_dump(exclude={"amount"}), amount=amount, set_at=runtime.clock.now())
        cause = access.cause(body.tenant, body.project)
        await runtime.execute(Act(f"budget/{body.tenant}", SetBudget(told), tenant=body.tenant), cause)
        return _view(runtime.context().docs.resident(BUDGET_DOCS.name)[f"{body.tenant}/{body.budget}"])

    return router


def _view(doc: Budget) -> BudgetView:
    told = doc.told
    return BudgetView(
        tenant=told.tenant,
        project=told.project,
        budget=told.budget,
        amount=str(told.amount),
        currency=told.currency,
        thresholds=list(told.thresholds),
        reached=[ReachedView(month=month, percent=percent) for month, percent in sorted(doc.reached)],
    )
