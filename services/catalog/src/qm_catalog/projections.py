"""The documents of the catalog: the records of orders, their facts in full, and what can be ordered.

`records` is the fold of all topics that speak about an order; a live one stays in memory for its expiry. `facts` keeps
every fact of an order as it was published, one row each, so that the history of an order is read without a look at
the log. The catalogue is small and wholly in memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from qm_catalog.domain import RECORDS
from qm_catalog.record_folds import RECORD_FOLDS, SECTIONS
from qm_catalog.record_phase import phase
from qm_catalog.request_record import Record
from qm_catalog.standing import finished
from qm_events import Event, EventData, encode
from qm_events.accelerators import Accelerator
from qm_events.catalog import (
    AcceleratorPublished,
    CatalogueItemStatusChanged,
    ImagePublished,
    ModelPublished,
    OfferingPublished,
    SpecificationPublished,
    SubjectErased,
    SubjectRegistered,
)
from qm_events.specs import CatalogueStatus, ServiceModel, Specification
from qm_service.directory import DIRECTORY_PROJECTIONS
from qm_service.model import Column, Fold, Projection

FACTS = "facts"
PEOPLE = "people"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of an order, as it was published."""

    order: str
    topic: str
    version: int
    time: datetime
    body: str
    """The structured CloudEvent."""


@dataclass(frozen=True, slots=True)
class Version:
    """A specification as it was from `published_at` on."""

    specification: Specification
    description: str
    published_at: datetime


@dataclass(frozen=True, slots=True)
class SpecificationItem:
    """A specification with all its versions, the newest last; orders get the newest."""

    name: str
    versions: tuple[Version, ...]
    status: CatalogueStatus = CatalogueStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class Price:
    """Of a card-hour, from an instant on."""

    from_at: datetime
    per_card_hour: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class OfferingItem:
    """A specification on sale for a service model; every price that it ever had, the newest last."""

    name: str
    specification: str
    service_model: ServiceModel
    images: tuple[str, ...]
    prices: tuple[Price, ...]
    status: CatalogueStatus = CatalogueStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class ImageItem:
    """An approved image."""

    name: str
    service_models: tuple[ServiceModel, ...]
    reference: str
    published_at: datetime
    status: CatalogueStatus = CatalogueStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class ModelItem:
    """An approved model for serving."""

    name: str
    reference: str
    published_at: datetime
    status: CatalogueStatus = CatalogueStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class AcceleratorItem:
    """An accelerator type as it is now; specifications keep what they were published with."""

    name: str
    accelerator: Accelerator
    description: str
    published_at: datetime
    status: CatalogueStatus = CatalogueStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class Person:
    """A subject as one tenant knows it. Personal fields are sealed; erasure forgets them here too."""

    tenant: str
    subject: str
    kind: str
    display_name: str | None = None
    email: str | None = None


def _scope(record: Record) -> str | None:
    return f"{record.tenant}/{record.project}" if record.tenant else None


def _always(_: object) -> bool:
    return True


def _kept(_: Fact | None, event: Event[Any]) -> Fact:
    return Fact(event.data.order, event.data.topic, event.version, event.time, encode(event).decode())


def _fact_key(event: Event[Any]) -> Sequence[str]:
    return (f"{event.data.order}/{event.subject}/{event.version:06}",)


def _specification(old: SpecificationItem | None, event: Event[SpecificationPublished]) -> SpecificationItem:
    data = event.data
    version = Version(data.specification, data.description, event.time)
    if old is None:
        return SpecificationItem(data.specification.name, (version,))
    return replace(old, versions=(*old.versions, version))


def _offering(old: OfferingItem | None, event: Event[OfferingPublished]) -> OfferingItem:
    data = event.data
    price = Price(event.time, data.price_per_card_hour, data.currency)
    if old is None:
        return OfferingItem(data.name, data.specification, data.service_model, data.images, (price,))
    return replace(old, images=data.images, prices=(*old.prices, price))


def _image(_: ImageItem | None, event: Event[ImagePublished]) -> ImageItem:
    return ImageItem(event.data.name, event.data.service_models, event.data.reference, event.time)


def _model(_: ModelItem | None, event: Event[ModelPublished]) -> ModelItem:
    return ModelItem(event.data.name, event.data.reference, event.time)


def _accelerator(old: AcceleratorItem | None, event: Event[AcceleratorPublished]) -> AcceleratorItem:
    data = event.data
    new = AcceleratorItem(data.accelerator.name, data.accelerator, data.description, event.time)
    return replace(new, status=old.status) if old else new


def _person(_: Person | None, event: Event[SubjectRegistered]) -> Person:
    data = event.data
    return Person(data.tenant, data.subject, data.kind, data.display_name, data.email)


def _erased(old: Person | None, _: Event[SubjectErased]) -> Person | None:
    return replace(old, display_name=None, email=None) if old else None


def _person_key(event: Event[Any]) -> Sequence[str]:
    return (f"{event.data.tenant}/{event.data.subject}",)


def _status(old: Any, event: Event[CatalogueItemStatusChanged]) -> Any:
    return replace(old, status=event.data.status)


def _item(kind: str, model: type, fact: type[EventData], fold: Callable[..., Any], name: Callable[..., str]) -> Any:
    """Return the projection `<kind>s` of a kind of catalogue item, wholly in memory."""
    folds: Mapping[type[EventData], Fold[Any]] = {
        fact: Fold(fold, lambda event: (name(event.data),)),
        CatalogueItemStatusChanged: Fold(_status, lambda e: (e.data.name,) if e.data.kind == kind else ()),
    }
    columns: Mapping[str, Column[Any]] = {"status": Column(str, lambda item: item.status.value)}
    return Projection(name=f"{kind}s", version=1, model=model, folds=folds, columns=columns, resident=_always)


PROJECTIONS: tuple[Projection[Any], ...] = (
    Projection(
        name=RECORDS,
        version=3,
        model=Record,
        folds=RECORD_FOLDS,
        columns={"scope": Column(str, _scope), "phase": Column(str, lambda record: phase(record).value)},
        resident=lambda record: not finished(record),
    ),
    Projection(
        name=FACTS,
        version=2,
        model=Fact,
        folds={fact: Fold(_kept, _fact_key) for _, table in SECTIONS.values() for fact in table},
        columns={"order": Column(str, lambda fact: fact.order)},
    ),
    _item("specification", SpecificationItem, SpecificationPublished, _specification, lambda d: d.specification.name),
    _item("offering", OfferingItem, OfferingPublished, _offering, lambda d: d.name),
    _item("image", ImageItem, ImagePublished, _image, lambda d: d.name),
    _item("model", ModelItem, ModelPublished, _model, lambda d: d.name),
    _item("accelerator", AcceleratorItem, AcceleratorPublished, _accelerator, lambda d: d.accelerator.name),
    Projection(
        name=PEOPLE,
        version=1,
        model=Person,
        folds={SubjectRegistered: Fold(_person, _person_key), SubjectErased: Fold(_erased, _person_key)},
        columns={"tenant": Column(str, lambda person: person.tenant)},
    ),
    *DIRECTORY_PROJECTIONS,
)
