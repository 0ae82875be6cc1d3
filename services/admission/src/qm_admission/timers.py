"""What is due when, by order: a heap that forgets lazily. Pure memory."""

from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True)
class Clock:
    """When something is to be done for an order, and whose it is."""

    tenant: str
    project: str | None
    at: datetime


class Timers:
    """The next instant of each order that has one."""

    def __init__(self) -> None:
        self._clocks: dict[str, Clock] = {}
        self._heap: list[tuple[datetime, str]] = []

    def follow(self, order: str, clock: Clock | None) -> None:
        """Set or forget the instant of an order."""
        if clock is None:
            self._clocks.pop(order, None)
        elif self._clocks.get(order) != clock:
            self._clocks[order] = clock
            heappush(self._heap, (clock.at, order))

    def next_at(self) -> datetime | None:
        """Return the next instant, or None."""
        while self._heap and not self._counts(*self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: datetime) -> list[tuple[str, Clock]]:
        """Return what is due by now, the earliest first, once."""
        due = []
        while (at := self.next_at()) and at <= now:
            order = heappop(self._heap)[1]
            due.append((order, self._clocks.pop(order)))
        return due

    def _counts(self, at: datetime, order: str) -> bool:
        clock = self._clocks.get(order)
        return clock is not None and clock.at == at
