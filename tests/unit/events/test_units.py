"""Card-hours in decimal and as a ratio, from whole microseconds."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from qm_events.units import MICROSECONDS_PER_HOUR, Cards, DnsLabel, card_hours, card_hours_ratio


@pytest.mark.parametrize(
    ("card_us", "decimal", "ratio"),
    [
        (0, "0.000000000", "0/1"),
        (1, "0.000000000", "1/3600000000"),
        (MICROSECONDS_PER_HOUR, "1.000000000", "1/1"),
        (MICROSECONDS_PER_HOUR // 7, "0.142857143", "257142857/1800000000"),
        (8 * 90 * 60 * 10**6, "12.000000000", "12/1"),
        (10**24, "277777777777777.777777778", "2500000000000000/9"),
    ],
)
def test_examples(card_us, decimal, ratio):
    assert card_hours(card_us) == decimal
    assert card_hours_ratio(card_us) == ratio


@given(st.integers(0, 10**24))
def test_the_ratio_is_exact_and_the_decimal_is_the_nearest(card_us):
    exact = Fraction(card_us, MICROSECONDS_PER_HOUR)
    assert Fraction(card_hours_ratio(card_us)) == exact
    assert abs(Fraction(Decimal(card_hours(card_us))) - exact) <= Fraction(1, 2 * 10**9)


def test_a_tie_is_rounded_to_the_even_neighbour():
    assert [card_hours(us) for us in (9, 27)] == ["0.000000002", "0.000000008"]


@pytest.mark.parametrize("value", [0, 100_001, 1.0, True, "1"])
def test_a_number_of_cards_is_a_whole_number_within_bounds(value):
    with pytest.raises(ValidationError):
        TypeAdapter(Cards).validate_python(value)


@pytest.mark.parametrize("value", ["", "-a", "a-", "A", "a.b", "a" * 64, "a\n"])
def test_a_name_is_a_dns_label(value):
    with pytest.raises(ValidationError):
        TypeAdapter(DnsLabel).validate_python(value)
