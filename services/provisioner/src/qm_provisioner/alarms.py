"""Waiting on the product's clock: one task sleeps until the earliest alarm, whoever set it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush

from qm_service.clock import Clock

_LOOK_SECONDS = 1.0
"""How late an alarm may ring where the clock was moved without telling those who wait."""
_NEVER = datetime.max.replace(tzinfo=UTC)
_SLACK = 1_000
"""Cancelled alarms that may lie in the heap."""


class Alarm:
    """Something to happen at an instant."""

    __slots__ = ("at", "ring")

    def __init__(self, at: datetime, ring: Callable[[], None]) -> None:
        self.at = at
        self.ring: Callable[[], None] | None = ring

    def __lt__(self, other: "Alarm") -> bool:
        return self.at < other.at


class Alarms:
    """All alarms of a process. Times of a clock that stands still are reached when it is moved."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Alarm] = []
        self._cancelled = 0
        self._sleepers: set[Alarm] = set()
        self._nudge = asyncio.Event()
        self._awaited: datetime | None = None
        """The instant for which the clock is asked right now; None while nobody asks."""

    def now(self) -> datetime:
        """Return the instant of the clock."""
        return self._clock.now()

    def set(self, at: datetime, ring: Callable[[], None]) -> Alarm:
        """Call `ring` once the clock shows `at` or later."""
        alarm = Alarm(at, ring)
        heappush(self._heap, alarm)
        if self._heap[0] is alarm:
            self._nudge.set()
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Let it never happen; once it did, this does nothing."""
        if alarm.ring is None:
            return
        alarm.ring = None
        self._cancelled += 1
        if self._cancelled > _SLACK and self._cancelled * 2 > len(self._heap):
            self._heap = [alarm for alarm in self._heap if alarm.ring is not None]
            self._cancelled = 0
            heapify(self._heap)

    async def until(self, at: datetime) -> None:
        """Return once the clock shows `at` or later; at once if it does so now."""
        if at <= self.now():
            return
        reached = asyncio.Event()
        alarm = self.set(at, reached.set)
        self._sleepers.add(alarm)
        try:
            await reached.wait()
        finally:
            self.cancel(alarm)
            self._sleepers.discard(alarm)

    def asleep(self) -> int:
        """Return how many wait in `until` for an instant that is still to come."""
        now = self.now()
        return sum(alarm.at > now for alarm in self._sleepers)

    def in_step(self) -> bool:
        """Tell whether the clock is asked for the earliest alarm, which is still to come: else whoever moves it would
        pass that instant by."""
        if self._awaited is None or not self._heap:
            return self._awaited is not None
        return self._heap[0].at >= self._awaited and self._heap[0].at > self.now()

    async def run(self) -> None:
        """Ring what is due, for ever."""
        while True:
            self._nudge.clear()
            self._ring_due()
            await self._wait(self._heap[0].at if self._heap else None)

    def _ring_due(self) -> None:
        now = self.now()
        while self._heap and (self._heap[0].at <= now or self._heap[0].ring is None):
            alarm = heappop(self._heap)
            if alarm.ring is None:
                self._cancelled -= 1
            else:
                ring, alarm.ring = alarm.ring, None
                ring()

    async def _wait(self, until: datetime | None) -> None:
        """Wait for the instant, for a move of the clock or for an earlier alarm."""
        waits = [
            asyncio.ensure_future(self._clock.wait(until, _LOOK_SECONDS)),
            asyncio.ensure_future(self._nudge.wait()),
        ]
        try:
            await asyncio.sleep(0)  # now the clock has been asked
            self._awaited = until or _NEVER
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._awaited = None
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
