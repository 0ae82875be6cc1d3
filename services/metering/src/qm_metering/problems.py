"""The problems that only metering raises."""

from qm_service.problem import ProblemError


class WindowReversed(ProblemError):
    """`from` lies after `to`."""

    code, status, title = "window-reversed", 422, "The window ends before it begins"
    remedy = "Send a `from` that is not after `to`; without `to` the window ends now."


class PeriodNotOver(ProblemError):
    """A month is closed before its end."""

    code, status, title = "period-not-over", 409, "The month is not over"
    remedy = "Close it after its end in the zone of the tenant; it closes by itself three days after."


class PeriodNotReady(ProblemError):
    """Facts of the month may still be unread, or lines of it are on their way."""

    code, status, title = "period-not-ready", 409, "The month cannot be closed yet"
    remedy = "See /readyz for what is not read; then close it again. It closes by itself as soon as it can."
