"""The problems that only metering raises."""

from qm_service.problem import ProblemError


class WindowReversed(ProblemError):
    """`from` lies after `to`."""

    code, status, title = "window-reversed", 422, "The window ends before it begins"
    remedy = "Send a `from` that is not after `to`; without `to` the window ends now."


class OfferingUnknown(ProblemError):
    """A price is set for an offering that the catalogue does not have."""

    code, status, title = "offering-unknown", 422, "There is no such offering"
    field = "offering"
    remedy = "See GET /v1/prices for the offerings; publish it first with POST /v1/offerings."


class PriceInThePast(ProblemError):
    """A price would change what was used already."""

    code, status, title = "price-in-the-past", 409, "The price would begin in the past"
    field = "from_at"
    remedy = "Let it begin now or later."


class PeriodNotOver(ProblemError):
    """A month is closed before its end."""

    code, status, title = "period-not-over", 409, "The month is not over"
    remedy = "Close it after its end in the zone of the tenant; it closes by itself three days after."


class PeriodNotReady(ProblemError):
    """Facts of the month may still be unread, or lines of it are on their way."""

    code, status, title = "period-not-ready", 409, "The month cannot be closed yet"
    remedy = "See /readyz for what is not read; then close it again. It closes by itself as soon as it can."
