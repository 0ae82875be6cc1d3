"""What it costs: the price of the instant of use, exact to the last digit, rounded once."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm_events import new_event
from qm_events.catalog import OfferingPublished
from qm_events.metering import PriceSet
from qm_metering.domain import RecordUsage, lines_of
from qm_metering.money import apportion, cost, decimal
from qm_metering.prices import BOOKS, Book, Price, book_of
from tests.unit.metering import facts
from tests.unit.metering.test_periods import JULY, call, running, world  # noqa: F401 - a fixture
from tests.unit.metering.test_service import Story, minute

HOUR = 3_600_000_000


def book(*prices: tuple[int, str], locked: bool = False) -> Book:
    base = Price(from_us=0, per_card_hour=Decimal(0), currency="EUR", locked_at_ready=locked)
    told = tuple(base.model_copy(update={"from_us": at, "per_card_hour": Decimal(it)}) for at, it in prices)
    return Book(offering="vm-8", specification="h100-8", service_model="vm", prices=told)


class Rated(facts.Metering):
    """The service with a price book."""

    book: Book | None = None

    def command(self, holding):
        return RecordUsage(lines_of(self.usage, holding, self.zones, self.closed_until_us, self.book))


def rated(a_book, *events):
    service = Rated()
    service.book = a_book
    lines = [event.data for event in service.feed(events).topic if event.data.meter == "billable"]
    return [(it.card_us // 8, str(it.rates[0].price_per_card_hour)) for it in lines]


USE = (facts.allocated(0), facts.ready(10), facts.released(50), facts.returned(60))


def test_a_price_that_changes_in_between_cuts_the_line_at_its_instant():
    assert rated(book((0, "1.5"), (30, "2")), *USE) == [(20, "1.5"), (20, "2")]


def test_before_the_first_price_the_first_holds():
    assert rated(book((40, "3")), *USE) == [(30, "3"), (10, "3")]


def test_a_price_that_is_locked_at_ready_holds_to_the_end():
    assert rated(book((0, "1.5"), (30, "2"), locked=True), *USE) == [(40, "1.5")]


def test_what_has_no_price_has_no_rate():
    service = facts.Metering().feed(USE)
    assert [event.data.rates for event in service.topic] == [None, None]


def test_the_offering_made_for_the_image_comes_first_then_by_name():
    holding = facts.Metering().feed(USE).usage.holdings[0].model_copy(update={"image": "torch"})
    base = book((0, "1"))
    books = [base, base.model_copy(update={"offering": "z", "images": ("torch",)})]
    assert book_of(books, holding).offering == "z"
    assert book_of(books, holding.model_copy(update={"image": None})).offering == "vm-8"
    assert book_of(books, holding.model_copy(update={"specification": "other"})) is None


PRICES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5)), min_size=1, max_size=5)


@given(PRICES, st.integers(0, 100), st.integers(1, 100))
def test_the_cost_is_that_of_every_microsecond_at_its_own_price(points, start, length):
    ordered = sorted(dict(points).items())
    a_book = book(*((at, str(price)) for at, price in ordered))
    parts = a_book.cut(start, start + length, start)
    exact = sum((cost(until - since, rate.price_per_card_hour) for since, until, rate in parts), Fraction(0))
    held = [[price for at, price in ordered if at <= us] or [ordered[0][1]] for us in range(start, start + length)]
    slow = sum(prices[-1] for prices in held)
    assert exact == Fraction(slow, HOUR)


def test_prices_of_two_topics_are_in_the_order_of_their_instants_whichever_came_first():
    published = OfferingPublished(
        name="vm-8", specification="h100-8", service_model="vm", price_per_card_hour=Decimal(1), currency="EUR"
    )
    later = PriceSet(
        offering="vm-8", price_per_card_hour=Decimal(2), currency="EUR", from_at=facts.at(50), set_at=facts.at(5)
    )
    events = [
        new_event("tenant/platform", 1, facts.at(3), "/test", published),
        new_event("price/vm-8", 1, facts.at(5), "/test", later),
    ]

    def folded(facts_in_order):
        doc = None
        for event in facts_in_order:
            doc = BOOKS.folds[type(event.data)].apply(doc, event)
        return doc

    assert folded(events) == folded(reversed(events))
    assert [(it.from_us, it.per_card_hour) for it in folded(events).prices] == [(3, 1), (50, 2)]


AMOUNTS = st.lists(st.fractions(-1000, 1000, max_denominator=997), max_size=20)


@given(AMOUNTS)
def test_rounded_lines_add_up_to_the_rounded_sum_and_none_is_off_by_a_unit(amounts):
    written = [Fraction(text) for text in apportion(amounts)]
    assert sum(written, Fraction(0)) == Fraction(decimal(sum(amounts, Fraction(0)), 2))
    assert all(abs(one - other) < Fraction(1, 100) for one, other in zip(written, amounts, strict=True))


def test_three_thirds_are_a_whole():
    assert apportion([Fraction(1, 3)] * 3) == ["0.34", "0.33", "0.33"]


@pytest.fixture
async def priced(world):  # noqa: F811
    offering = OfferingPublished(
        name="vm-8", specification="h100-8", service_model="vm", price_per_card_hour=Decimal("1.5"), currency="EUR"
    )
    # Told before anything else of the story.
    published = new_event("tenant/platform", 1, minute(-60), "/test", offering, tenant="platform")
    await world.publish(published)
    await world.settle()
    return world


async def set_price(world, **changes):  # noqa: F811
    body = {"offering": "vm-8", "price_per_card_hour": "3", "currency": "EUR", "from_at": minute(40).isoformat()}
    return await call(world, "olga", "POST", "/prices", body | changes)


async def test_usage_shows_what_it_cost_at_the_prices_of_its_instants(priced):
    assert (await set_price(priced)).status_code == 201
    await Story(priced).run("o-1", ready=10, end=70, back=90)
    totals = (await call(priced, "ada", "GET", "/usage")).json()["totals"]
    # Two cards, half an hour at 1.5 and half an hour at 3.
    assert totals["cost"] == [{"amount": "4.500000000", "currency": "EUR", "ratio": "9/2"}]
    await Story(priced).run("o-2", ready=10)
    priced.clock.set(minute(40))
    row = (await call(priced, "ada", "GET", "/usage?group_by=order")).json()["items"][1]
    assert row["cost"][0]["amount"] == "1.500000000"


async def test_a_price_is_not_set_for_the_past_nor_for_what_is_not_sold(priced):
    assert (await set_price(priced, from_at=minute(-1).isoformat())).json()["code"] == "price-in-the-past"
    assert (await set_price(priced, offering="none")).json()["code"] == "offering-unknown"
    for bad in ({"price_per_card_hour": "-1"}, {"price_per_card_hour": 1}, {"currency": "eur"}, {"from_at": "soon"}):
        assert (await set_price(priced, **bad)).json()["code"] == "validation-failed"
    body = {"offering": "vm-8", "price_per_card_hour": "3", "currency": "EUR", "from_at": minute(40).isoformat()}
    assert (await call(priced, "ada", "POST", "/prices", body)).status_code == 403


async def test_a_closed_month_does_not_move_with_a_new_price(priced):
    await running(priced)
    priced.clock.set(JULY)
    closed = (await call(priced, "olga", "POST", "/periods/acme.2026-06/close")).json()
    assert (await set_price(priced, from_at=JULY.isoformat())).status_code == 201
    assert (await call(priced, "olga", "POST", "/periods/acme.2026-06/close")).json() == closed
    june = "/usage?from=2026-06-01T00:00:00Z&to=2026-07-01T00:00:00Z"
    totals = (await call(priced, "ada", "GET", june)).json()["totals"]
    assert Fraction(totals["cost"][0]["ratio"]) == Fraction(totals["billable"]["card_hours_ratio"]) * Fraction("1.5")
