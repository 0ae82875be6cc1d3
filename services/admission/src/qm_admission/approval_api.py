"""The approvals that wait for the caller, and the votes."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from fastapi import APIRouter
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
        assigned_to: Literal["me"] | None = None,
        status: ApprovalStatus = "pending",
    ) -> Paged[ApprovalView]:
        """Oldest first: what the caller may decide or had to do with (`me`), or all that there is in his projects."""

        def wanted(doc: Approval) -> bool:
            return assigned_to is None or _concerns(doc, access.caller)

        column, places = ("scope", access.scopes()) if assigned_to is None else ("tenant", access.tenants())
        where = {"status": status} | ({} if places is None else {column: places})
        rows, following = await _found(runtime, where, wanted, window)
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


async def _found(
    runtime: Runtime, where: Mapping[str, Any], wanted: Callable[[Approval], bool], window: Window
) -> tuple[Sequence[tuple[str, Approval]], str | None]:
    order, after = ("requested_at",), window.start(datetime, str)
    found: list[tuple[str, Approval]] = []
    for _ in range(_CHUNKS):
        rows = await runtime.docs.page("approvals", where, order, after=after, limit=_CHUNK)
        found += [(key, doc) for key, doc in rows if wanted(doc)]
        if len(found) > window.limit or len(rows) < _CHUNK:
            return window.cut(found, lambda row: runtime.docs.place("approvals", order, *row))
        after = runtime.docs.place("approvals", order, *rows[-1])
    return found, window.cursor(after or ())


def _concerns(doc: Approval, caller: Principal) -> bool:
    """Whether the caller may decide, or had to do with a decision in a project that he still sees."""
    if rules.entitled(doc, doc.request, caller.subject, caller.grants):
        return doc.status == "pending" or caller.subject in (doc.decided_by, *doc.approvers)
    return caller.subject == doc.decided_by and bool(caller.roles(doc.tenant, doc.project))


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
