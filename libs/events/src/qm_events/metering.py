"""Facts of metering: the topic `usage`. Streams `usage/<allocation>`, `period/<tenant>`, `price/<offering>` and
`budget/<tenant>`."""

from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from qm_events.audit import AccessAudited
from qm_events.envelope import EventData, UtcTime
from qm_events.registry import USAGE, event
from qm_events.specs import Text, Value
from qm_events.units import CardMicroseconds, DnsLabel, Ratio

Month = Annotated[str, StringConstraints(pattern=r"^(19|[2-8][0-9])[0-9]{2}-(0[1-9]|1[0-2])$")]
"""A calendar month in the zone of a tenant, as `2026-06`."""
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
PricePerCardHour = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=9)]


class UsageStretch(Value):
    """A part of a held line in one class, up to the next one; the facts that open and close it, by id."""

    counts_as: str
    payer: Literal["project", "platform"]
    from_at: UtcTime
    to_at: UtcTime
    opened_by: str
    closed_by: str | None = None
    """None: it went on beyond the line."""


class UsageRate(Value):
    """A part of a billable line at one price."""

    from_at: UtcTime
    to_at: UtcTime
    price_per_card_hour: PricePerCardHour
    currency: Currency
    offering: DnsLabel


class UsageLine(EventData):
    """One interval of one meter of an allocation on one accelerator: `card_us` = cards x (to - from), in microseconds.
    Where it held slices, `cards` counts them and each is `share` of a card: used was exactly `card_us` x `share`.

    `record` is derived from what the line says, so a replay or a duplicate changes nothing.
    """

    record: str
    allocation: str
    order: str
    meter: Literal["held", "billable"]
    accelerator: str
    service_model: str
    cards: int = Field(ge=1)
    share: Ratio | None = None
    from_at: UtcTime
    to_at: UtcTime
    card_us: CardMicroseconds
    specification: DnsLabel | None = None
    continues: bool | None = None
    """True: it ran before `from_at` too, where a month began."""
    goes_on: bool | None = None
    """True: it ran on after `to_at`, where a month ended."""
    period: Month | None = None
    """The month whose bill it is on."""
    used_in: Month | None = None
    """The month of use, where that one was closed before the line was known."""
    policy: int | None = None
    """The version of the table of classes that was in force."""
    began_by: str | None = None
    """Of a billable line: the id of the fact that began the stretch."""
    ended_by: str | None = None
    """Of a billable line: the id of the fact that ended it; None: a month or a price did."""
    stretches: tuple[UsageStretch, ...] | None = None
    """Of a held line: its classes; they touch and add up to it."""
    rates: tuple[UsageRate, ...] | None = None
    """Of a billable line: its prices; they touch and add up to it. None: it had no price."""

    @property
    def portion(self) -> int | Fraction:
        """The cards, slices as the exact part that they are."""
        return self.cards if self.share is None else self.cards * Fraction(self.share)


@event("usage.recorded", version=1, topic=USAGE)
class UsageRecorded(UsageLine):
    """The interval is closed: add it."""


@event("usage.corrected", version=1, topic=USAGE)
class UsageCorrected(UsageLine):
    """A late fact showed that the line `reverses` was wrong: take it off, exactly. What is right, if anything, is
    recorded in the same step."""

    reverses: str


@event("period.closing", version=1, topic=USAGE)
class PeriodClosing(EventData):
    """The month is over: what still runs is recorded up to its end. Its instants are fixed from here on."""

    tenant: DnsLabel
    period: Month
    timezone: str
    from_at: UtcTime
    to_at: UtcTime
    closing_at: UtcTime


@event("period.closed", version=1, topic=USAGE)
class PeriodClosed(EventData):
    """The month is final: what is learnt of it later is on the bill of a later month.

    `digest` is the SHA-256 over its lines in the order of their ids; how, says docs/how-to/close-a-month.md.
    """

    tenant: DnsLabel
    period: Month
    lines: int = Field(ge=0)
    held_card_us: int
    billable_card_us: int
    digest: str
    closed_at: UtcTime


@event("price.set", version=1, topic=USAGE)
class PriceSet(EventData):
    """An offering has another price from an instant on; it holds until the next one."""

    offering: DnsLabel
    price_per_card_hour: PricePerCardHour
    currency: Currency
    from_at: UtcTime
    locked_at_ready: bool | None = None
    """True: what is READY while it holds keeps it to its end."""
    set_at: UtcTime


@event("budget.set", version=1, topic=USAGE)
class BudgetSet(EventData):
    """What a tenant, or one of its projects, means to spend in a month, and at which parts of it to say so. It replaces
    the budget of that name."""

    tenant: DnsLabel
    budget: DnsLabel
    project: DnsLabel | None = None
    """None: all its projects together."""
    amount: PricePerCardHour
    currency: Currency
    thresholds: tuple[Annotated[int, Field(ge=1, le=1000, strict=True)], ...] = Field(min_length=1, max_length=10)
    """In percent of the amount, ascending."""
    set_at: UtcTime


@event("budget.threshold_reached", version=1, topic=USAGE)
class BudgetThresholdReached(EventData):
    """A threshold of a budget was reached in a month: said once, whatever becomes of the sum."""

    tenant: DnsLabel
    budget: DnsLabel
    project: DnsLabel | None = None
    period: Month
    percent: int
    spent: Text
    """What was recorded and what ran, in decimal with 9 places."""
    amount: PricePerCardHour
    currency: Currency
    reached_at: UtcTime


@event("usage.access_audited", version=1, topic=USAGE)
class UsageAccessAudited(AccessAudited):
    """A mutating call on metering; stream `audit-metering/<tenant>`."""
