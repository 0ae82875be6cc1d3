"""What would happen to a list of orders on a changed fleet: asked and answered, nothing is done."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from qm_events.ids import stream_name
from qm_events.specs import OrderRequest, PlacedUnit, ServiceModel, Specification, Topology, WaitReason, lawful
from qm_events.units import DnsLabel
from qm_scheduler.board import Board
from qm_scheduler.domain import Enqueue
from qm_scheduler.estimate import estimate
from qm_scheduler.health import Name
from qm_scheduler.inventory import Cordon, Describe
from qm_scheduler.laws import Laws
from qm_scheduler.own import own_reasons
from qm_scheduler.reasons import explain
from qm_scheduler.sandbox import Sandbox
from qm_scheduler.views import NodeInput
from qm_service.model import Act, Rejected
from qm_service.simulation import LAST, Standing

ORDERS_MAX = 1_000


class WhatIfOrder(BaseModel):
    """An order that might come: one after the other, after all who wait already."""

    model_config = ConfigDict(extra="forbid")

    order: Name
    tenant: DnsLabel
    project: DnsLabel
    specification: Annotated[Specification, AfterValidator(lawful)]
    count: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 1
    priority: Annotated[int, Field(ge=-1000, le=1000, strict=True)] = 0
    topology: Topology | None = None
    duration_seconds: Annotated[int, Field(ge=1, le=316_224_000, strict=True)] | None = None
    preemptible: bool = False
    reservation: Name | None = None

    def request(self) -> OrderRequest:
        """Return it as the queue takes it; what decides nothing is made up."""
        more = self.model_dump(exclude={"order", "specification", "topology"})
        return OrderRequest(
            requester="whatif",
            service_model=ServiceModel.VM,
            specification=self.specification,
            topology=self.topology,
            **more,
        )


class WhatIf(BaseModel):
    """A changed fleet and orders that might come."""

    model_config = ConfigDict(extra="forbid")

    nodes: Annotated[dict[Name, NodeInput], Field(max_length=1_000)] = Field(default_factory=dict)
    """Nodes as they might be described, new ones too."""
    cordon: Annotated[list[Name], Field(max_length=1_000)] = Field(default_factory=list)
    """Nodes that might take no new work."""
    orders: Annotated[list[WhatIfOrder], Field(max_length=ORDERS_MAX)] = Field(default_factory=list)


class WhatIfOutcome(BaseModel):
    """What would become of one of the orders."""

    order: str
    units: list[PlacedUnit]
    """Where it would be placed at once; empty: it would wait."""
    position: int | None
    reasons: list[WaitReason]
    estimate: datetime | None
    """When it might start then, if leases end as promised; null if unknown or placed."""


class WhatIfView(BaseModel):
    """What would happen now. Nothing was changed."""

    placed: list[str]
    """Orders that wait now and would get cards, in that order."""
    orders: list[WhatIfOutcome]


def whatif(asked: WhatIf, docs: Mapping[str, Mapping[str, Any]], now: datetime, laws: Laws) -> WhatIfView | Rejected:
    """Run the scheduler on a copy of these resident documents; Rejected: the fleet could not be so."""
    box = Sandbox(now, {name: dict(known) for name, known in docs.items()}, Board(laws=laws))
    changes = [Act(stream_name("node", node), Describe(body.fact(node))) for node, body in asked.nodes.items()]
    changes += [Act(stream_name("node", node), Cordon("what if")) for node in asked.cordon]
    for change in changes:
        if (refused := box.ask(change)) is not None:
            return refused
    box.settle()
    for number, each in enumerate(asked.orders, 1):
        if each.order in box.docs["allocations"]:
            return Rejected("order-known", f"Order {each.order} is known already.", "Give it another name.")
        _enqueue(box, each.order, each.request(), now + timedelta(microseconds=number))
    new = {each.order for each in asked.orders}
    return WhatIfView(
        placed=[order for order in box.placed if order not in new],
        orders=[_outcome(box, each.order) for each in asked.orders],
    )


def standing(request: OrderRequest, docs: Mapping[str, Mapping[str, Any]], now: datetime) -> Standing:
    """Return where one more order would stand, were it admitted now: whoever asks learns no node and no other order."""
    box = Sandbox(now, {name: dict(known) for name, known in docs.items()})
    _enqueue(box, LAST, request, now)
    found = _outcome(box, LAST)
    return Standing(
        placed=bool(found.units),
        position=found.position,
        reasons=found.reasons,
        starts_at=now if found.units else found.estimate,
    )


def _enqueue(box: Sandbox, order: str, request: OrderRequest, submitted_at: datetime) -> None:
    box.ask(Act(stream_name("allocation", order), Enqueue(order, request, submitted_at)))
    box.settle()


def _outcome(box: Sandbox, order: str) -> WhatIfOutcome:
    doc, waiting = box.docs["allocations"][order], box.board.queue.orders.get(order)
    if waiting is None:
        return WhatIfOutcome(order=order, units=list(doc.units), position=None, reasons=[], estimate=None)
    return WhatIfOutcome(
        order=order,
        units=[],
        position=box.board.queue.ahead(order)[0] + 1,
        reasons=list(
            explain(box.board.case(waiting.ask.shape), box.board.line(order), own_reasons(box.board, waiting.ask))
        ),
        estimate=estimate(box.board, box.docs["allocations"], order, box.now),
    )
