"""What a card-hour costs at most, for policies that look at the cost. Pure.

The order names no offering, so the dearest one of its specification and service model that is not retired counts; an
order is asked about rather than let pass. What is billed is looked up elsewhere, at the instant of use.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from qm_events import Event
from qm_events.catalog import CatalogueItemStatusChanged, OfferingPublished
from qm_events.specs import CatalogueStatus, ServiceModel
from qm_service.model import Fold, Projection

OFFERINGS = "offerings"


@dataclass(frozen=True, slots=True)
class Offered:
    """An offering, as far as its price goes."""

    specification: str
    service_model: ServiceModel
    price_per_card_hour: Decimal
    currency: str
    retired: bool = False


class Prices:
    """The offerings by what they sell."""

    def __init__(self) -> None:
        self._offered: dict[tuple[str, str], dict[str, Offered]] = defaultdict(dict)

    def follow(self, name: str, old: Offered | None, new: Offered | None) -> None:
        """Follow one offering."""
        for doc in filter(None, (old, new)):
            self._offered[doc.specification, doc.service_model].pop(name, None)
        if new is not None and not new.retired:
            self._offered[new.specification, new.service_model][name] = new

    def of(self, specification: str, service_model: str) -> dict[str, Fraction]:
        """Return the dearest price of a card-hour in each currency."""
        found: dict[str, Fraction] = {}
        for doc in self._offered.get((specification, service_model), {}).values():
            price = Fraction(doc.price_per_card_hour)
            found[doc.currency] = max(price, found.get(doc.currency, price))
        return found


def _published(old: Offered | None, event: Event[OfferingPublished]) -> Offered:
    d = event.data
    return Offered(d.specification, d.service_model, d.price_per_card_hour, d.currency, bool(old and old.retired))


def _status(old: Offered | None, event: Event[CatalogueItemStatusChanged]) -> Offered | None:
    return old and replace(old, retired=event.data.status is CatalogueStatus.RETIRED)


def _offering(event: Event[CatalogueItemStatusChanged]) -> Sequence[str]:
    return (event.data.name,) if event.data.kind == "offering" else ()


OFFERED: Projection[Offered] = Projection(
    name=OFFERINGS,
    version=1,
    model=Offered,
    folds={
        OfferingPublished: Fold(_published, lambda event: (event.data.name,)),
        CatalogueItemStatusChanged: Fold(_status, _offering),
    },
    resident=lambda _: True,
)
