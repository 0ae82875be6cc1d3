"""Price books: what a card-hour of an offering costs from when on. Streams `price/<offering>`. Pure.

A price begins with its offering (`offering.published`) and is changed there or by `price.set`, which may be said ahead
of its day and never for the past: what was used was rated, and a closed total does not move with a new price.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from qm_events import Event
from qm_events.catalog import OfferingPublished
from qm_events.metering import PriceSet, UsageRate
from qm_events.specs import Value
from qm_metering.intervals import instant, micros
from qm_metering.policy import Holding
from qm_service.model import Context, Decider, Decision, Fold, Projection, Rejected


class Price(Value):
    """Of a card-hour, from an instant on."""

    from_us: int
    per_card_hour: Decimal
    currency: str
    locked_at_ready: bool = False


class Book(Value):
    """An offering and all its prices, the newest last. It may be known by a price before it is known itself."""

    offering: str
    specification: str | None = None
    service_model: str | None = None
    images: tuple[str, ...] = ()
    prices: tuple[Price, ...] = ()

    def at(self, at_us: int) -> Price | None:
        """Return the price at an instant; before the first, the first holds."""
        past = [price for price in self.prices if price.from_us <= at_us]
        return past[-1] if past else next(iter(self.prices), None)

    def cut(self, start_us: int, end_us: int, ready_us: int) -> Iterator[tuple[int, int, UsageRate | None]]:
        """Yield (from, to, rate) of a stretch: cut where the price changes, unless it was locked at READY."""
        locked = self.at(ready_us)
        changes = () if locked and locked.locked_at_ready else [price.from_us for price in self.prices]
        marks = [start_us, *(at for at in changes if start_us < at < end_us), end_us]
        for since, until in pairwise(marks):
            price = locked if locked and locked.locked_at_ready else self.at(since)
            yield since, until, None if price is None else self._rate(price, since, until)

    def _rate(self, price: Price, since: int, until: int) -> UsageRate:
        return UsageRate(
            from_at=instant(since),
            to_at=instant(until),
            price_per_card_hour=price.per_card_hour,
            currency=price.currency,
            offering=self.offering,
        )


def book_of(books: Iterable[Book], holding: Holding) -> Book | None:
    """Return the offering whose price holds for a holding, by the rule of the catalogue: the one made for its image
    first, then by name."""
    fitting = [
        book
        for book in books
        if (book.specification, book.service_model) == (holding.specification, holding.service_model)
        and (not book.images or holding.image is None or holding.image in book.images)
    ]
    return min(fitting, key=lambda book: (holding.image not in book.images, book.offering), default=None)


@dataclass(frozen=True, slots=True)
class SetPrice:
    """Say what an offering costs from an instant on."""

    price: PriceSet


Prices = tuple[PriceSet, ...]


def decide(state: Prices, command: SetPrice, ctx: Context) -> Decision:
    """Take a price that begins now or later; one that was set already leads to nothing."""
    new = command.price
    if any(told.model_copy(update={"set_at": new.set_at}) == new for told in state):
        return []
    known: Book | None = ctx.docs.resident(BOOKS.name).get(new.offering)
    if known is None or known.specification is None:
        return Rejected("offering-unknown", f"There is no offering {new.offering}.")
    if new.from_at < ctx.now:
        return Rejected("price-in-the-past", f"It is {ctx.now.isoformat()}: what was used is rated.")
    return [new.model_copy(update={"set_at": ctx.now})]


PRICE: Decider[Prices] = Decider("price", (), decide, lambda state, fact: (*state, fact))


def _with(book: Book, price: Price) -> Book:
    # Prices come from two topics: their order is that of their instants, whichever was told first.
    ordered = sorted({*book.prices, price}, key=lambda it: (it.from_us, it.per_card_hour, it.currency))
    return book.model_copy(update={"prices": tuple(ordered)})


def _published(book: Book | None, event: Event[OfferingPublished]) -> Book:
    data = event.data
    told = {"specification": data.specification, "service_model": data.service_model, "images": data.images}
    price = Price(from_us=micros(event.time), per_card_hour=data.price_per_card_hour, currency=data.currency)
    return _with((book or Book(offering=data.name)).model_copy(update=told), price)


def _set(book: Book | None, event: Event[PriceSet]) -> Book:
    data = event.data
    price = Price(
        from_us=micros(data.from_at),
        per_card_hour=data.price_per_card_hour,
        currency=data.currency,
        locked_at_ready=bool(data.locked_at_ready),
    )
    return _with(book or Book(offering=data.offering), price)


def _name(event: Event[Any]) -> tuple[str]:
    return (event.data.name,)


BOOKS: Projection[Book] = Projection(
    name="books",
    version=1,
    model=Book,
    folds={OfferingPublished: Fold(_published, _name), PriceSet: Fold(_set)},
    resident=lambda _: True,
)
