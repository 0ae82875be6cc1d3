"""Time and new names: the only caller of the machine's clock and of its randomness."""

import asyncio
import os
import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from uuid import UUID

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_POLL_SECONDS = 0.01


class Clock(Protocol):
    """What time it is."""

    def now(self) -> datetime:
        """Return the instant, in UTC."""

    async def wait(self, until: datetime | None, limit_seconds: float) -> None:
        """Return when `until` is reached, when the clock was moved, or after `limit_seconds` of real time."""


class WallClock:
    """The time of the machine."""

    def now(self) -> datetime:
        """Return the instant, in UTC."""
        return datetime.now(UTC)

    async def wait(self, until: datetime | None, limit_seconds: float) -> None:
        """Sleep until `until`, at most `limit_seconds`."""
        left = limit_seconds if until is None else (until - self.now()).total_seconds()
        await asyncio.sleep(min(max(left, 0.0), limit_seconds))


class ManualClock:
    """A time that stands until it is moved, forwards or backwards."""

    def __init__(self, at: datetime = _EPOCH) -> None:
        self._now = at.astimezone(UTC)
        self._moved = asyncio.Event()

    def now(self) -> datetime:
        """Return the instant to which the clock was set."""
        return self._now

    def set(self, at: datetime) -> None:
        """Move to an aware instant; everyone who waits looks again."""
        self._now = at.astimezone(UTC)
        self._moved.set()
        self._moved = asyncio.Event()

    def advance(self, by: timedelta) -> None:
        """Move by a span."""
        self.set(self._now + by)

    async def wait(self, until: datetime | None, limit_seconds: float) -> None:
        """Return when `until` is reached, when the clock was moved or after `limit_seconds` of real time."""
        if until is not None and until <= self._now:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                await self._moved.wait()


class FileClock:
    """A manual time that several processes share: an ISO instant in a small file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._now = _EPOCH
        if not path.exists():
            self.set(_EPOCH)

    def now(self) -> datetime:
        """Return the instant in the file."""
        stat = self._path.stat()
        # Every move replaces the file, so its number tells moves apart that fall into one tick of the file system.
        if (stamp := (stat.st_ino, stat.st_mtime_ns)) != self._stamp:
            self._now = datetime.fromisoformat(self._path.read_text().strip()).astimezone(UTC)
            self._stamp = stamp
        return self._now

    def set(self, at: datetime) -> None:
        """Move all processes to an aware instant."""
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(at.astimezone(UTC).isoformat())
        temporary.replace(self._path)

    def advance(self, by: timedelta) -> None:
        """Move by a span."""
        self.set(self.now() + by)

    async def wait(self, until: datetime | None, limit_seconds: float) -> None:
        """Return when the file says `until`, when it was changed, or after `limit_seconds` of real time."""
        start, deadline = self.now(), time.monotonic() + limit_seconds
        # Another process moves the file: there is no event to wait for.
        while (now := self.now()) == start and (until is None or now < until) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(min(_POLL_SECONDS, limit_seconds))


def clock_from(url: str) -> Clock:
    """Return the clock that `wall`, `manual` or `manual:/path/of/file` names. Raises ValueError."""
    kind, _, path = url.partition(":")
    if kind == "manual":
        return FileClock(Path(path)) if path else ManualClock()
    if url == "wall":
        return WallClock()
    raise ValueError(f"{url!r} names no clock: wall, manual or manual:/path/of/file")


_last = 0


def new_id() -> str:
    """Return a new UUIDv7: ids of one process sort by the order in which they were made."""
    global _last
    # 48 bits of milliseconds and 12 bits of their fraction; two calls in one tick count on.
    nanoseconds = time.time_ns()
    ticks = (nanoseconds // 1_000_000) << 12 | (nanoseconds % 1_000_000) * 4096 // 1_000_000
    _last = max(ticks, _last + 1)
    high = (_last >> 12) << 16 | 0x7000 | (_last & 0xFFF)
    return str(UUID(int=high << 64 | 0b10 << 62 | secrets.randbits(62)))
