"""The price books over HTTP."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from qm_events.envelope import UtcTime
from qm_events.ids import PLATFORM
from qm_events.metering import Currency, PriceSet
from qm_events.units import DnsLabel
from qm_metering.intervals import instant
from qm_metering.prices import BOOKS, Book, SetPrice
from qm_metering.problems import OfferingUnknown, PriceInThePast
from qm_service.caller import Access, Page
from qm_service.model import Act
from qm_service.page import Paged, page
from qm_service.problem import IdempotencyKeyReused, problems
from qm_service.runtime import Runtime


class PriceView(BaseModel):
    """A price from an instant on."""

    from_at: datetime
    price_per_card_hour: str
    currency: str
    locked_at_ready: bool
    """True: what is READY while it holds keeps it to its end."""


class BookView(BaseModel):
    """An offering and all its prices, the newest last."""

    offering: str
    specification: str | None
    service_model: str | None
    prices: list[PriceView]


class PriceForm(BaseModel):
    """A price that begins now or later."""

    model_config = ConfigDict(extra="forbid")

    offering: DnsLabel
    price_per_card_hour: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$")]
    currency: Currency
    from_at: UtcTime = Field(description="From when on it holds; until the next one begins")
    locked_at_ready: StrictBool = Field(default=False, description="What is READY while it holds keeps it to its end")


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes of prices."""
    router = APIRouter()

    @router.get("/prices", responses=problems())
    async def prices(access: Access, window: Page) -> Paged[BookView]:  # noqa: ARG001 - anyone may know the prices
        """The prices of all offerings, those to come included, by offering."""
        rows = await runtime.docs.page(BOOKS.name, after=window.start(str), limit=window.fetch)
        shown, following = window.cut(rows, lambda row: (row[0],))
        return page([_view(book) for _, book in shown], following)

    @router.post("/prices", status_code=201, responses=problems(OfferingUnknown, PriceInThePast, IdempotencyKeyReused))
    async def set_price(access: Access, body: PriceForm) -> BookView:
        """Set what an offering costs from an instant on. What was used before it stays as it was rated."""
        told = PriceSet(
            **body.model_dump(exclude={"price_per_card_hour", "locked_at_ready"}),
            price_per_card_hour=Decimal(body.price_per_card_hour),
            locked_at_ready=body.locked_at_ready or None,
            set_at=runtime.clock.now(),
        )
        await runtime.execute(Act(f"price/{body.offering}", SetPrice(told), tenant=PLATFORM), access.cause(PLATFORM))
        return _view(runtime.context().docs.resident(BOOKS.name)[body.offering])

    return router


def _view(book: Book) -> BookView:
    prices = [
        PriceView(
            from_at=instant(it.from_us),
            price_per_card_hour=str(it.per_card_hour),
            currency=it.currency,
            locked_at_ready=it.locked_at_ready,
        )
        for it in book.prices
    ]
    return BookView(
        offering=book.offering, specification=book.specification, service_model=book.service_model, prices=prices
    )
