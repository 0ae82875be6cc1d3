"""The approval policies of a tenant: read by its members, set by its admins."""

from collections.abc import Sequence

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from qm_admission.book import SetPolicies
from qm_admission.problems import ApprovalPolicyInvalid
from qm_events.approval import ApprovalPolicy
from qm_events.specs import Role, ServiceModel, Text
from qm_events.units import DnsLabel
from qm_service.caller import Access, etag
from qm_service.directory import TENANTS
from qm_service.model import Act
from qm_service.problem import NotFound, VersionConflict, problems
from qm_service.runtime import Runtime


class PolicyBody(ApprovalPolicy):
    """When people must agree, and who may. Conditions that are given must all hold. Who decides is said by `levels`, or
    for a single level in short by `approver_role` and `approver_subjects`."""

    projects: tuple[DnsLabel, ...] | None = Field(default=None, min_length=1, max_length=1_000)
    service_models: tuple[ServiceModel, ...] | None = Field(default=None, min_length=1, max_length=4)
    accelerators: tuple[DnsLabel, ...] | None = Field(default=None, min_length=1, max_length=100)
    cards_at_least: StrictInt | None = Field(default=None, ge=1, le=10**9)
    approver_role: Role | None = Field(default=None, description="Everybody who has it in the project may decide.")
    approver_subjects: tuple[Text, ...] = Field(default=(), max_length=100, description="So may these.")
    self_approval: bool = Field(
        default=False,
        strict=True,
        description="Whether one may decide on an order of one's own, by whichever way one is an approver.",
    )
    lapses_after_seconds: StrictInt | None = Field(
        default=None, ge=1, le=366 * 86_400, description="Nobody decided by then: the order is rejected."
    )


class PoliciesBody(BaseModel):
    """All policies of a tenant, in the order in which they are tried; the first that matches asks."""

    model_config = ConfigDict(extra="forbid")

    policies: list[PolicyBody] = Field(max_length=100)


class PolicyView(ApprovalPolicy):
    """A policy as it was set."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class PoliciesView(BaseModel):
    """The policies of a tenant. The ETag is the version of all rules of the tenant."""

    tenant: str
    policies: list[PolicyView]


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of policies."""
    router = APIRouter()

    async def read(tenant: str, response: Response) -> PoliciesView:
        # The version first: a change in between then gives an old ETag, which is refused, and never a new one.
        response.headers["ETag"] = etag(await runtime.version(f"quota/{tenant}"))
        policies: Sequence[ApprovalPolicy] = await runtime.docs.get("policies", tenant) or ()
        return PoliciesView(tenant=tenant, policies=[PolicyView(**policy.model_dump()) for policy in policies])

    async def known(tenant: str) -> None:
        if await runtime.docs.get(TENANTS, tenant) is None:
            raise NotFound("There is no such tenant, or you have no role in it.")

    @router.get("/approval-policies", responses=problems())
    async def approval_policies(access: Access, tenant: DnsLabel, response: Response) -> PoliciesView:
        """The policies of a tenant."""
        access.check(tenant)
        await known(tenant)
        return await read(tenant, response)

    @router.put("/approval-policies", responses=problems(ApprovalPolicyInvalid, VersionConflict))
    async def set_approval_policies(
        access: Access, tenant: DnsLabel, body: PoliciesBody, response: Response
    ) -> PoliciesView:
        """Replace the policies of a tenant. Each order that waits ends where the new ones put it.

        Levels that were passed stay passed where their rule is the same, an open level that is the same keeps its votes
        and times, and all else is asked anew."""
        access.check(tenant)
        await known(tenant)
        command = SetPolicies(tenant, tuple(ApprovalPolicy(**policy.model_dump()) for policy in body.policies))
        await runtime.execute(Act(f"quota/{tenant}", command), access.cause(tenant), expected_version=access.if_match)
        return await read(tenant, response)

    return router
