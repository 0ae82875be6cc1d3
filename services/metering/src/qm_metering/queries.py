"""Sums over the ledger and over what runs, as of one moment of the database."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_metering.consumers import METERING
from qm_metering.domain import Meter, unrecorded
from qm_metering.intervals import Span, clipped_us
from qm_metering.policy import OrderUsage
from qm_metering.projections import LEDGER, ORDERS
from qm_service.schema import schema_of

GROUPS = ("tenant", "project", "accelerator", "service_model", "order")
"""What usage can be grouped by."""

Sums = Counter[tuple[tuple[str, ...], Meter]]
"""(values of the groups, meter) -> card-microseconds."""

_TABLES = schema_of(METERING).documents
_LEDGER, _ORDERS = _TABLES[LEDGER.name], _TABLES[ORDERS.name]
_WORD = 1_000_000
"""Sums are taken in two parts: SQLite's integers end at 2**63, which a large fleet passes within three years."""


async def usage(
    tx: AsyncConnection, groups: Sequence[str], window: Span, now_us: int, scopes: Sequence[str] | None
) -> Sums:
    """Sum what was held and billable inside `window` by `groups`, in the `tenant/project`s of `scopes` (None: all).

    One transaction sees a stretch either as running or as recorded, never as both or neither.
    """
    sums: Sums = Counter()
    for *values, meter, words, rest in await tx.execute(_recorded(groups, window, now_us, scopes)):
        sums[tuple(values), meter] += int(words) * _WORD + int(rest)
    for (raw,) in await tx.execute(_visible(select(_ORDERS.c.doc).where(_ORDERS.c.live), _ORDERS.c.scope, scopes)):
        for group, meter, card_us in _running(OrderUsage.model_validate_json(raw), groups, window, now_us):
            sums[group, meter] += card_us
    return sums


def _recorded(groups: Sequence[str], window: Span, now_us: int, scopes: Sequence[str] | None) -> Select[Any]:
    end_us = now_us if window.end_us is None else window.end_us
    since, until = _LEDGER.c.from_us, _LEDGER.c.to_us
    start = case((since < window.start_us, window.start_us), else_=since)
    end = case((until > end_us, end_us), else_=until)
    card_us = _LEDGER.c.cards * (end - start)
    columns = [*(_LEDGER.c[group] for group in groups), _LEDGER.c.meter]
    query = (
        select(*columns, func.sum(card_us // _WORD), func.sum(card_us % _WORD))
        .where(and_(since < end_us, until > window.start_us))
        .group_by(*columns)
    )
    return _visible(query, _LEDGER.c.scope, scopes)


def _visible(query: Select[Any], scope: ColumnElement[str], scopes: Sequence[str] | None) -> Select[Any]:
    return query if scopes is None else query.where(scope.in_(scopes))


def _running(
    order: OrderUsage, groups: Sequence[str], window: Span, now_us: int
) -> Iterator[tuple[tuple[str, ...], Meter, int]]:
    for holding, meter in unrecorded(order):
        length_us = clipped_us(meter.span, window, now_us)
        for accelerator, cards in holding.cards if length_us else ():
            facts = {
                "tenant": order.tenant,
                "project": order.project,
                "accelerator": accelerator,
                "service_model": holding.service_model,
                "order": order.order,
            }
            yield tuple(facts[group] for group in groups), meter.meter, cards * length_us
