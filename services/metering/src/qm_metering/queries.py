"""Sums over the ledger and over what runs, as of one moment of the database."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_events.metering import UsageRate
from qm_metering.domain import rated, stale, unrecorded
from qm_metering.intervals import Span, clipped_us
from qm_metering.money import cost
from qm_metering.policy import Meter, OrderUsage
from qm_metering.prices import Book, book_of
from qm_metering.projections import LEDGER, ORDERS, WHOLE
from qm_service.schema import Schema

GROUPS = ("tenant", "project", "accelerator", "service_model", "order")
"""What usage can be grouped by."""

Sums = dict[tuple[tuple[str, ...], Meter], int | Fraction]
"""(values of the groups, meter) -> card-microseconds, slices as the exact part of a card that they are."""
Costs = Mapping[tuple[tuple[str, ...], str], Fraction]
"""(values of the groups, currency) -> what the billable part costs."""

_APART = ("price", "currency", "meter", "share")
"""What lines of one sum have in common beside its groups."""
_WORD = 1_000_000
"""Sums are taken in two parts: SQLite's integers end at 2**63, which a large fleet passes within three years."""


async def usage(
    tx: AsyncConnection,
    schema: Schema,
    groups: Sequence[str],
    window: Span,
    now_us: int,
    scopes: Sequence[str] | None,
    books: Sequence[Book] = (),
) -> tuple[Sums, Costs]:
    """Sum what was held and billable inside `window` by `groups`, in the `tenant/project`s of `scopes` (None: all).

    Within one transaction a stretch is seen as running or as recorded, never as both or neither.
    """
    ledger, orders = schema.documents[LEDGER.name], schema.documents[ORDERS.name]
    rows = await tx.execute(_visible(select(orders.c.doc).where(orders.c.live), orders.c.scope, scopes))
    running = [OrderUsage.model_validate_json(raw) for (raw,) in rows]
    wrong = sorted(record for order in running for record in stale(order))
    query = _recorded(ledger, groups, window, now_us if window.end_us is None else window.end_us)
    if wrong:
        query = query.where(ledger.c.key.not_in(wrong))
    sums: Sums = defaultdict(int)
    costs: dict[tuple[tuple[str, ...], str], Fraction] = defaultdict(Fraction)
    for *values, price, currency, meter, share, words, rest in await tx.execute(
        _visible(query, ledger.c.scope, scopes)
    ):
        card_us = _exact(int(words) * _WORD + int(rest), share)
        sums[tuple(values), meter] += card_us
        if price:
            costs[tuple(values), currency] += cost(card_us, Decimal(price))
    for order in running:
        for group, of, card_us, rate in _running(order, groups, window, now_us, books):
            sums[group, of] += card_us
            if rate:
                costs[group, rate.currency] += cost(card_us, rate.price_per_card_hour)
    return sums, costs


def _recorded(ledger: Table, groups: Sequence[str], window: Span, end_us: int) -> Select[Any]:
    since, until = ledger.c.from_us, ledger.c.to_us
    start = case((since < window.start_us, window.start_us), else_=since)
    end = case((until > end_us, end_us), else_=until)
    card_us = ledger.c.cards * (end - start)
    columns = [*(ledger.c[group] for group in groups), *(ledger.c[name] for name in _APART)]
    return (
        select(*columns, func.sum(card_us // _WORD), func.sum(card_us % _WORD))
        .where(and_(since < end_us, until > window.start_us))
        .group_by(*columns)
    )


def _visible(query: Select[Any], scope: ColumnElement[str], scopes: Sequence[str] | None) -> Select[Any]:
    return query if scopes is None else query.where(scope.in_(scopes))


def _running(
    order: OrderUsage, groups: Sequence[str], window: Span, now_us: int, books: Sequence[Book]
) -> Iterator[tuple[tuple[str, ...], Meter, int | Fraction, UsageRate | None]]:
    for holding, meter, accelerator, cards, gap in unrecorded(order):
        start_us = max(gap.start_us, window.start_us)
        end_us = start_us + clipped_us(gap, window, now_us)
        facts = {
            "tenant": order.tenant,
            "project": order.project,
            "accelerator": accelerator,
            "service_model": holding.service_model,
            "order": order.order,
        }
        group, book = tuple(facts[name] for name in groups), book_of(books, holding)
        for since, until, rate in rated(meter, start_us, end_us, book) if end_us > start_us else ():
            yield group, meter.meter, _exact(cards * (until - since), holding.share), rate


def _exact(card_us: int, share: str | None) -> int | Fraction:
    return card_us if share in (None, WHOLE) else card_us * Fraction(share or 1)
