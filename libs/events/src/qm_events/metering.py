"""Facts of metering: the topic `usage`, streams `usage/<allocation>`."""

from fractions import Fraction
from typing import Literal

from pydantic import Field

from qm_events.audit import AccessAudited
from qm_events.envelope import EventData, UtcTime
from qm_events.registry import USAGE, event
from qm_events.units import CardMicroseconds, Ratio


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


@event("usage.access_audited", version=1, topic=USAGE)
class UsageAccessAudited(AccessAudited):
    """A mutating call on metering; stream `audit-metering/<tenant>`."""
