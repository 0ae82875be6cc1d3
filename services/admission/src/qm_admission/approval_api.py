"""The approvals that wait for the caller, and the votes."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from qm_admission import approval as rules
from qm_admission.problems import VOTE_PROBLEMS
from qm_admission.projections import Approval, ApprovalStatus
from qm_admission.votes import Vote
from qm_events.envelope import UtcTime
from qm_events.specs import OrderRequest, Role
from qm_service.caller import Access, Page, Principal
from qm_service.model import Act
from qm_service.page import Paged, Window, page
from qm_service.problem import NotFound, problems
from qm_service.runtime import Runtime

_CHUNK, _CHUNKS = 500, 4
"""Rows read at once, and how often for one page: then the page ends early, with a `next`."""


class ApprovalView(BaseModel):
    """A question to people. A vote may name `digest`: then it counts for exactly these parameters or not at all."""

    approval: str
    order: str
    tenant: str
    project: str
    policy: str
    level: int
    status: ApprovalStatus
    requester: str
    cards: int
    request: OrderRequest
    digest: str
    approvers: list[str] = Field(description="Who could decide at the time of asking; empty = nobody could")
    approver_role: Role | None
    requested_at: UtcTime
    lapses_at: UtcTime | None
    decided_by: str | None
    decided_at: UtcTime | None
    comment: str


class Ballot(BaseModel):
    """What a vote says beside yes or no."""

    model_config = ConfigDict(extra="forbid")

    digest: str | None = Field(
        default=None, max_length=200, description="Of the parameters that the vote is meant for."
    )
    comment: str = Field(default="", max_length=500)


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of approvals."""
    router = APIRouter()

    @router.get("/approvals", responses=problems())
    async def approvals(
        access: Access,
        window: Page,
        assigned_to: Annotated[Literal["me"], Query()] = "me",  # noqa: ARG001  # the contract's; one value so far
        status: ApprovalStatus = "pending",
    ) -> Paged[ApprovalView]:
        """Approvals that the caller may decide now, or (other status) had to do with, oldest first."""
        rows, following = await _assigned(runtime, access.caller, access.tenants(), status, window)
        return page([_view(key, doc) for key, doc in rows], following)

    async def vote(access: Access, approval: str, verdict: Literal["approve", "deny"], ballot: Ballot) -> ApprovalView:
        doc: Approval | None = await runtime.docs.get("approvals", approval)
        if doc is None:
            raise NotFound("There is no such approval, or you have no role in its project.")
        # A policy may name somebody who has no deciding role: the policy is the permit then.
        if not rules.entitled(doc, doc.request, access.caller.subject, access.caller.grants):
            access.check(doc.tenant, doc.project)
        command = Vote(doc.order, approval, verdict, access.caller.subject, ballot.digest, ballot.comment)
        await runtime.execute(Act(f"admission/{doc.order}", command), access.cause(doc.tenant, doc.project, doc.order))
        decided: Approval = (await runtime.docs.many("approvals", [approval]))[approval]
        return _view(approval, decided)

    @router.post("/approvals/{approval}/approve", responses=problems(*VOTE_PROBLEMS))
    async def approve(access: Access, approval: str, ballot: Ballot | None = None) -> ApprovalView:
        """Agree. The order goes on with exactly the parameters that the digest names."""
        return await vote(access, approval, "approve", ballot or Ballot())

    @router.post("/approvals/{approval}/deny", responses=problems(*VOTE_PROBLEMS))
    async def deny(access: Access, approval: str, ballot: Ballot | None = None) -> ApprovalView:
        """Refuse. The order is rejected."""
        return await vote(access, approval, "deny", ballot or Ballot())

    return router


async def _assigned(
    runtime: Runtime, caller: Principal, tenants: Sequence[str] | None, status: ApprovalStatus, window: Window
) -> tuple[list[tuple[str, Approval]], str | None]:
    where = {"status": status} | ({} if tenants is None else {"tenant": tenants})
    order, after = ("requested_at",), window.after
    found: list[tuple[str, Approval]] = []
    for _ in range(_CHUNKS):
        rows = await runtime.docs.page("approvals", where, order, after=after, limit=_CHUNK)
        found += [(key, doc) for key, doc in rows if _concerns(doc, caller)]
        if len(found) > window.limit or len(rows) < _CHUNK:
            shown, following = window.cut(found, lambda row: runtime.docs.place("approvals", order, *row))
            return list(shown), following
        after = runtime.docs.place("approvals", order, *rows[-1])
    return found, window.cursor(after or ())


def _concerns(doc: Approval, caller: Principal) -> bool:
    if doc.status == "pending":
        return rules.entitled(doc, doc.request, caller.subject, caller.grants)
    return caller.subject == doc.decided_by or caller.subject in doc.approvers


def _view(key: str, doc: Approval) -> ApprovalView:
    return ApprovalView(
        approval=key,
        order=doc.order,
        tenant=doc.tenant,
        project=doc.project,
        policy=doc.policy,
        level=doc.level,
        status=doc.status,
        requester=doc.request.requester,
        cards=doc.request.cards,
        request=doc.request,
        digest=doc.digest,
        approvers=list(doc.approvers),
        approver_role=doc.approver_role,
        requested_at=doc.requested_at,
        lapses_at=doc.lapses_at,
        decided_by=doc.decided_by,
        decided_at=doc.decided_at,
        comment=doc.comment,
    )
