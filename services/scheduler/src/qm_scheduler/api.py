"""The routes of the scheduler: the queue for those who wait, the fleet for those who run it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Discriminator, Tag

from qm_events.envelope import utc_text
from qm_events.ids import stream_name
from qm_scheduler.api_queue import board_of, queue_routes
from qm_scheduler.api_reservations import reservation_routes
from qm_scheduler.domain import Return
from qm_scheduler.drain import DrainView, drain_view
from qm_scheduler.findings import Finding, findings
from qm_scheduler.health import Alert, AlertmanagerWebhook, HealthReceipt, Name, Newest, Observations, Observed, by_node
from qm_scheduler.inventory import Clear, Cordon, Describe, Retire, Uncordon
from qm_scheduler.pool import CLASSES, Pool
from qm_scheduler.problems import (
    CardElsewhere,
    CardUnknown,
    ClaimInUse,
    ClaimUnknown,
    NodeInUse,
    NodeIsolatesCards,
    NodeUnknown,
)
from qm_scheduler.projections import OrderDoc
from qm_scheduler.views import (
    CardView,
    CordonInput,
    NodeInput,
    NodeView,
    card_view,
    cards_of,
    node_view,
)
from qm_service.caller import Access, Page, Permit, etag
from qm_service.model import Act
from qm_service.page import Paged, page
from qm_service.problem import ValidationFailed, VersionConflict, problems
from qm_service.runtime import Runtime

SKEW = timedelta(minutes=5)
"""How far the clock of a source of observations may be ahead."""
Told = Annotated[
    Annotated[Observations, Tag("observations")] | Annotated[AlertmanagerWebhook, Tag("webhook")],
    Discriminator(lambda body: "webhook" if isinstance(body, dict | AlertmanagerWebhook) else "observations"),
]
"""One of two forms, told apart by whether it is a list: so a fault is named in the form that was meant."""
NodePath = Annotated[Name, Path()]


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of the scheduler."""
    router = APIRouter()
    router.include_router(queue_routes(runtime))
    router.include_router(reservation_routes(runtime))
    router.include_router(_node_routes(runtime))
    router.include_router(_card_routes(runtime))
    return router


def _node_routes(runtime: Runtime) -> APIRouter:
    router = APIRouter()

    @router.get("/fleet/nodes", responses=problems())
    async def list_nodes(_: Access, window: Page) -> Paged[NodeView]:
        """List the nodes by name."""
        pool = board_of(runtime).pool
        (start,) = window.start(str) or ("",)
        names = sorted(name for name in pool.nodes if name > start)[: window.fetch]
        shown, following = window.cut(names, lambda name: (name,))
        return page([node_view(pool, pool.nodes[name]) for name in shown], following)

    @router.get("/fleet/nodes/{node}", responses=problems(NodeUnknown))
    async def show_node(node: NodePath, _: Access, response: Response) -> NodeView:
        """Show a node with its cards."""
        return _show(runtime, node, await runtime.version(stream_name("node", node)), response)

    @router.put("/fleet/nodes/{node}", responses=problems(CardElsewhere, VersionConflict))
    async def describe_node(node: NodePath, body: NodeInput, access: Access, response: Response) -> NodeView:
        """Register a node or describe it anew, card by card."""
        return await _change(runtime, access, node, Describe(body.fact(node)), response)

    @router.post("/fleet/nodes/{node}/cordon", responses=problems(NodeUnknown, VersionConflict))
    async def cordon_node(node: NodePath, body: CordonInput, access: Access, response: Response) -> NodeView:
        """Give the node no new work; what runs, runs on."""
        return await _change(runtime, access, node, Cordon(body.reason), response)

    @router.post("/fleet/nodes/{node}/uncordon", responses=problems(NodeUnknown, VersionConflict))
    async def uncordon_node(node: NodePath, access: Access, response: Response) -> NodeView:
        """Give the node work again."""
        return await _change(runtime, access, node, Uncordon(), response)

    @router.get("/fleet/nodes/{node}/drain", responses=problems(NodeUnknown))
    async def show_drain(node: NodePath, _: Access) -> DrainView:
        """Show who is on a node and until when, without changing anything."""
        return _drain(runtime, node)

    @router.post("/fleet/nodes/{node}/drain", responses=problems(NodeUnknown, VersionConflict))
    async def drain_node(node: NodePath, body: CordonInput, access: Access, response: Response) -> DrainView:
        """Cordon a node and show when it will be empty; nobody is thrown out."""
        await _change(runtime, access, node, Cordon(body.reason), response)
        return _drain(runtime, node)

    @router.post("/fleet/nodes/{node}/retire", responses=problems(NodeUnknown, NodeInUse, NodeIsolatesCards))
    async def retire_node(node: NodePath, body: CordonInput, access: Access) -> NodeView:
        """Take an empty node, on which no card is isolated or sick, out of the fleet for good; return it as it was."""
        pool = board_of(runtime).pool
        last = node_view(pool, pool.nodes[node]) if node in pool.nodes else None
        act = Act(stream_name("node", node), Retire(body.reason))
        await runtime.execute(act, access.cause(), expected_version=access.if_match)
        if last is None:
            raise NodeUnknown(f"Node {node} is not in the fleet.")
        return last

    return router


