"""The price of an order is that of the instant of use, to the last microsecond."""

from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_catalog.billing import amount, money
from qm_catalog.projections import Price
from qm_catalog.request_record import Interval
from tests.unit.catalog.walk import at


def used(start: float, end: float, cards: int = 2) -> Interval:
    return Interval(f"{start}-{end}", at(start), at(end), round((end - start) * 60_000_000) * cards)


def price(minute: float, per_card_hour: str) -> Price:
    return Price(at(minute), Decimal(per_card_hour), "EUR")


def test_an_hour_on_two_cards_costs_two_card_hours() -> None:
    assert money(amount([used(0, 60)], [price(0, "2.5")])) == "5.000000000"


def test_a_new_price_holds_from_its_instant_on() -> None:
    assert amount([used(0, 60)], [price(-9, "2"), price(45, "4")]) == Fraction(5)


def test_before_the_first_price_the_first_holds() -> None:
    assert amount([used(0, 60)], [price(30, "2"), price(90, "8")]) == Fraction(4)


def test_an_empty_interval_costs_nothing() -> None:
    assert amount([used(5, 5)], [price(0, "2")]) == 0


@settings(derandomize=True, max_examples=200)
@given(st.lists(st.integers(0, 600), min_size=1, max_size=6), st.integers(0, 600), st.integers(1, 500))
def test_cutting_an_interval_in_two_changes_no_price(changes: list[int], cut: int, length: int) -> None:
    prices = [price(minute, str(n + 1)) for n, minute in enumerate(sorted(changes))]
    middle = min(cut, length)
    assert amount([used(0, middle), used(middle, length)], prices) == amount([used(0, length)], prices)
