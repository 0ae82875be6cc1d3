"""What a caller hands to the writer, and what comes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qm_events import Event
from qm_service.model import Rejected

SYSTEM = "system"
"""The actor of what nobody asked for."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Who asked, for a command that no fact caused."""

    actor: str = SYSTEM
    token: str | None = None
    tenant: str | None = None
    project: str | None = None
    correlation: str | None = None
    idempotency: str | None = None
    """Digest of tenant, route and Idempotency-Key."""
    request: str | None = None
    """Digest of the body."""
    traceparent: str | None = None
    action: str | None = None
    """Method and route template; where set, an audit fact is appended in the same transaction."""


NOT_THE_WRITER = "this process is not the writer, or its database is down"
NOBODY = Cause()
"""The product itself."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command led to. `replayed`: this Idempotency-Key was seen before, with the same body."""

    stream: str
    version: int
    """Of the stream, after the command; of a replayed one, after it was first carried out."""
    events: Sequence[Event[Any]]
    replayed: bool = False


class Refused(Exception):
    """The rules said no; nothing was changed."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(f"{rejected.code}: {rejected.detail}")
        self.rejected = rejected


class IdempotencyMismatch(Exception):
    """The Idempotency-Key was used before, with another body."""


class VersionConflict(Exception):
    """The stream is not at the version that was expected."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(f"{stream} is at version {actual}, not {expected}")
        self.expected = expected
        self.actual = actual


class Unavailable(Exception):
    """This process cannot write now: the database is down, or another process is the writer. Try again."""