def _card_routes(runtime: Runtime) -> APIRouter:
    router = APIRouter()
    newest = Newest()

    @router.get("/fleet/cards", responses=problems())
    async def list_cards(
        _: Access,
        window: Page,
        accelerator: str | None = None,
        node: str | None = None,
        state: Annotated[str | None, Query(pattern=f"^({'|'.join(CLASSES)})$")] = None,
        health: Annotated[str | None, Query(pattern="^(healthy|suspect|failed|unknown)$")] = None,
    ) -> Paged[CardView]:
        """List the cards by node and id."""
        pool = board_of(runtime).pool
        after = window.start(str, str) or ("", "")
        wanted = {"accelerator": accelerator, "node": node, "state": state, "health": health}
        views = (card_view(pool, home, card) for home, card in cards_of(pool, after))
        fitting = (view for view in views if all(value in (None, getattr(view, key)) for key, value in wanted.items()))
        shown, following = window.cut(list(islice(fitting, window.fetch)), lambda view: (view.node, view.card))
        return page(shown, following)

    @router.post("/fleet/cards/{card}/clear", responses=problems(CardUnknown))
    async def clear_card(card: Annotated[Name, Path()], access: Access) -> CardView:
        """Take a card out of quarantine; what its sources say of its health stands. One that its node is described
        without leaves the fleet."""
        pool = board_of(runtime).pool
        home = _home(pool, card)
        last = pool.nodes[home].cards[card]
        await runtime.execute(Act(stream_name("node", home), Clear(card)), access.cause())
        node = board_of(runtime).pool.nodes[home]
        return card_view(board_of(runtime).pool, node, node.cards.get(card, last))

    @router.post("/fleet/health", responses=problems(CardUnknown, NodeUnknown))
    async def observe(body: Told, access: Access) -> HealthReceipt:
        """Take what agents or Alertmanager saw. All or nothing is understood; what is old or known changes nothing."""
        told: Sequence[Observed | Alert] = body.alerts if isinstance(body, AlertmanagerWebhook) else body
        return HealthReceipt(accepted=len(told), changed=await _observe(runtime, access, newest, told))

    @router.get("/fleet/findings", responses=problems())
    async def list_findings(_: Access, window: Page) -> Paged[Finding]:
        """List claims that do not fit what is seen, by order: computed now, nothing is changed."""
        docs, nodes = runtime.context().docs.resident("allocations"), board_of(runtime).pool.nodes
        (start, kind) = window.start(str, str) or ("", "")
        rows = (each for each in findings(docs, nodes, runtime.clock.now()) if (each.order, each.kind) > (start, kind))
        shown, following = window.cut(list(islice(rows, window.fetch)), lambda each: (each.order, each.kind))
        return page(shown, following)

    @router.post("/fleet/claims/{order}/clear", responses=problems(ClaimUnknown, ClaimInUse))
    async def clear_claim(order: Annotated[Name, Path()], body: CordonInput, access: Access) -> Paged[CardView]:
        """End the claim of an order whose cards do not come back after its end: each is isolated until cleared."""
        docs = runtime.context().docs.resident("allocations")
        doc: OrderDoc | None = docs.get(order)
        if doc is None or not doc.is_holding:
            raise ClaimUnknown(f"Order {order} holds no cards.")
        if doc.ended_at is None and not doc.releasing:
            raise ClaimInUse(f"Order {order} is not over.")
        command = Return(order, doc.allocation, (), f"claim cleared: {body.reason}", runtime.clock.now())
        act = Act(stream_name("allocation", order), command, doc.tenant, doc.project, order)
        await runtime.execute(act, access.cause(correlation=order))
        pool, cards = (
            board_of(runtime).pool,
            dict.fromkeys((unit.node, card) for unit in doc.units for card in unit.cards),
        )
        known = [(pool.nodes[node], pool.nodes[node].cards.get(card)) for node, card in cards]
        return page([card_view(pool, node, card) for node, card in known if card is not None], None)

    return router


