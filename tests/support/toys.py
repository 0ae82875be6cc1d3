"""Two small services over the real vocabulary: a catalog that takes orders, an admission that admits a few cards."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from qm_events import Event, EventData
from qm_events.admission import OrderAdmitted, OrderHeld, OrderWithdrawn
from qm_events.catalog import OrderCancelRequested, OrderExpired, OrderSubmitted
from qm_events.ids import TenantName
from qm_events.specs import OrderRequest, ServiceModel, Specification
from qm_service.model import Act, Column, Context, Decider, Decision, Definition, Fold, Projection, Rejected

LIMIT = 4
LIFE = timedelta(hours=1)

SPECIFICATION = Specification(
    name="one-card",
    version=1,
    accelerators=("a100",),
    cards_per_unit=1,
    accelerator_memory_mib=81_920,
    cpu_milli=8_000,
    memory_mib=65_536,
)


def request(**changes: Any) -> OrderRequest:
    """Return the parameters of a small order."""
    values: dict[str, Any] = {
        "tenant": "acme",
        "project": "vision",
        "requester": "alice",
        "specification": SPECIFICATION,
        "service_model": ServiceModel.VM,
    }
    return OrderRequest(**(values | changes))


@dataclass(frozen=True)
class Submit:
    """Take an order."""

    request: OrderRequest


@dataclass(frozen=True)
class Cancel:
    """End it; a second time changes nothing."""


@dataclass(frozen=True)
class Expire:
    """Its time is over."""


@dataclass(frozen=True)
class Phase:
    """The document of an order, and the state of its stream."""

    order: str
    phase: str
    tenant: str = ""
    ends_at: datetime | None = None


def _decide_order(state: Phase | None, command: Any, ctx: Context) -> Decision:
    match command:
        case Submit(request) if state is None:
            order = str(request.labels["order"])
            return [OrderSubmitted(order=order, request=request, digest="d", submitted_at=ctx.now)]
        case Submit():
            return Rejected("order-exists", "there is one already")
        case Cancel() if state is None:
            return Rejected("order-unknown", "no such order")
        case Cancel() if state is not None and state.phase == "submitted":
            return [OrderCancelRequested(order=state.order, requested_at=ctx.now)]
        case Expire() if state is not None and state.phase == "submitted":
            return [OrderExpired(order=state.order, expired_at=state.ends_at or ctx.now)]
    return []


def _evolve_order(state: Phase | None, data: EventData) -> Phase | None:
    match data:
        case OrderSubmitted():
            return Phase(data.order, "submitted", data.request.tenant, data.submitted_at + LIFE)
        case OrderCancelRequested():
            return Phase(data.order, "cancelled")
        case OrderExpired():
            return Phase(data.order, "expired")
    return state


def _own(old: Phase | None, event: Event[Any]) -> Phase | None:
    return _evolve_order(old, event.data)


def _foreign(word: str) -> Fold[Phase]:
    """A mark that does not depend on when it comes: it is added to whatever phase the order's own facts say."""

    def apply(old: Phase | None, event: Event[Any]) -> Phase:
        return Phase(event.key, word, event.tenant or "")

    return Fold(apply)


class Deadlines:
    """The live orders by their end."""

    def __init__(self) -> None:
        self.ends: dict[str, datetime] = {}

    def changed(self, projection: str, key: str, old: Phase | None, new: Phase | None) -> None:
        """Follow one document."""
        if projection == "orders":
            self.ends.pop(key, None)
            if new is not None and new.ends_at is not None:
                self.ends[key] = new.ends_at


def _expire(ctx: Context) -> Sequence[Act]:
    over = sorted(key for key, end in ctx.index.ends.items() if end <= ctx.now)
    return [Act(f"order/{key}", Expire(), tenant="acme", project="vision", correlation=key) for key in over]


def _next_end(ctx: Context) -> datetime | None:
    return min(ctx.index.ends.values(), default=None)


