"""How it stands with a service: what readiness and metrics are made of."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

from qm_service.log import EventLog, LogUnavailable, Position
from qm_service.plan import Plan

_LOOK_SECONDS = 2.0
_STUCK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a topic the writer is."""

    events: int
    """Records that were not handled yet, also those that nobody can read while a foreign transaction is open."""
    age_seconds: float
    """How long the next record has been known to wait; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class Status:
    """`ready`: this process does its part now, as writer or as a healthy stand-by."""

    service: str
    ready: bool
    leader: bool
    epoch: int
    lag: Mapping[str, Lag]
    read: Mapping[str, int]
    """How many records of a topic it is past, all partitions together."""
    progress_age_seconds: float
    """Since the writer last finished a batch."""
    parked: int
    """Streams that wait for an operator."""
    halted: Mapping[str, str]
    """`topic/partition` -> why it is not read."""
    database_up: bool
    log_up: bool
    errors: tuple[str, ...] = ()


@dataclass(slots=True)
class Watch:
    """Collects what the loops meet."""

    plan: Plan
    log: EventLog
    _errors: dict[str, str] = field(default_factory=dict)
    _ends: Position = field(default_factory=dict)
    _blocked: Position = field(default_factory=dict)
    _position: Position = field(default_factory=dict)
    _behind: dict[str, float] = field(default_factory=dict)
    """Topic -> since when something waits there."""
    _readable: float | None = None
    """Since when there is something that could be read."""
    _progress: float = field(default_factory=monotonic)

    def trouble(self, where: str, error: Exception) -> None:
        """Note what is in the way."""
        self._errors[where] = f"{type(error).__name__}: {error}"

    def well(self, where: str) -> None:
        """Note that it is not any more."""
        self._errors.pop(where, None)

    def progress(self, position: Position) -> None:
        """Note that the writer finished a batch."""
        self._progress = monotonic()
        self._position = dict(position)
        self._compare()

    async def run(self) -> None:
        """Look at the ends of the topics from time to time."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Look at the ends of the topics."""
        try:
            # In this order: what is set free in between counts twice for a moment, but never not at all.
            blocked = await self.log.blocked()
            self._ends = await self.log.ends([topic.name for topic in self.plan.inputs])
            self._blocked = blocked
        except LogUnavailable as error:
            self.trouble("watch", error)
        else:
            self._compare()
            self.well("watch")

    def _compare(self) -> None:
        now, unread = monotonic(), self._unread()
        waiting = {topic for topic, events in self._lags(unread).items() if events}
        self._behind = {topic: self._behind.get(topic, now) for topic in waiting}
        self._readable = (self._readable or now) if any(unread.values()) else None

    def _unread(self) -> Position:
        return {place: max(end - self._position.get(place, end), 0) for place, end in self._ends.items()}

    def _lags(self, unread: Position) -> dict[str, int]:
        lags = {topic.name: 0 for topic in self.plan.inputs}
        for places in (unread, self._blocked):
            for (topic, _), events in places.items():
                # Another reader of the same log may have other topics blocked.
                if topic in lags:
                    lags[topic] += events
        return lags

    def _read(self) -> dict[str, int]:
        read = {topic.name: 0 for topic in self.plan.inputs}
        for (topic, _), offset in self._position.items():
            read[topic] += offset
        return read

    def status(
        self, *, leader: bool, epoch: int, parked: int, halted: Mapping[tuple[str, int], str], failure: str | None
    ) -> Status:
        """Sum up."""
        now = monotonic()
        lag = {
            topic: Lag(events, now - self._behind.get(topic, now) if events else 0.0)
            for topic, events in self._lags(self._unread()).items()
        }
        errors = dict(self._errors) | ({"writer": failure} if failure else {})
        # What a foreign transaction holds back is lag, but no fault of this process.
        stuck = now - max(self._readable or now, self._progress) > _STUCK_SECONDS
        return Status(
            service=self.plan.definition.name,
            ready=not errors and not stuck and not halted,
            leader=leader,
            epoch=epoch,
            lag=lag,
            read=self._read(),
            progress_age_seconds=now - self._progress,
            parked=parked,
            halted={f"{topic}/{partition}": why for (topic, partition), why in halted.items()},
            database_up=not any(text.startswith("DatabaseUnavailable") for text in errors.values()),
            log_up=not any(text.startswith("LogUnavailable") for text in errors.values()),
            errors=tuple(f"{where}: {text}" for where, text in errors.items()),
        )
