"""What people ask of metering: sums by group, and the time of one order with the reason for each stretch."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from qm_events.envelope import UtcTime, utc_text
from qm_metering import api_budgets, api_exports, api_fleet, api_periods, api_prices, queries
from qm_metering.domain import metered
from qm_metering.intervals import Span, clipped_us, instant, micros
from qm_metering.invoice import Bill, bill
from qm_metering.money import Money, money
from qm_metering.policy import Anomaly, Class, Holding, Meter, Moment, OrderUsage, Piece, anomalies, pieces
from qm_metering.prices import BOOKS
from qm_metering.problems import WindowReversed
from qm_metering.projections import LEDGER, ORDERS, LedgerLine
from qm_metering.quantity import Quantity, quantity
from qm_service.caller import Access, Page
from qm_service.problem import NotFound, ValidationFailed, problems
from qm_service.runtime import Runtime


class UsageRow(BaseModel):
    """The usage of one group; what was not grouped by is null."""

    tenant: str | None
    project: str | None
    accelerator: str | None
    service_model: str | None
    order: str | None
    held: Quantity
    billable: Quantity
    cost: list[Money]
    """Of the billable part, by currency; what has no price is in none."""


class Totals(BaseModel):
    """All groups together, those of other pages included."""

    held: Quantity
    billable: Quantity
    cost: list[Money]


class UsageReport(BaseModel):
    """Usage inside a window; what still runs counts up to `to` or, if that is earlier, `as_of`."""

    group_by: list[str]
    from_at: datetime | None = Field(serialization_alias="from")
    to_at: datetime = Field(serialization_alias="to")
    as_of: datetime
    items: list[UsageRow]
    totals: Totals
    next: str | None


class Boundary(BaseModel):
    """The fact that begins or ends a stretch."""

    at: datetime
    said: str
    fact: str
    """Its id, to be found on the topics."""


class CardCount(BaseModel):
    """How many cards of one type."""

    accelerator: str
    cards: int


class Stretch(BaseModel):
    """A stretch of time in one class, on all cards of an allocation."""

    allocation: str
    cards: list[CardCount]
    counts_as: Class
    billable: bool
    payer: str
    why: str
    policy: int
    """The version of the table of classes that says so."""
    began: Boundary
    ended: Boundary | None
    """None: it still runs."""
    from_at: datetime
    to_at: datetime | None
    held: Quantity


class OrderUsageReport(BaseModel):
    """All time that an order held cards: the stretches touch, and add up to `held`."""

    order: str
    tenant: str
    project: str
    as_of: datetime
    held: Quantity
    billable: Quantity
    stretches: list[Stretch]
    bill: Bill
    anomalies: list[Anomaly]


_LINES_MAX = 10_000
"""Of one order: its months by its accelerators, and what was corrected."""


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of metering."""
    router = APIRouter()
    router.include_router(api_periods.routes(runtime))
    router.include_router(api_budgets.routes(runtime))
    router.include_router(api_exports.routes(runtime))
    router.include_router(api_prices.routes(runtime))
    router.include_router(api_fleet.routes(runtime))

    @router.get("/usage", responses=problems(WindowReversed))
    async def usage(
        access: Access,
        page: Page,
        group_by: Annotated[
            str, Query(description=f"Any of {', '.join(queries.GROUPS)}, separated by commas", max_length=100)
        ] = "",
        from_at: Annotated[UtcTime | None, Query(alias="from")] = None,
        to_at: Annotated[UtcTime | None, Query(alias="to")] = None,
    ) -> UsageReport:
        """Held and billable card-hours in a window, by group, of the projects in which the caller has a role."""
        now, groups = runtime.clock.now(), _groups(group_by)
        start = page.start(*[str] * len(groups))
        window = _window(from_at, to_at, now)
        async with runtime.database.read() as tx:
            books = list(runtime.context().docs.resident(BOOKS.name).values())
            found = await queries.usage(tx, runtime.schema, groups, window, micros(now), access.scopes(), books)
        sums, costs = found
        keys = sorted({key for key, _ in sums if start is None or key > start})[: page.fetch]
        shown, following = page.cut(keys, lambda key: key)
        return UsageReport(
            group_by=groups,
            from_at=from_at,
            to_at=to_at or now,
            as_of=now,
            items=[_row(groups, key, sums, costs) for key in shown],
            totals=Totals(held=_total(sums, "held"), billable=_total(sums, "billable"), cost=_cost(costs)),
            next=following,
        )

    @router.get("/usage/orders/{order}", responses=problems())
    async def usage_of_order(access: Access, order: str) -> OrderUsageReport:
        """The stretches of time in which the order held cards, and why each is billable or not."""
        found: OrderUsage | None = await runtime.docs.get(ORDERS.name, order)
        if found is None:
            raise NotFound("There is no such thing, or you have no role in its project.")
        access.check(found.tenant, found.project)
        lines = await runtime.docs.page(LEDGER.name, {"order": order, "meter": "billable"}, limit=_LINES_MAX)
        return _order_report(found, [line for _, line in lines], runtime.clock.now())

    return router


