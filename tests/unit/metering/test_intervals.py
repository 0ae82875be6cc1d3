"""The arithmetic by itself."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from qm_metering.intervals import Span, chain, clipped_us, instant, micros


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_instant_survives_the_way_to_microseconds_and_back(at):
    assert instant(micros(at)) == at


def test_an_instant_of_another_zone_is_the_same_instant():
    seoul = datetime(2026, 7, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    assert micros(seoul) == micros(datetime(2026, 7, 1, tzinfo=UTC))


def test_what_runs_reaches_to_now_and_not_beyond():
    assert clipped_us(Span(10), Span(0, 100), 30) == 20
    assert clipped_us(Span(10), Span(0, 20), 30) == 10
    assert clipped_us(Span(10), Span(0, 100), 5) == 0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.none() | st.integers(0, 9))
def test_a_chain_has_no_hole_and_no_negative_span(marks, stop):
    spans = chain(marks, stop)
    assert all(span.end_us is None or span.end_us >= span.start_us for span in spans)
    assert all(a.end_us == b.start_us for a, b in pairwise(spans))
    assert spans[-1].end_us == (None if stop is None else max(stop, marks[0]))
