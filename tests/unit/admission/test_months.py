"""Months as the calendar of a zone has them."""

from datetime import UTC, datetime, timedelta

import pytest

from qm_admission import hours, months

HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("zone", "month", "start", "end", "length"),
    [
        ("UTC", "2026-06", "2026-06-01T00:00", "2026-07-01T00:00", 720),
        ("Asia/Tokyo", "2026-06", "2026-05-31T15:00", "2026-06-30T15:00", 720),
        ("America/New_York", "2026-03", "2026-03-01T05:00", "2026-04-01T04:00", 743),
        ("America/New_York", "2026-11", "2026-11-01T04:00", "2026-12-01T05:00", 721),
        ("Europe/Berlin", "2026-03", "2026-02-28T23:00", "2026-03-31T22:00", 743),
        ("Europe/Berlin", "2026-10", "2026-09-30T22:00", "2026-10-31T23:00", 745),
        ("Asia/Kolkata", "2026-12", "2026-11-30T18:30", "2026-12-31T18:30", 744),
        ("Australia/Lord_Howe", "2026-04", "2026-03-31T13:00", "2026-04-30T13:30", 720.5),
        ("no/such-zone", "2026-02", "2026-02-01T00:00", "2026-03-01T00:00", 672),
    ],
)
def test_a_month_begins_and_ends_where_the_calendar_of_the_zone_says(
    zone: str, month: str, start: str, end: str, length: float
) -> None:
    first, following = months.bounds(month, zone)
    assert (first, following) == tuple(datetime.fromisoformat(f"{at}+00:00") for at in (start, end))
    assert months.month_of(first, zone) == month
    assert months.month_of(first - timedelta(microseconds=1), zone) < month
    assert months.month_of(following, zone) > month
    assert hours.held(2, first, following, zone) == {hours.key(month): int(2 * length * HOUR)}


def test_a_span_over_several_months_is_cut_at_each_and_loses_nothing() -> None:
    start, end = datetime(2026, 1, 31, 22, 59, 59, 1, tzinfo=UTC), datetime(2026, 4, 1, 7, tzinfo=UTC)
    cut = hours.held(3, start, end, "Europe/Berlin")
    assert list(cut) == [hours.key(f"2026-{month:02}") for month in (1, 2, 3, 4)]
    assert cut[hours.key("2026-01")] == 3 * 999_999
    assert cut[hours.key("2026-03")] == 3 * 743 * HOUR
    assert sum(cut.values()) == 3 * ((end - start) // timedelta(microseconds=1))


def test_an_empty_span_takes_nothing() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    assert hours.held(3, at, at, "UTC") == hours.held(3, at, at - timedelta(hours=1), "UTC") == {}
