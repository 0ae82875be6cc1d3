"""The documents: `orders`, the facts about the time of each order, and `ledger`, one row a line, summed in SQL."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

from qm_events import Event, EventData
from qm_events.catalog import OrderCancelRequested, OrderExpired, OrderReleaseRequested, OrderSubmitted
from qm_events.metering import UsageCorrected, UsageLine, UsageRecorded
from qm_events.provisioner import EnvironmentFailed, EnvironmentQuarantined, EnvironmentReady
from qm_events.scheduler import AllocationAllocated, AllocationPreempted, AllocationReturned
from qm_events.specs import Value
from qm_metering.domain import live
from qm_metering.intervals import micros
from qm_metering.policy import Holding, Kind, Moment, OrderUsage, anomalies
from qm_service.model import Column, Fold, Projection


class LedgerLine(Value):
    """A line of the topic as a row. A correction is a row of its own with `cards` negative: sums need no other rule."""

    record: str
    meter: Literal["held", "billable"]
    tenant: str
    project: str
    order: str
    allocation: str
    accelerator: str
    service_model: str
    cards: int
    from_us: int
    to_us: int


def _blank(event: Event[Any]) -> OrderUsage:
    return OrderUsage(order=event.data.order, tenant=event.tenant or "", project=event.project or "")


def _submitted(usage: OrderUsage | None, event: Event[OrderSubmitted]) -> OrderUsage:
    # An order without cards is known too: its owner is told of nothing instead of being told that it is not there.
    return usage or _blank(event)


def _with(usage: OrderUsage | None, event: Event[Any], field: str, new: Any, key: Callable[[Any], Any]) -> OrderUsage:
    """Return the document with `new` in the sorted set `field`, the same object where it is there already."""
    usage = usage or _blank(event)
    known: tuple[Any, ...] = getattr(usage, field)
    return usage if new in known else usage.model_copy(update={field: tuple(sorted((*known, new), key=key))})


def _moment(kind: Kind, at: str, *, of_allocation: bool) -> Fold[OrderUsage]:
    instant_of: Callable[[EventData], datetime] = attrgetter(at)
    allocation_of: Callable[[EventData], str] = attrgetter("allocation")

    def apply(usage: OrderUsage | None, event: Event[Any]) -> OrderUsage:
        allocation = allocation_of(event.data) if of_allocation else None
        moment = Moment(at_us=micros(instant_of(event.data)), kind=kind, fact=event.id, allocation=allocation)
        return _with(usage, event, "moments", moment, attrgetter("rank"))

    return Fold(apply)


def _allocated(usage: OrderUsage | None, event: Event[AllocationAllocated]) -> OrderUsage:
    data = event.data
    counts: dict[str, int] = {}
    for unit in data.units:
        counts[unit.accelerator] = counts.get(unit.accelerator, 0) + len(unit.cards)
    holding = Holding(
        allocation=data.allocation,
        cards=tuple(sorted(counts.items())),
        service_model=data.request.service_model,
        allocated=Moment(
            at_us=micros(data.allocated_at), kind=Kind.ALLOCATED, fact=event.id, allocation=data.allocation
        ),
    )
    usage = usage or _blank(event)
    return usage.model_copy(update={"holdings": _earliest((*usage.holdings, holding))})


def _earliest(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    # An allocation that is told twice counts from its earliest telling, whichever arrived first.
    by_name: dict[str, Holding] = {}
    for holding in sorted(holdings, key=lambda holding: holding.allocated.rank):
        by_name.setdefault(holding.allocation, holding)
    return tuple(by_name.values())


def _recorded(usage: OrderUsage | None, event: Event[UsageRecorded]) -> OrderUsage:
    return _with(usage, event, "recorded", event.data.record, str)


def _reversed(usage: OrderUsage | None, event: Event[UsageCorrected]) -> OrderUsage:
    return _with(usage, event, "reversed", event.data.reverses, str)


def _order(event: Event[Any]) -> Sequence[str]:
    order: str = event.data.order
    return (order,)


def _row(sign: int) -> Fold[LedgerLine]:
    def apply(_: LedgerLine | None, event: Event[UsageLine]) -> LedgerLine:
        data = event.data
        return LedgerLine(
            record=data.record,
            meter=data.meter,
            tenant=event.tenant or "",
            project=event.project or "",
            order=data.order,
            allocation=data.allocation,
            accelerator=data.accelerator,
            service_model=data.service_model,
            cards=sign * data.cards,
            from_us=micros(data.from_at),
            to_us=micros(data.to_at),
        )

    return Fold(apply, keys=lambda event: (event.data.record,))


ORDERS: Projection[OrderUsage] = Projection(
    name="orders",
    version=1,
    model=OrderUsage,
    folds={
        AllocationAllocated: Fold(_allocated),
        AllocationPreempted: _moment(Kind.PREEMPTED, "preempted_at", of_allocation=True),
        AllocationReturned: _moment(Kind.RETURNED, "returned_at", of_allocation=True),
        EnvironmentReady: _moment(Kind.READY, "ready_at", of_allocation=True),
        EnvironmentFailed: _moment(Kind.FAILED, "failed_at", of_allocation=True),
        EnvironmentQuarantined: _moment(Kind.QUARANTINED, "quarantined_at", of_allocation=True),
        OrderSubmitted: Fold(_submitted),
        OrderCancelRequested: _moment(Kind.CANCELLED, "requested_at", of_allocation=False),
        OrderReleaseRequested: _moment(Kind.RELEASED, "requested_at", of_allocation=False),
        OrderExpired: _moment(Kind.EXPIRED, "expired_at", of_allocation=False),
        UsageRecorded: Fold(_recorded, keys=_order),
        UsageCorrected: Fold(_reversed, keys=_order),
    },
    columns={
        "scope": Column(str, lambda usage: f"{usage.tenant}/{usage.project}"),
        "live": Column(bool, live),
        "anomalies": Column(int, lambda usage: len(anomalies(usage))),
    },
    resident=live,
)

LEDGER: Projection[LedgerLine] = Projection(
    name="ledger",
    version=1,
    model=LedgerLine,
    folds={UsageRecorded: _row(1), UsageCorrected: _row(-1)},
    columns={
        "scope": Column(str, lambda line: f"{line.tenant}/{line.project}"),
        "meter": Column(str, lambda line: line.meter),
        "tenant": Column(str, lambda line: line.tenant),
        "project": Column(str, lambda line: line.project),
        "order": Column(str, lambda line: line.order),
        "accelerator": Column(str, lambda line: line.accelerator),
        "service_model": Column(str, lambda line: line.service_model),
        "cards": Column(int, lambda line: line.cards),
        "from_us": Column(int, lambda line: line.from_us),
        "to_us": Column(int, lambda line: line.to_us),
    },
)
