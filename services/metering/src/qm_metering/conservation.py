"""The report of the fleet: each card and instant of a window in exactly one class; the classes add up to the whole.

The whole and what is not held come from the topic `fleet`, the classes of what is held from the facts of the orders.
Where the two do not agree, the difference is a class of its own, `unaccounted`: it is shown, never spread.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_metering.domain import stale, unrecorded
from qm_metering.fleet import CLAIMS, Claim, FleetNode, Unheld
from qm_metering.intervals import Span, clipped_us
from qm_metering.policy import Class, OrderUsage
from qm_metering.projections import LEDGER
from qm_service.schema import Schema

_WORD = 1_000_000


@dataclass(frozen=True, slots=True)
class Conservation:
    """Card-microseconds of a window."""

    whole_us: int
    """Cards x time in the fleet."""
    classes: Mapping[str, int]
    """They add up to `whole_us`."""


async def conservation(
    tx: AsyncConnection,
    schema: Schema,
    nodes: Mapping[str, FleetNode],
    running: Sequence[OrderUsage],
    window: Span,
) -> Conservation:
    """Sum a window; it is closed, and what still runs counts up to its end."""
    cards = [card for node in nodes.values() for card in node.cards]
    whole = sum(clipped_us(card.span, window, window.end_us or 0) for card in cards)
    claimed = await _claimed(tx, schema, window)
    out = await _out_of_service(tx, schema, nodes, window)
    held = await _held(tx, schema, running, window)
    classes = Counter(held)
    classes[Unheld.IDLE] = whole - claimed - sum(out.values())
    classes["unaccounted"] = claimed - sum(held.values())
    for name, card_us in out.items():
        # A card can be isolated while its order still holds it, and after.
        classes[name] += card_us
    return Conservation(whole, {name: card_us for name, card_us in sorted(classes.items()) if card_us})


async def _claimed(tx: AsyncConnection, schema: Schema, window: Span) -> int:
    table = schema.documents[CLAIMS.name]
    query = select(*_summed(table.c.cards, table.c.from_us, table.c.to_us, window))
    query = query.where(table.c.from_us < window.end_us, table.c.to_us > window.start_us)
    ((words, rest),) = await tx.execute(query)
    return _whole(words, rest)


def _summed(
    cards: ColumnElement[int], since: ColumnElement[int], until: ColumnElement[int], window: Span
) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the sum of cards x time inside a window, in two parts: SQLite's integers end at 2**63."""
    start_us, end_us = window.start_us, window.end_us or 0
    begins = case((since < start_us, start_us), else_=since)
    ends = case((until > end_us, end_us), else_=until)
    card_us = cards * case((ends > begins, ends - begins), else_=0)
    return func.sum(card_us // _WORD), func.sum(card_us % _WORD)


def _whole(words: int | None, rest: int | None) -> int:
    return int(words or 0) * _WORD + int(rest or 0)


async def _held(tx: AsyncConnection, schema: Schema, running: Sequence[OrderUsage], window: Span) -> Mapping[str, int]:
    table, wrong = schema.documents[LEDGER.name], sorted(record for order in running for record in stale(order))
    col, end_us = table.c, window.end_us or 0
    parts = {Class.PROVISIONING: (col.from_us, col.ready_us), Class.BILLABLE: (col.ready_us, col.ended_us)}
    reach = [*parts.values(), (col.ended_us, col.to_us)]
    query = select(col.rest, *(column for since, until in reach for column in _summed(col.cards, since, until, window)))
    query = query.where(col.meter == "held", col.from_us < end_us, col.to_us > window.start_us).group_by(col.rest)
    sums: Counter[str] = Counter()
    for rest, *words in await tx.execute(query.where(col.key.not_in(wrong)) if wrong else query):
        for number, name in enumerate((*parts, rest)):
            sums[name] += _whole(*words[2 * number : 2 * number + 2])
    for order in running:
        sums.update(_running(order, window))
    return sums


def _running(order: OrderUsage, window: Span) -> Mapping[str, int]:
    sums: Counter[str] = Counter()
    for _, meter, _, cards, gap in unrecorded(order):
        for piece in meter.parts if meter.meter == "held" else ():
            reach = Span(max(gap.start_us, window.start_us), min(_end(gap, window), window.end_us or 0))
            sums[piece.counts_as] += cards * clipped_us(piece.span, reach, window.end_us or 0)
    return sums


def _end(span: Span, window: Span) -> int:
    return (window.end_us or 0) if span.end_us is None else span.end_us


async def _out_of_service(
    tx: AsyncConnection, schema: Schema, nodes: Mapping[str, FleetNode], window: Span
) -> Mapping[str, int]:
    """Return what was neither held nor fit for use; only cards with such a time in the window are looked at."""
    odd = {(node.node, card): spans for node in nodes.values() for card, spans in _odd(node, window).items()}
    if not odd:
        return {}
    taken: dict[tuple[str, str], list[Span]] = defaultdict(list)
    table = schema.documents[CLAIMS.name]
    query = select(table.c.doc).where(
        table.c.node.in_(sorted({node for node, _ in odd})),
        table.c.from_us < window.end_us,
        table.c.to_us > window.start_us,
    )
    for (raw,) in await tx.execute(query):
        claim = Claim.model_validate_json(raw)
        for card in claim.cards:
            taken[claim.node, card].append(Span(claim.from_us, claim.to_us))
    sums: Counter[str] = Counter()
    for place, spans in odd.items():
        for name, span in spans:
            now_us = window.end_us or 0
            reach = Span(max(span.start_us, window.start_us), min(_end(span, window), now_us))
            sums[name] += clipped_us(span, window, now_us) - sum(clipped_us(it, reach, now_us) for it in taken[place])
    return sums


def _odd(node: FleetNode, window: Span) -> Mapping[str, list[tuple[Unheld, Span]]]:
    stays: dict[str, list[tuple[Unheld, Span]]] = defaultdict(list)
    for card in node.cards:
        for name, span in card.unheld():
            if name is not Unheld.IDLE and clipped_us(span, window, window.end_us or 0):
                stays[card.card].append((name, span))
    return stays
