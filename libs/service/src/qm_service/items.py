"""What goes into a batch and what comes out of it."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qm_events import Event
from qm_service.commands import Cause, Outcome
from qm_service.log import Position, Record
from qm_service.memory import Key, Target
from qm_service.model import Act

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Command:
    """A command of a caller, who waits for `answer`."""

    act: Act
    cause: Cause
    answer: asyncio.Future[Outcome]
    expected: int | None = None
    refusal: str | None = None
    """The code with which the call was refused before it came here: to be audited, not carried out."""


@dataclass(slots=True, eq=False)
class Input:
    """A record of the log, or of the parked ones."""

    record: Record
    parked: int | None = None
    """Its row among the parked ones."""
    discard: bool = False
    """An operator wants it skipped for good."""
    error: str | None = None
    """What it failed with when it was tried."""
    event: Event[Any] | None = None
    targets: Sequence[Target] = ()
    acts: Sequence[Act] = ()

    def fail(self, error: Exception) -> None:
        """Note that it cannot be handled, and why."""
        _log.error("cannot handle %s of %s", self.record.position, self.record.subject, exc_info=error)
        self.error = f"{type(error).__name__}: {error}"
        self.event, self.targets, self.acts = None, (), ()


Item = Command | Input


@dataclass(slots=True)
class Changes:
    """What one transaction has to write, and whom to tell."""

    events: list[Event[Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    documents: dict[Key, Any | None] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    positions: Position = field(default_factory=dict)
    idempotency: list[dict[str, Any]] = field(default_factory=list)
    parked: list[dict[str, Any]] = field(default_factory=list)
    unparked: dict[int, str] = field(default_factory=dict)
    """Row among the parked ones -> its stream."""
    failed: list[dict[str, Any]] = field(default_factory=list)
    """Rows among the parked ones that failed again, and with what."""
    discarded: list[dict[str, Any]] = field(default_factory=list)
    halted: dict[tuple[str, int], str] = field(default_factory=dict)
    answers: list[tuple[Command, Outcome | Exception]] = field(default_factory=list)
    unsettled: bool = False

    def any(self) -> bool:
        """Tell whether there is something to write."""
        return bool(self.positions or self.seen or self.matters())

    def matters(self) -> bool:
        """Tell whether there is more to write than how far was read: that may wait, reading again does no harm."""
        return bool(self.rows or self.documents or self.parked or self.unparked or self.failed)
