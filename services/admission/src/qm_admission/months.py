"""Calendar months in a tenant's zone, as instants. Pure, in whole microseconds.

A month is what the calendar says in the zone: it is an hour shorter or longer where the clock is changed in it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MICROSECOND = timedelta(microseconds=1)


def month_of(at: datetime, zone: str) -> str:
    """Return the month of an instant, as `2026-06`."""
    local = at.astimezone(_zone(zone))
    return f"{local.year:04}-{local.month:02}"


@lru_cache(maxsize=4_096)
def bounds(month: str, zone: str) -> tuple[datetime, datetime]:
    """Return the first instant of a month and that of the next, in UTC."""
    year, number = int(month[:4]), int(month[5:])
    following = (year + number // 12, number % 12 + 1)
    return _first(year, number, zone), _first(*following, zone)


def month_end(at: datetime, zone: str) -> datetime:
    """Return when the month of an instant ends."""
    return bounds(month_of(at, zone), zone)[1]


def pieces(start: datetime, end: datetime, zone: str) -> Iterator[tuple[str, datetime, datetime]]:
    """Cut [start, end) at the ends of months; yield (month, from, to). Nothing where it is empty."""
    while start < end:
        month = month_of(start, zone)
        until = min(end, bounds(month, zone)[1])
        yield month, start, until
        start = until


def micros(span: timedelta) -> int:
    """Return a span in microseconds."""
    return span // _MICROSECOND


def _first(year: int, month: int, zone: str) -> datetime:
    return datetime(year, month, 1, tzinfo=_zone(zone)).astimezone(UTC)


@lru_cache(maxsize=1_024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        # The catalog takes no such zone; a fact that names one all the same must not stop a stream.
        return ZoneInfo("UTC")