async def _observe(runtime: Runtime, access: Permit, newest: Newest, told: Sequence[Observed | Alert]) -> int:
    pool, changed = board_of(runtime).pool, 0
    seen = by_node(told, lambda card: _home(pool, card))
    if ahead := [each.observation.observed_at for those in seen.values() for each in those]:
        _check_not_ahead(max(ahead), runtime.clock.now())
    if missing := [node for node in seen if node not in pool.nodes]:
        raise NodeUnknown(f"Node {missing[0]} is not in the fleet.")
    # Observations are idempotent by themselves, and one call is one line in the audit however many nodes it is about.
    cause = replace(access.cause(), idempotency=None, request=None)
    for node, observations in seen.items():
        if (command := newest.take(pool.nodes[node], observations)) is not None:
            outcome = await runtime.execute(Act(stream_name("node", node), command), cause)
            cause = replace(cause, action=None)
            changed += len(outcome.events)
        newest.note(pool.nodes[node], observations)
    return changed


def _check_not_ahead(observed_at: datetime, now: datetime) -> None:
    """Refuse a time to come: nothing that its source sees from now on would be newer."""
    if observed_at > now + SKEW:
        raise ValidationFailed(
            f"Something was observed at {utc_text(observed_at)}; it is {utc_text(now)}.",
            field="observed_at",
            remedy="Correct the clock of the source.",
        )


async def _change(runtime: Runtime, access: Permit, node: str, command: object, response: Response) -> NodeView:
    act = Act(stream_name("node", node), command)
    outcome = await runtime.execute(act, access.cause(), expected_version=access.if_match)
    return _show(runtime, node, outcome.version, response)


def _show(runtime: Runtime, node: str, version: int, response: Response) -> NodeView:
    pool = board_of(runtime).pool
    if node not in pool.nodes:
        raise NodeUnknown(f"Node {node} is not in the fleet.")
    response.headers["ETag"] = etag(version)
    return node_view(pool, pool.nodes[node])


def _drain(runtime: Runtime, node: str) -> DrainView:
    if (known := board_of(runtime).pool.nodes.get(node)) is None:
        raise NodeUnknown(f"Node {node} is not in the fleet.")
    return drain_view(known, runtime.context().docs.resident("allocations"))


def _home(pool: Pool, card: str) -> str:
    if (node := pool.homes.get(card)) is None:
        raise CardUnknown(f"Card {card} is not in the fleet.")
    return node
