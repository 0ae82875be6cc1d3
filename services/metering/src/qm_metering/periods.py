"""The months of a tenant: open, closing, closed. Streams `period/<tenant>`. Pure.

A month that is closed is never edited: what is learnt of it later is reported in the first month that is open, naming
the month of use. While it is closing, what still runs is recorded up to its end; then it is sealed with a digest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import trunc
from typing import Any, Literal

from qm_events.envelope import utc_text
from qm_events.metering import PeriodClosed, PeriodClosing
from qm_events.specs import Value
from qm_events.units import SHARES_OF_A_CARD
from qm_metering.intervals import instant
from qm_metering.months import Zones, bounds, following, zone_name
from qm_service.model import Context, Decider, Decision, Docs, Rejected

PERIODS = "periods"

State = Literal["open", "closing", "closed"]


class Period(Value):
    """A month of a tenant with the sums of the lines that are reported in it."""

    tenant: str
    period: str
    state: State = "open"
    lines: int = 0
    """All that were ever written, corrections included."""
    held_us: int = 0
    billable_us: int = 0
    held_parts: int = 0
    """Of slices, in 1/126,000 of a card-microsecond, as the next."""
    billable_parts: int = 0
    timezone: str | None = None
    from_us: int | None = None
    to_us: int | None = None
    """Fixed when it began to close."""
    digest: str | None = None
    closed_us: int | None = None

    @property
    def held(self) -> Fraction:
        """What was held, in card-microseconds."""
        return self.held_us + Fraction(self.held_parts, SHARES_OF_A_CARD)

    @property
    def billable(self) -> Fraction:
        """What was billable, in card-microseconds."""
        return self.billable_us + Fraction(self.billable_parts, SHARES_OF_A_CARD)


@dataclass(frozen=True, slots=True)
class BeginClosing:
    """Take no new time into the month: record what runs up to its end."""

    tenant: str
    period: str
    zones: Zones


@dataclass(frozen=True, slots=True)
class Seal:
    """Close it for good, if it still has exactly the lines that the digest was taken over."""

    tenant: str
    period: str
    lines: int
    digest: str


States = Mapping[str, State]
"""State of a stream `period/<tenant>`: by month; one that is not there is open."""


def period_key(tenant: str, month: str) -> str:
    """Return the key of the document of a month."""
    return f"{tenant}/{month}"


def reported_in(docs: Docs, tenant: str, month: str) -> str:
    """Return the month on whose bill a line of `month` goes: itself, or the first after it that is not closed."""
    known = docs.resident(PERIODS)
    while (doc := known.get(period_key(tenant, month))) is not None and doc.state == "closed":
        month = following(month)
    return month


def _begin(states: States, command: BeginClosing, ctx: Context) -> Decision:
    if command.period in states:
        return []
    start_us, end_us = bounds(command.period, command.zones)
    if (now := ctx.now) < instant(end_us):
        detail = f"{command.period} ends at {utc_text(instant(end_us))}; it is {utc_text(now)}."
        return Rejected("period-not-over", detail)
    return [
        PeriodClosing(
            tenant=command.tenant,
            period=command.period,
            timezone=zone_name(command.period, command.zones),
            from_at=instant(start_us),
            to_at=instant(end_us),
            closing_at=now,
        )
    ]


def _seal(states: States, command: Seal, ctx: Context) -> Decision:
    if states.get(command.period) != "closing":
        return []
    doc: Period = ctx.docs.resident(PERIODS)[period_key(command.tenant, command.period)]
    if doc.lines != command.lines or command.tenant in ctx.index.tenants_behind():
        return Rejected("period-not-ready", f"Lines of {command.period} were on their way while it was closed.")
    return [
        PeriodClosed(
            tenant=command.tenant,
            period=command.period,
            lines=doc.lines,
            held_card_us=trunc(doc.held),
            billable_card_us=trunc(doc.billable),
            digest=command.digest,
            closed_at=ctx.now,
        )
    ]


def decide(states: States, command: BeginClosing | Seal, ctx: Context) -> Decision:
    """Answer a command on a month; what is closed stays closed."""
    return _begin(states, command, ctx) if isinstance(command, BeginClosing) else _seal(states, command, ctx)


def evolve(states: States, fact: Any) -> States:
    """Fold one fact of the stream."""
    return {**states, fact.period: "closing" if isinstance(fact, PeriodClosing) else "closed"}


PERIOD: Decider[States] = Decider(kind="period", initial={}, decide=decide, evolve=evolve)