ORDERS: Projection[Phase] = Projection(
    name="orders",
    version=1,
    model=Phase,
    folds={OrderSubmitted: Fold(_own), OrderCancelRequested: Fold(_own), OrderExpired: Fold(_own)},
    columns={"phase": Column(str, lambda doc: doc.phase), "ends_at": Column(datetime, lambda doc: doc.ends_at)},
    resident=lambda doc: doc.phase == "submitted",
)
VERDICTS: Projection[Phase] = Projection(
    name="verdicts",
    version=1,
    model=Phase,
    folds={OrderAdmitted: _foreign("admitted"), OrderHeld: _foreign("held"), OrderWithdrawn: _foreign("withdrawn")},
)

CATALOG = Definition(
    name="catalog",
    deciders=(Decider("order", None, _decide_order, _evolve_order),),
    projections=(ORDERS, VERDICTS),
    reactions={},
    settle=_expire,
    due=_next_end,
    new_index=Deadlines,
)


@dataclass(frozen=True)
class Admit:
    """Look at a new order."""

    order: str
    request: OrderRequest
    submitted_at: datetime


@dataclass(frozen=True)
class Withdraw:
    """Its owner ended it."""

    order: str


@dataclass(frozen=True)
class Admission:
    """The state of an admission stream."""

    word: str


@dataclass(frozen=True)
class Used:
    """Cards in use by a tenant."""

    cards: int


def _decide_admission(limit: int, state: Admission | None, command: Any, ctx: Context) -> Decision:
    match command:
        case Admit(order, wanted, at) if state is None:
            used = ctx.docs.resident("used").get(wanted.tenant, Used(0)).cards
            if used + wanted.cards > limit:
                return [OrderHeld(order=order, violations=(), remedy="wait", held_at=ctx.now)]
            return [OrderAdmitted(order=order, request=wanted, digest="d", submitted_at=at)]
        case Withdraw(order) if state is None or state.word != "withdrawn":
            return [OrderWithdrawn(order=order, cause="cancelled", withdrawn_at=ctx.now)]
    return []


def _evolve_admission(state: Admission | None, data: EventData) -> Admission | None:
    words: dict[type[EventData], str] = {OrderAdmitted: "admitted", OrderHeld: "held", OrderWithdrawn: "withdrawn"}
    return Admission(words[type(data)]) if type(data) in words else state


def _on_submitted(event: Event[Any]) -> Sequence[Act]:
    if event.data.request.labels.get("poison"):
        raise ValueError("this order cannot be looked at")
    return [Act(f"admission/{event.key}", Admit(event.key, event.data.request, event.data.submitted_at))]


def _on_cancel(event: Event[Any]) -> Sequence[Act]:
    return [Act(f"admission/{event.key}", Withdraw(event.key))]


def _use(old: Used | None, event: Event[Any]) -> Used:
    return Used((old.cards if old else 0) + event.data.request.cards)


def _of_tenant(event: Event[Any]) -> Sequence[str]:
    return (TenantName(event.data.request.tenant),)


USED: Projection[Used] = Projection(
    name="used", version=1, model=Used, folds={OrderAdmitted: Fold(_use, _of_tenant)}, resident=lambda _: True
)


def admission(limit: int) -> Definition:
    """Return an admission that lets a tenant have as many cards as the limit says."""
    return Definition(
        name="admission",
        deciders=(Decider("admission", None, partial(_decide_admission, limit), _evolve_admission),),
        projections=(USED,),
        reactions={OrderSubmitted: _on_submitted, OrderCancelRequested: _on_cancel},
    )


ADMISSION = admission(LIMIT)
GENEROUS = admission(10**9)


def submit(order: str, **changes: Any) -> Act:
    """Return the command that takes an order."""
    labels = {"order": order, **changes.pop("labels", {})}
    wanted = request(labels=labels, **changes)
    return Act(f"order/{order}", Submit(wanted), tenant="acme", project="vision", correlation=order)


def cancel(order: str) -> Act:
    """Return the command that ends an order."""
    return Act(f"order/{order}", Cancel(), tenant="acme", project="vision", correlation=order)


def at(text: str) -> datetime:
    """Return an instant of the day that tests play on."""
    return datetime.fromisoformat(f"2026-06-01T{text}").replace(tzinfo=UTC)
