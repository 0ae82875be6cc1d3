"""Months in the zone of a tenant: to the hour where clocks are changed, without a seam where the zone is."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm_metering.intervals import instant, micros
from qm_metering.months import UTC_ALWAYS, before, bounds, cut, following, month_of

HOUR_US = 3_600_000_000
NAMES = ("Europe/Berlin", "America/New_York", "Asia/Seoul", "Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC")
INSTANT = st.integers(micros(datetime(2024, 1, 1, tzinfo=UTC)), micros(datetime(2028, 1, 1, tzinfo=UTC)))
HISTORY = st.lists(st.tuples(INSTANT, st.sampled_from(NAMES)), min_size=1, max_size=4).map(lambda it: tuple(sorted(it)))


@pytest.mark.parametrize(
    ("zone", "month", "hours"),
    [
        ("Europe/Berlin", "2026-03", 743),
        ("Europe/Berlin", "2026-10", 745),
        ("America/New_York", "2026-03", 743),
        ("America/New_York", "2026-11", 721),
        ("Asia/Seoul", "2026-03", 744),
        ("UTC", "2028-02", 696),
    ],
)
def test_a_month_has_the_hours_that_the_calendar_gives_it(zone, month, hours):
    start, end = bounds(month, ((0, zone),))
    assert end - start == hours * HOUR_US


@pytest.mark.parametrize(("zone", "offset"), [("Pacific/Kiritimati", 14), ("Pacific/Pago_Pago", -11)])
def test_at_the_edges_of_the_day_a_month_begins_where_the_tenant_is(zone, offset):
    start, _ = bounds("2026-07", ((0, zone),))
    assert (micros(datetime(2026, 7, 1, tzinfo=UTC)) - start) == offset * HOUR_US


@given(HISTORY, INSTANT)
def test_every_instant_is_in_exactly_one_month_whatever_the_zones_were(zones, at_us):
    month = month_of(at_us, zones)
    start, end = bounds(month, zones)
    assert start <= at_us < end
    assert (bounds(before(month), zones)[1], bounds(following(month), zones)[0]) == (start, end)


@given(INSTANT, st.sampled_from(NAMES))
def test_a_month_is_the_one_that_the_wall_calendar_shows(at_us, zone):
    wall = instant(at_us).astimezone(ZoneInfo(zone))
    assert month_of(at_us, ((0, zone),)) == f"{wall:%Y-%m}"


def test_a_change_of_zone_takes_effect_with_the_month_after_it():
    june = micros(datetime(2026, 6, 10, tzinfo=UTC))
    moved = ((0, "UTC"), (june, "Asia/Seoul"))
    assert bounds("2026-06", moved) == bounds("2026-06", UTC_ALWAYS)
    assert bounds("2026-07", moved)[1] == bounds("2026-08", ((0, "Asia/Seoul"),))[0]


@given(HISTORY, INSTANT, INSTANT)
def test_cuts_at_months_touch_and_leave_nothing_out(zones, one, other):
    start, end = min(one, other), max(one, other)
    parts = list(cut(start, end, zones))
    assert sum(until - since for _, since, until in parts) == end - start
    assert all(month_of(since, zones) == month_of(until - 1, zones) == month for month, since, until in parts)
