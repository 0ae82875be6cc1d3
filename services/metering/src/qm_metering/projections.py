"""The documents: `orders`, the facts about the time of each order; `ledger`, one row a line, summed in SQL; `periods`,
the months of each tenant; `zones`, where its months end."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from operator import attrgetter
from typing import Any

from qm_events import Event, EventData
from qm_events.catalog import (
    OrderCancelRequested,
    OrderExpired,
    OrderReleaseRequested,
    OrderSubmitted,
    TenantRegistered,
)
from qm_events.metering import PeriodClosed, PeriodClosing, UsageCorrected, UsageLine, UsageRate, UsageRecorded
from qm_events.provisioner import EnvironmentFailed, EnvironmentQuarantined, EnvironmentReady
from qm_events.scheduler import AllocationAllocated, AllocationPreempted, AllocationReturned
from qm_events.specs import Value
from qm_events.units import SHARES_OF_A_CARD
from qm_metering.domain import live
from qm_metering.intervals import micros
from qm_metering.months import Zones
from qm_metering.periods import PERIODS, Period, period_key
from qm_metering.policy import Booked, Class, Holding, Kind, Meter, Moment, OrderUsage, anomalies
from qm_service.model import Column, Fold, Projection

_AHEAD_US = 300_000_000
"""How far the clock of a service may be ahead of itself between what it did and its telling."""


WHOLE = "1/1"
"""The share of a card that is not cut."""


class LedgerLine(Value):
    """A line of the topic as a row. A correction is a row of its own with `cards` negative: sums need no other rule."""

    record: str
    meter: Meter
    tenant: str
    project: str
    order: str
    allocation: str
    accelerator: str
    service_model: str
    cards: int
    share: str = WHOLE
    """What of a card each is."""
    from_us: int
    to_us: int
    specification: str | None = None
    period: str | None = None
    used_in: str | None = None
    reverses: str | None = None
    priced: str = ""
    """What the rates say, as text."""
    price: str = ""
    """Of a card-hour, as text; empty where it has none."""
    currency: str = ""
    began_by: str | None = None
    ended_by: str | None = None
    ready_us: int = 0
    """Of a held line: up to here it was provisioning …"""
    ended_us: int = 0
    """… up to here billable …"""
    rest: str = ""
    """… and then in this class; empty: there was no rest."""

    @property
    def used_us(self) -> int | Fraction:
        """Its card-microseconds, slices as the exact part of a card that they are."""
        card_us = self.cards * (self.to_us - self.from_us)
        return card_us if self.share == WHOLE else card_us * Fraction(self.share)


class ZoneHistory(Value):
    """The zones of a tenant, each from an instant on."""

    zones: Zones


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
        field = "apart" if moment.at_us > micros(event.time) + _AHEAD_US else "moments"
        return _with(usage, event, field, moment, attrgetter("rank"))

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
        specification=data.request.specification.name,
        image=data.request.image,
        share=data.units[0].slice.share if data.units[0].slice else None,
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
    data = event.data
    line = Booked(
        record=data.record,
        allocation=data.allocation,
        meter=data.meter,
        accelerator=data.accelerator,
        cards=data.cards,
        from_us=micros(data.from_at),
        to_us=micros(data.to_at),
        continues=bool(data.continues),
        goes_on=bool(data.goes_on),
        classes=data.stretches and tuple((it.counts_as, micros(it.from_at)) for it in data.stretches),
    )
    return _with(usage, event, "lines", line, attrgetter("record"))


def _reversed(usage: OrderUsage | None, event: Event[UsageCorrected]) -> OrderUsage:
    usage = usage or _blank(event)
    # A line is taken back on its own stream, so never before it was there.
    return usage.model_copy(update={"lines": tuple(it for it in usage.lines if it.record != event.data.reverses)})


def _order(event: Event[Any]) -> Sequence[str]:
    order: str = event.data.order
    return (order,)


def _classes(data: UsageLine) -> dict[str, Any]:
    """Return the classes of a held line as columns: a holding passes through them in this order, each at most once."""
    ends = {it.counts_as: micros(it.to_at) for it in data.stretches or ()}
    ready_us = ends.pop(Class.PROVISIONING, micros(data.from_at))
    ended_us = ends.pop(Class.BILLABLE, ready_us)
    rest = next(iter(ends), "unaccounted" if data.stretches is None else "")
    return {"ready_us": ready_us, "ended_us": ended_us, "rest": rest}


def _rate(rate: UsageRate) -> str:
    return f"{micros(rate.from_at)}-{micros(rate.to_at)} {rate.price_per_card_hour} {rate.currency} {rate.offering}"


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
            share=data.share or WHOLE,
            from_us=micros(data.from_at),
            to_us=micros(data.to_at),
            specification=data.specification,
            period=data.period,
            used_in=data.used_in,
            reverses=getattr(data, "reverses", None),
            priced=";".join(map(_rate, data.rates or ())),
            price="" if data.rates is None else str(data.rates[0].price_per_card_hour),
            currency="" if data.rates is None else data.rates[0].currency,
            began_by=data.began_by,
            ended_by=data.ended_by,
            **_classes(data),
        )

    return Fold(apply, keys=lambda event: (event.data.record,))


def _counted(sign: int) -> Fold[Period]:
    def apply(doc: Period | None, event: Event[UsageLine]) -> Period:
        data, doc = event.data, doc or Period(tenant=event.tenant or "", period=event.data.period or "")
        sums = {"lines": doc.lines + 1}
        if data.share is None:
            name, used = f"{data.meter}_us", data.card_us
        else:
            name, used = f"{data.meter}_parts", int(data.card_us * Fraction(data.share) * SHARES_OF_A_CARD)
        return doc.model_copy(update=sums | {name: getattr(doc, name) + sign * used})

    def keys(event: Event[UsageLine]) -> Sequence[str]:
        return () if event.data.period is None else (period_key(event.tenant or "", event.data.period),)

    return Fold(apply, keys)


def _closing(doc: Period | None, event: Event[PeriodClosing]) -> Period:
    data = event.data
    changes = {"timezone": data.timezone, "from_us": micros(data.from_at), "to_us": micros(data.to_at)}
    return _period(doc, data).model_copy(update={"state": "closing", **changes})


def _closed(doc: Period | None, event: Event[PeriodClosed]) -> Period:
    data = event.data
    return _period(doc, data).model_copy(
        update={"state": "closed", "digest": data.digest, "closed_us": micros(data.closed_at)}
    )


def _period(doc: Period | None, data: PeriodClosing | PeriodClosed) -> Period:
    return doc or Period(tenant=data.tenant, period=data.period)


def _month(event: Event[Any]) -> Sequence[str]:
    return (period_key(event.data.tenant, event.data.period),)


def _zone(doc: ZoneHistory | None, event: Event[TenantRegistered]) -> ZoneHistory:
    zones = doc.zones if doc else ()
    if zones and zones[-1][1] == event.data.timezone:
        return doc or ZoneHistory(zones=zones)
    return ZoneHistory(zones=(*zones, (micros(event.time), event.data.timezone)))


def _always(_: object) -> bool:
    return True


ORDERS: Projection[OrderUsage] = Projection(
    name="orders",
    version=2,
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
    version=2,
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
        "share": Column(str, lambda line: line.share),
        "from_us": Column(int, lambda line: line.from_us),
        "to_us": Column(int, lambda line: line.to_us),
        "price": Column(str, lambda line: line.price),
        "currency": Column(str, lambda line: line.currency),
        "ready_us": Column(int, lambda line: line.ready_us),
        "ended_us": Column(int, lambda line: line.ended_us),
        "rest": Column(str, lambda line: line.rest),
        "priced": Column(str, lambda line: line.priced),
        "period": Column(str, lambda line: period_key(line.tenant, line.period) if line.period else ""),
    },
)

PERIOD_DOCS: Projection[Period] = Projection(
    name=PERIODS,
    version=1,
    model=Period,
    folds={
        UsageRecorded: _counted(1),
        UsageCorrected: _counted(-1),
        PeriodClosing: Fold(_closing, _month),
        PeriodClosed: Fold(_closed, _month),
    },
    columns={"tenant": Column(str, lambda doc: doc.tenant), "state": Column(str, lambda doc: doc.state)},
    resident=_always,
)

ZONES: Projection[ZoneHistory] = Projection(
    name="zones", version=1, model=ZoneHistory, folds={TenantRegistered: Fold(_zone)}, resident=_always
)
