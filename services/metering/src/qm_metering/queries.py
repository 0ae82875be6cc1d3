"""Sums over the ledger and over what runs, as of one moment of the database."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_metering.domain import stale, unrecorded
from qm_metering.intervals import Span, clipped_us
from qm_metering.policy import Meter, OrderUsage
from qm_metering.projections import LEDGER, ORDERS, WHOLE
from qm_service.schema import Schema

GROUPS = ("tenant", "project", "accelerator", "service_model", "order")
"""What usage can be grouped by."""

Sums = dict[tuple[tuple[str, ...], Meter], int | Fraction]
"""(values of the groups, meter) -> card-microseconds, slices as the exact part of a card that they are."""

_WORD = 1_000_000
"""Sums are taken in two parts: SQLite's integers end at 2**63, which a large fleet passes within three years."""


async def usage(
    tx: AsyncConnection,
    schema: Schema,
    groups: Sequence[str],
    window: Span,
    now_us: int,
    scopes: Sequence[str] | None,
) -> Sums:
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
    for *values, meter, share, words, rest in await tx.execute(_visible(query, ledger.c.scope, scopes)):
        sums[tuple(values), meter] += _exact(int(words) * _WORD + int(rest), share)
    for order in running:
        for group, of, card_us in _running(order, groups, window, now_us):
            sums[group, of] += card_us
    return sums


def _recorded(ledger: Table, groups: Sequence[str], window: Span, end_us: int) -> Select[Any]:
    since, until = ledger.c.from_us, ledger.c.to_us
    start = case((since < window.start_us, window.start_us), else_=since)
    end = case((until > end_us, end_us), else_=until)
    card_us = ledger.c.cards * (end - start)
    columns = [*(ledger.c[group] for group in groups), ledger.c.meter, ledger.c.share]
    return (
        select(*columns, func.sum(card_us // _WORD), func.sum(card_us % _WORD))
        .where(and_(since < end_us, until > window.start_us))
        .group_by(*columns)
    )


def _visible(query: Select[Any], scope: ColumnElement[str], scopes: Sequence[str] | None) -> Select[Any]:
    return query if scopes is None else query.where(scope.in_(scopes))


def _running(
    order: OrderUsage, groups: Sequence[str], window: Span, now_us: int
) -> Iterator[tuple[tuple[str, ...], Meter, int | Fraction]]:
    for holding, meter, accelerator, cards, gap in unrecorded(order):
        if length_us := clipped_us(gap, window, now_us):
            facts = {
                "tenant": order.tenant,
                "project": order.project,
                "accelerator": accelerator,
                "service_model": holding.service_model,
                "order": order.order,
            }
            yield tuple(facts[group] for group in groups), meter.meter, _exact(cards * length_us, holding.share)


def _exact(card_us: int, share: str | None) -> int | Fraction:
    return card_us if share in (None, WHOLE) else card_us * Fraction(share or 1)
