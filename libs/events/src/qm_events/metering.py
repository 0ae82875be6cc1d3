"""Facts of metering: the topic `usage`, streams `usage/<allocation>`."""

from typing import Literal

from pydantic import Field

from qm_events.audit import AccessAudited
from qm_events.envelope import EventData, UtcTime
from qm_events.registry import USAGE, event
from qm_events.units import CardMicroseconds


@event("usage.recorded", version=1, topic=USAGE)
class UsageRecorded(EventData):
    """One interval of one meter of an allocation, closed and final: `card_us` = cards x (to - from), in microseconds.

    `record` is derived from allocation, meter and interval, so a replay or a duplicate changes nothing.
    """

    record: str
    allocation: str
    order: str
    meter: Literal["held", "billable"]
    accelerator: str
    service_model: str
    cards: int = Field(ge=1)
    from_at: UtcTime
    to_at: UtcTime
    card_us: CardMicroseconds


@event("usage.access_audited", version=1, topic=USAGE)
class UsageAccessAudited(AccessAudited):
    """A mutating call on metering; stream `audit-metering/<tenant>`."""
