"""The manual clock of the embedded product: it stands until moved, survives a restart, and knows what is due next."""

from datetime import datetime, timedelta
from pathlib import Path

from qm_service.clock import ManualClock

START = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


class StoredClock(ManualClock):
    """A manual clock in a file. `next_due` lets a move stop at each instant at which somebody wants to act."""

    def __init__(self, path: Path) -> None:
        super().__init__(datetime.fromisoformat(path.read_text()) if path.exists() else START)
        self._path = path
        self._waits: dict[object, datetime] = {}

    def set(self, at: datetime) -> None:
        """Move to an aware instant, and remember it."""
        draft = self._path.with_suffix(".new")
        draft.write_text(at.isoformat())
        draft.replace(self._path)
        super().set(at)

    def advance(self, by: timedelta) -> None:
        """Move by a span."""
        self.set(self.now() + by)

    async def wait(self, until: datetime | None, limit_seconds: float) -> None:
        """Return at `until`, when the clock was moved, or after `limit_seconds` of real time."""
        if until is None:
            await super().wait(until, limit_seconds)
            return
        mark = object()
        self._waits[mark] = until
        try:
            await super().wait(until, limit_seconds)
        finally:
            del self._waits[mark]

    def next_due(self) -> datetime | None:
        """Return the earliest instant that somebody waits for; None if nobody does."""
        return min(self._waits.values(), default=None)
