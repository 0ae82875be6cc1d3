"""What each order is to be billed, by arithmetic of its own over the instants in the facts."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction

from tests.support.topics import Fact

_BILL_ENDS = {
    "order.cancel_requested": "requested_at",
    "order.release_requested": "requested_at",
    "order.expired": "expired_at",
    "allocation.preempted": "preempted_at",
    "environment.failed": "failed_at",
    "environment.quarantined": "quarantined_at",
}
Usage = dict[tuple[str, str], int | Fraction]
"""Card-microseconds by (meter, accelerator), slices as the exact part of a card; only what is not zero."""


def misbilled(orders: Mapping[str, Sequence[Fact]]) -> Iterator[str]:
    """Compare what is recorded of each order with what its instants say."""
    for order, facts in orders.items():
        if (said := recorded(facts)) != (right := billed(facts)):
            yield f"order {order}: recorded {dict(said)}, right is {dict(right)}"


def billed(facts: Sequence[Fact]) -> Usage:
    """Return the usage of an order: held while it had its cards, billable from READY to its end, on each of its
    allocations. Of what still runs, as far as it is recorded: closed months, without a hole and once."""
    usage: Usage = defaultdict(int)
    for one in (fact for fact in facts if fact.type == "allocation.allocated"):
        own = [fact for fact in facts if fact.data.get("allocation") in (None, one.data["allocation"])]
        for key, value in _of_one(own).items():
            usage[key] += value
    return usage


def _of_one(facts: Sequence[Fact]) -> Usage:
    usage: Usage = defaultdict(int)
    allocated, returned = (
        _at(facts, "allocation.allocated", "allocated_at"),
        _at(facts, "allocation.returned", "returned_at"),
    )
    ready = _at(facts, "environment.ready", "ready_at")
    ends = [at for kind, name in _BILL_ENDS.items() if (at := _at(facts, kind, name))]
    for accelerator, cards in _cards(facts).items():
        if allocated and (until := returned or _reached(facts, "held")):
            usage["held", accelerator] = cards * _us(allocated, until)
        if ready and (until := min([*ends, returned] if returned else ends) if ends else _reached(facts, "billable")):
            usage["billable", accelerator] = cards * _us(ready, until)
    return {key: used for key, used in usage.items() if used}


def recorded(facts: Sequence[Fact]) -> Usage:
    """Return what the topic `usage` says of an order."""
    usage: Usage = defaultdict(int)
    for fact in facts:
        sign = {"usage.recorded": 1, "usage.corrected": -1}.get(fact.type, 0)
        if sign:
            share = Fraction(fact.data.get("share") or 1)
            usage[fact.data["meter"], fact.data["accelerator"]] += sign * fact.data["card_us"] * share
    return {key: used for key, used in usage.items() if used}


def _cards(facts: Sequence[Fact]) -> dict[str, int | Fraction]:
    cards: dict[str, int | Fraction] = defaultdict(int)
    for fact in facts:
        if fact.type == "allocation.allocated":
            for unit in fact.data["units"]:
                share = Fraction(unit["slice"]["share"]) if unit.get("slice") else 1
                cards[unit["accelerator"]] += len(unit["cards"]) * share
    return cards


def _at(facts: Sequence[Fact], kind: str, name: str) -> datetime | None:
    return min((datetime.fromisoformat(fact.data[name]) for fact in facts if fact.type == kind), default=None)


def _reached(facts: Sequence[Fact], meter: str) -> datetime | None:
    lines = (fact.data for fact in facts if fact.type == "usage.recorded" and fact.data["meter"] == meter)
    return max((datetime.fromisoformat(line["to_at"]) for line in lines), default=None)


def _us(start: datetime, end: datetime) -> int:
    return max(end - start, timedelta(0)) // timedelta(microseconds=1)
