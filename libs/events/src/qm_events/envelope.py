"""What every fact travels in: CloudEvents 1.0 in structured JSON.

A stream is the ordered history of one thing as one service sees it (`order/<id>` of the catalog,
`allocation/<id>` of the scheduler). Its versions are 1..n without a hole; the id of a fact follows from stream
and version, so that a duplicate is a duplicate on every machine.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from qm_events.ids import event_id, stream_key


def _written_out(value: Any) -> Any:
    # A number would be read as seconds or as milliseconds, whichever seems likelier.
    if isinstance(value, datetime) or (isinstance(value, str) and value[4:5] == "-"):
        return value
    raise ValueError("a time is written as in 2026-06-30T23:30:00Z")


def _aware_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs a zone, as in 2026-06-30T23:30:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is beyond the calendar") from None


UtcTime = Annotated[datetime, BeforeValidator(_written_out), AfterValidator(_aware_utc)]
"""An instant: aware, kept in UTC, to the microsecond."""


def utc_text(at: datetime) -> str:
    """Return an instant, kept in UTC, as it stands in all texts and figures: with `Z`, as on the wire."""
    return at.isoformat().replace("+00:00", "Z")


class EventData(BaseModel):
    """Base of all facts: frozen, and an unknown field is an error when written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wire_type: ClassVar[str] = ""
    """The name on the wire, `order.submitted.v1`; set by `registry.event`."""
    topic: ClassVar[str] = ""


D = TypeVar("D", bound=EventData)


class Event(BaseModel, Generic[D]):
    """One fact with its envelope. `time` is when it was decided, never before the fact before it in its stream."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    specversion: str = "1.0"
    id: str
    source: str
    """The service that wrote it, `/quartermaster/<service>`."""
    type: str
    subject: str
    """The stream."""
    version: int = Field(ge=1)
    time: UtcTime
    datacontenttype: str = "application/json"
    tenant: str | None = None
    project: str | None = None
    correlation: str | None = None
    """The order, where there is one: the whole walk of an order shares it."""
    causation: str | None = None
    """The id of the fact that led to this one."""
    input: str | None = None
    """`topic/partition/offset` of that fact: a rebuilt service resumes after the last input that it named."""
    actor: str | None = None
    """Who asked: the subject of the token, or `system`."""
    token: str | None = None
    """The id (`jti`) of the token that was used; never the token."""
    idempotency: str | None = None
    """Digest of tenant, route and Idempotency-Key of the call that made this fact."""
    request: str | None = None
    """Digest of that call's body: the same key with another body is refused."""
    traceparent: str | None = None
    data: D

    @property
    def key(self) -> str:
        """The partition key."""
        return stream_key(self.subject)


# A copy of this costs a tenth of `model_construct`, and this is made for every fact of every order.
_BLANK: Event[Any] = Event.model_construct(
    id="", source="", type="", subject="", version=0, time=datetime(1970, 1, 1, tzinfo=UTC), data=EventData()
)


def new_event(stream: str, version: int, time: datetime, source: str, data: D, **attributes: Any) -> Event[D]:
    """Build the `version`-th fact of `stream`. The values are trusted: they come from our own code."""
    attributes |= {
        "id": event_id(stream, version),
        "source": source,
        "type": data.wire_type,
        "subject": stream,
        "version": version,
        "time": time,
        "data": data,
    }
    return _BLANK.model_copy(update=attributes)
