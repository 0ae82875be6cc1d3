"""The approvals that wait for the caller, and the votes."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from qm_admission.approval_view import ApprovalView, view
from qm_admission.problems import VOTE_PROBLEMS
from qm_admission.question import Approval, ApprovalStatus
from qm_admission.votes import Vote, may_speak
from qm_service.caller import Access, Page, Permit, Principal
from qm_service.commands import Unavailable
from qm_service.model import Act, Context
from qm_service.page import Paged, Window, page
from qm_service.problem import NotFound, problems
from qm_service.runtime import Runtime

_CHUNK, _CHUNKS = 500, 4
"""Rows read at once, and how often for one page: then the page ends early, with a `next`."""
_ORDER = ("requested_at",)


class Ballot(BaseModel):
    """What a vote says beside yes or no."""

    model_config = ConfigDict(extra="forbid")

    digest: str | None = Field(
        default=None, max_length=200, description="Of the parameters that the vote is meant for."
    )
    comment: str = Field(default="", max_length=500)
    on_behalf_of: str | None = Field(
        default=None,
        max_length=500,
        description="For whom, where the caller is a delegate; left out: himself if he may, else the first of those.",
    )


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
        """Oldest first. With `assigned_to=me` what the caller can decide now, by himself, by group or role, as manager,
        as delegate or after escalation (`pending`), or had to do with; without it all that there is in his projects."""
        ctx = _memory(runtime)
        if assigned_to == "me" and status == "pending" and ctx is not None:
            rows, following = await _inbox(runtime, ctx, access.caller.subject, window)
        else:
            rows, following = await _listed(runtime, access, window, assigned_to, status)
        return page([view(doc, _seats(doc, access.caller, ctx)) for _, doc in rows], following)

    async def vote(access: Access, approval: str, verdict: Literal["approve", "deny"], ballot: Ballot) -> ApprovalView:
        doc: Approval | None = await runtime.docs.get("approvals", approval)
        if doc is None:
            raise NotFound("There is no such approval, or you have no role in its project.")
        # A policy may name somebody who has no deciding role: the policy is the permit then.
        if access.caller.subject not in doc.approvers or not access.caller.roles_within(doc.tenant):
            access.check(doc.tenant, doc.project)
        command = Vote(
            doc.order, approval, verdict, access.caller.subject, ballot.digest, ballot.comment, ballot.on_behalf_of
        )
        await runtime.execute(Act(f"admission/{doc.order}", command), access.cause(doc.tenant, doc.project, doc.order))
        decided: Approval = (await runtime.docs.many("approvals", [approval]))[approval]
        return view(decided, _seats(decided, access.caller, _memory(runtime)))

    @router.post("/approvals/{approval}/approve", responses=problems(*VOTE_PROBLEMS))
    async def approve(access: Access, approval: str, ballot: Ballot | None = None) -> ApprovalView:
        """Agree. With the last word that is needed the order goes on, with exactly the parameters of the digest."""
        return await vote(access, approval, "approve", ballot or Ballot())

    @router.post("/approvals/{approval}/deny", responses=problems(*VOTE_PROBLEMS))
    async def deny(access: Access, approval: str, ballot: Ballot | None = None) -> ApprovalView:
        """Refuse. The order is rejected, unless so many others as the level needs can still agree."""
        return await vote(access, approval, "deny", ballot or Ballot())

    return router


def _memory(runtime: Runtime) -> Context | None:
    """Return what decisions see; None on a stand-by, which has only the tables."""
    try:
        return runtime.context()
    except Unavailable:
        return None


def _seats(doc: Approval, caller: Principal, ctx: Context | None) -> list[str]:
    return may_speak(doc, caller.subject, ctx) if ctx and doc.status == "pending" else []


Rows = Sequence[tuple[str, Approval]]


async def _inbox(runtime: Runtime, ctx: Context, subject: str, window: Window) -> tuple[Rows, str | None]:
    """Read by the index: what it costs grows with the caller's open questions, not with all there ever were."""
    open_ = ctx.docs.resident("approvals")
    mine = [(key, open_[key]) for key in ctx.index.questions.inbox(subject) if key in open_]
    placed = sorted((_place(runtime, row), row) for row in mine if may_speak(row[1], subject, ctx))
    after = window.start(datetime, str)
    rest = [row for place, row in placed if after is None or place > after]
    return window.cut(rest, lambda row: _place(runtime, row))


def _place(runtime: Runtime, row: tuple[str, Approval]) -> tuple[Any, ...]:
    return runtime.docs.place("approvals", _ORDER, *row)


async def _listed(
    runtime: Runtime, access: Permit, window: Window, assigned_to: str | None, status: ApprovalStatus
) -> tuple[Rows, str | None]:
    def wanted(doc: Approval) -> bool:
        return assigned_to is None or _concerns(doc, access.caller)

    column, places = ("scope", access.scopes()) if assigned_to is None else ("tenant", access.tenants())
    where = {"status": status} | ({} if places is None else {column: places})
    return await _found(runtime, where, wanted, window)


async def _found(
    runtime: Runtime, where: Mapping[str, Any], wanted: Callable[[Approval], bool], window: Window
) -> tuple[Rows, str | None]:
    after = window.start(datetime, str)
    found: list[tuple[str, Approval]] = []
    for _ in range(_CHUNKS):
        rows = await runtime.docs.page("approvals", where, _ORDER, after=after, limit=_CHUNK)
        found += [(key, doc) for key, doc in rows if wanted(doc)]
        if len(found) > window.limit or len(rows) < _CHUNK:
            return window.cut(found, lambda row: _place(runtime, row))
        after = _place(runtime, rows[-1])
    return found, window.cursor(after or ())


def _concerns(doc: Approval, caller: Principal) -> bool:
    """Whether the caller may decide, as last told, or had to do with a decision in a project that he still sees."""
    if doc.status == "pending":
        return caller.subject in doc.approvers and bool(caller.roles_within(doc.tenant))
    spoke = {doc.decided_by, *(vote.voter for vote in doc.votes), *doc.approvers}
    return caller.subject in spoke and bool(caller.roles(doc.tenant, doc.project))
