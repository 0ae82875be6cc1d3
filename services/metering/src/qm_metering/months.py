"""Calendar months in a tenant's zone, as whole microseconds in UTC. Pure.

A month ends where the calendar says so in the zone that was in force when it began, and the next begins at that very
instant: when a tenant moves to another zone, no instant is in two months or in none.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from qm_metering.intervals import instant, micros

Zones = tuple[tuple[int, str], ...]
"""(from when on, in microseconds; name of the zone), the oldest first. The first held ever before, too."""

UTC_ALWAYS: Zones = ((0, "UTC"),)


def following(month: str) -> str:
    """Return the month after a month."""
    year, number = int(month[:4]), int(month[5:])
    return f"{year + number // 12:04}-{number % 12 + 1:02}"


def before(month: str) -> str:
    """Return the month before a month."""
    year, number = int(month[:4]), int(month[5:])
    return f"{year - (number == 1):04}-{(number - 2) % 12 + 1:02}"


@lru_cache(maxsize=4_096)
def bounds(month: str, zones: Zones) -> tuple[int, int]:
    """Return the first instant of a month and that of the next."""
    return _end(before(month), zones), _end(month, zones)


def month_of(at_us: int, zones: Zones) -> str:
    """Return the month of an instant."""
    at = instant(at_us)
    month = f"{at.year:04}-{at.month:02}"
    while at_us < bounds(month, zones)[0]:
        month = before(month)
    while at_us >= bounds(month, zones)[1]:
        month = following(month)
    return month


def cut(start_us: int, end_us: int, zones: Zones) -> Iterator[tuple[str, int, int]]:
    """Cut [start, end) at the ends of months; yield (month, from, to). Nothing where it is empty."""
    while start_us < end_us:
        month = month_of(start_us, zones)
        until = min(end_us, bounds(month, zones)[1])
        yield month, start_us, until
        start_us = until


def months_until(start_us: int, until_us: int, zones: Zones) -> Iterator[str]:
    """Yield the months from that of an instant on that ended by another."""
    month = month_of(start_us, zones)
    while bounds(month, zones)[1] <= until_us:
        yield month
        month = following(month)


def zone_name(month: str, zones: Zones) -> str:
    """Return the zone that was in force when a month began in UTC."""
    began = micros(_first(month, "UTC"))
    name = zones[0][1]
    for since, then in zones:
        if since <= began:
            name = then
    return name


def _end(month: str, zones: Zones) -> int:
    return micros(_first(following(month), zone_name(month, zones)))


def _first(month: str, zone: str) -> datetime:
    return datetime(int(month[:4]), int(month[5:]), 1, tzinfo=_zone(zone)).astimezone(UTC)


@lru_cache(maxsize=1_024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        # The catalog takes no such zone; a fact that names one all the same must not stop a stream.
        return ZoneInfo("UTC")
