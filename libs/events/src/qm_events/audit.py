"""The audit fact: one for every mutating call by a known caller, on the topic of the service that was called."""

from typing import Literal

from qm_events.envelope import EventData, UtcTime


class AccessAudited(EventData):
    """Who called what, and what came of it. Each service registers its own subclass on its own topic."""

    actor: str
    token: str | None = None
    """The id (`jti`) of the token; never the token."""
    action: str
    """Method and route template, `POST /v1/orders/{order}/release`."""
    resource: str
    """The stream that the call was about."""
    decision: Literal["allowed", "refused"]
    code: str | None = None
    """The problem code of a refusal."""
    before_version: int
    after_version: int
    audited_at: UtcTime
