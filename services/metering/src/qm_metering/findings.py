"""What does not fit together: in the facts of an order, and between what the services say of the same cards. Pure.

A finding names the service that has to say something. Metering never invents the fact that is missing.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from qm_metering.fleet import Claim
from qm_metering.intervals import instant
from qm_metering.policy import ENDS, Holding, Kind, OrderUsage, anomalies, moments_of

SETTLING_US = 600_000_000
"""How long two topics may say different things: no order is promised between them."""
RETURNING_US = 3_600_000_000
"""How long cards may be on their way back, as the scheduler sees it too."""
Owner = Literal["catalog", "scheduler", "provisioner", "operator"]
OWNERS: Mapping[Kind, Owner] = {
    Kind.ALLOCATED: "scheduler",
    Kind.RETURNED: "scheduler",
    Kind.PREEMPTED: "scheduler",
    Kind.CANCELLED: "catalog",
    Kind.RELEASED: "catalog",
    Kind.EXPIRED: "catalog",
}
"""Who says what; the rest is said by the provisioner."""


class Finding(BaseModel):
    """Something that cannot be, or that somebody still has to say."""

    kind: Literal[
        "not_read",
        "missed_start",
        "runaway",
        "drift",
        "clock_regression",
        "conflicting_facts",
        "end_missing",
        "future_stamp",
    ]
    """`runaway`: the bill has ended and the cards do not come back, or they are back and nobody said so of the order.
    `missed_start`: cards are held for an allocation that nobody told of. `drift`: the cards of an allocation are not
    those that are held. `not_read`: a partition waits for a fact that is missing or cannot be read."""
    owner: Owner
    """Who has to say what is missing."""
    order: str | None
    allocation: str | None
    fact: str | None
    """The id of the fact at fault, where there is one."""
    since: datetime | None
    detail: str


def findings(
    orders: Mapping[str, OrderUsage], claims: Mapping[str, Claim], halted: Mapping[str, str], now_us: int
) -> Iterator[Finding]:
    """Yield what is wrong with what is live, in a fixed order. `halted`: partition -> why it is not read."""
    for place, why in sorted(halted.items()):
        yield _finding("not_read", "operator", detail=f"{place}: {why}")
    held: dict[str, list[Claim]] = {}
    for _, claim in sorted(claims.items()):
        held.setdefault(claim.allocation, []).append(claim)
    known = {holding.allocation for order in orders.values() for holding in order.holdings}
    for name, usage in sorted(orders.items()):
        yield from _of_facts(usage)
        for holding in usage.holdings:
            if not moments_of(usage, holding, Kind.RETURNED):
                yield from _of_holding(name, usage, holding, held.get(holding.allocation, []), now_us)
    for allocation, found in sorted(held.items()):
        first = min(claim.from_us for claim in found)
        if allocation not in known and now_us - first > SETTLING_US:
            detail = "Cards are held, and no fact on `allocations` says for whom: they are not metered."
            yield _finding("missed_start", "scheduler", found[0].order, allocation, since_us=first, detail=detail)


def _of_facts(usage: OrderUsage) -> Iterator[Finding]:
    kinds = {moment.fact: moment.kind for moment in (*usage.moments, *usage.apart)}
    for it in anomalies(usage):
        kind = kinds.get(it.fact)
        owner: Owner = (
            "catalog" if it.code == "end_missing" else OWNERS.get(kind, "provisioner") if kind else "scheduler"
        )
        yield _finding(
            it.code,
            "catalog" if it.code == "end_missing" else owner,
            usage.order,
            it.allocation,
            fact=it.fact,
            detail=it.detail,
        )


def _of_holding(order: str, usage: OrderUsage, holding: Holding, claims: list[Claim], now_us: int) -> Iterator[Finding]:
    ends = moments_of(usage, holding, *ENDS)
    if ends and now_us - max(ends[0].at_us, holding.allocated.at_us) > RETURNING_US:
        detail = "The bill has ended more than an hour ago, and nobody says that the cards are back."
        fact, since_us = ends[0].fact, ends[0].at_us
        yield _finding("runaway", "provisioner", order, holding.allocation, fact=fact, since_us=since_us, detail=detail)
    if now_us - holding.allocated.at_us <= SETTLING_US:
        return
    seen = sum(len(claim.cards) for claim in claims)
    if not claims:
        detail = "The fleet holds nothing for the allocation, and no fact ends it."
        yield _finding("runaway", "scheduler", order, holding.allocation, detail=detail)
    elif seen != holding.total:
        detail = f"It was given {holding.total} cards; the fleet holds {seen}."
        yield _finding("drift", "scheduler", order, holding.allocation, detail=detail)


def _finding(
    kind: str,
    owner: Owner,
    order: str | None = None,
    allocation: str | None = None,
    *,
    detail: str,
    fact: str | None = None,
    since_us: int | None = None,
) -> Finding:
    since = None if since_us is None else instant(since_us)
    return Finding.model_validate(
        {"kind": kind, "owner": owner, "order": order, "allocation": allocation, "fact": fact, "since": since}
        | {"detail": detail}
    )
