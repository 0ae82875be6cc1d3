"""The routes on the queue: who waits and why, whose turn it is, and what would happen if."""

from asyncio import Lock, to_thread
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from fastapi import APIRouter

from qm_events.ids import stream_name
from qm_events.units import DnsLabel
from qm_scheduler.board import Board
from qm_scheduler.problems import CardElsewhere, NodeUnknown, OrderKnown, ProjectUnknown
from qm_scheduler.shares import SetShare
from qm_scheduler.views import (
    CapacityView,
    QueueItem,
    ShareInput,
    ShareView,
    capacity_view,
    queue_item,
    share_view,
)
from qm_scheduler.whatif import WhatIf, WhatIfView, standing, whatif
from qm_service.caller import Access, Page
from qm_service.model import Act, Rejected
from qm_service.page import Paged, page
from qm_service.problem import problems, refuse
from qm_service.runtime import Runtime
from qm_service.simulation import QUEUE, SimulateBody, Standing


def board_of(runtime: Runtime) -> Board:
    """Return the index of the running scheduler."""
    board: Board = runtime.context().index
    return board


def queue_routes(runtime: Runtime) -> APIRouter:
    """Return the routes on who waits and whose turn it is."""
    router = APIRouter()
    # A run over a large queue takes a while, and everybody may ask: the writer is not to wait for many of them.
    one_at_a_time = Lock()

    @router.get("/queue", responses=problems())
    async def list_queue(access: Access, window: Page) -> Paged[QueueItem]:
        """List who waits, by priority, then by submission: own orders, at true positions, each with every reason."""
        context = runtime.context()
        board, docs = board_of(runtime), context.docs.resident("allocations")
        start = window.start(int, int, datetime, str)
        after = ((start[0], start[1]), (start[2], start[3])) if start else None
        rows = list(islice(board.queue.listed(access.scopes(), after), window.fetch))
        shown, following = window.cut(rows, lambda row: (*row[0], *row[1]))
        return page([queue_item(board, docs, seq[1], runtime.clock.now()) for _, seq in shown], following)

    @router.post("/queue:simulate", responses=problems(CardElsewhere, NodeUnknown, OrderKnown))
    async def simulate_queue(body: WhatIf, _: Access) -> WhatIfView:
        """Run the scheduler over orders that might come, on the fleet as it is or might be; nothing is changed."""
        answer = await to_thread(whatif, body, _known(runtime), runtime.clock.now())
        if isinstance(answer, Rejected):
            raise refuse(answer)
        return answer

    @router.post(QUEUE, responses=problems())
    async def simulate_standing(tenant: str, project: str, body: SimulateBody, access: Access) -> Standing:
        """Tell where an order of the project would stand, were it admitted now; nothing is changed."""
        request = body.asked_by(access, tenant, project)
        async with one_at_a_time:
            return await to_thread(standing, request, _known(runtime), runtime.clock.now())

    @router.get("/shares", responses=problems())
    async def list_shares(access: Access, window: Page) -> Paged[ShareView]:
        """List what decides whose turn it is: the own projects that have cards, orders in the queue or a weight."""
        board, scopes = board_of(runtime), access.scopes()
        (start,) = window.start(str) or ("",)
        weighed, waiting = runtime.context().docs.resident("shares"), board.queue.scopes
        known = {*weighed, *(scope for scope, it in board.queue.projects.items() if it.held or waiting.get(scope))}
        names = sorted(scope for scope in known if scope > start and (scopes is None or scope in scopes))[
            : window.fetch
        ]
        shown, following = window.cut(names, lambda scope: (scope,))
        return page([share_view(board, scope) for scope in shown], following)

    @router.put("/shares/{tenant}/{project}", responses=problems(ProjectUnknown))
    async def set_share(tenant: DnsLabel, project: DnsLabel, body: ShareInput, access: Access) -> ShareView:
        """Set how much the turns of a project weigh; what it holds stays."""
        scope = f"{tenant}/{project}"
        command = SetShare(tenant, project, body.weight)
        await runtime.execute(Act(stream_name("share", scope), command), access.cause())
        return share_view(board_of(runtime), scope)

    @router.get("/fleet/capacity", responses=problems())
    async def show_capacity(_: Access) -> CapacityView:
        """Count the cards of each type by what they can do now."""
        return capacity_view(board_of(runtime).pool)

    return router


def _known(runtime: Runtime) -> Mapping[str, Mapping[str, Any]]:
    """Return what a run looks at, as it is now: documents are values, so another thread may look at them."""
    docs = runtime.context().docs
    return {name: dict(docs.resident(name)) for name in ("nodes", "allocations", "shares", "workloads")}
