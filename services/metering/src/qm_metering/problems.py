"""The problems that only metering raises."""

from qm_service.problem import ProblemError


class WindowReversed(ProblemError):
    """`from` lies after `to`."""

    code, status, title = "window-reversed", 422, "The window ends before it begins"
    remedy = "Send a `from` that is not after `to`; without `to` the window ends now."