def _groups(text: str) -> list[str]:
    groups = [name.strip() for name in text.split(",") if name.strip()]
    if len(set(groups)) < len(groups) or not set(groups) <= set(queries.GROUPS):
        raise ValidationFailed(f"group_by takes each of {', '.join(queries.GROUPS)} at most once.", field="group_by")
    return groups


def _window(from_at: datetime | None, to_at: datetime | None, now: datetime) -> Span:
    window = Span(micros(from_at) if from_at else 0, micros(to_at or now))
    if from_at and window.empty and from_at != (to_at or now):
        raise WindowReversed(f"The window begins at {utc_text(from_at)}, after its end.", field="from")
    return window


def _row(groups: list[str], key: tuple[str, ...], sums: queries.Sums, costs: queries.Costs) -> UsageRow:
    named: dict[str, str | None] = {**dict.fromkeys(queries.GROUPS), **dict(zip(groups, key, strict=True))}
    mine = {place: amount for place, amount in costs.items() if place[0] == key}
    held, billable = (sums.get((key, meter), 0) for meter in ("held", "billable"))
    return UsageRow(**named, held=quantity(held), billable=quantity(billable), cost=_cost(mine))


def _cost(costs: queries.Costs) -> list[Money]:
    by_currency: dict[str, Fraction] = defaultdict(Fraction)
    for (_, currency), amount in costs.items():
        by_currency[currency] += amount
    return [money(amount, currency) for currency, amount in sorted(by_currency.items())]


def _total(sums: queries.Sums, meter: Meter) -> Quantity:
    return quantity(sum(card_us for (_, of), card_us in sums.items() if of == meter))


def _order_report(usage: OrderUsage, lines: Sequence[LedgerLine], now: datetime) -> OrderUsageReport:
    now_us = micros(now)
    ever = Span(0, None)
    meters: dict[str, int | Fraction] = {"held": 0, "billable": 0}
    for holding in usage.holdings:
        for meter in metered(usage, holding):
            meters[meter.meter] += holding.total * clipped_us(meter.span, ever, now_us)
    return OrderUsageReport(
        order=usage.order,
        tenant=usage.tenant,
        project=usage.project,
        as_of=now,
        held=quantity(meters["held"]),
        billable=quantity(meters["billable"]),
        stretches=[_stretch(holding, piece, now_us) for holding in usage.holdings for piece in pieces(usage, holding)],
        bill=bill(lines),
        anomalies=anomalies(usage),
    )


def _stretch(holding: Holding, piece: Piece, now_us: int) -> Stretch:
    rule, end_us = piece.policy.rule(piece.counts_as, holding.service_model), piece.span.end_us
    return Stretch(
        allocation=holding.allocation,
        cards=[CardCount(accelerator=name, cards=number) for name, number in holding.cards],
        counts_as=piece.counts_as,
        billable=rule.billable,
        payer=rule.payer,
        why=rule.why,
        policy=piece.policy.version,
        began=_boundary(piece.opened),
        ended=_boundary(piece.closed) if piece.closed else None,
        from_at=instant(piece.span.start_us),
        to_at=None if end_us is None else instant(end_us),
        held=quantity(holding.total * clipped_us(piece.span, Span(0, None), now_us)),
    )


def _boundary(moment: Moment) -> Boundary:
    return Boundary(at=instant(moment.at_us), said=moment.kind, fact=moment.fact)
