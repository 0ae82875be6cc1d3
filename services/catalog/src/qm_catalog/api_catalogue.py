"""What can be ordered: specifications, offerings, images and models, with their status."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from qm_catalog.directory import declare
from qm_catalog.forms import AcceleratorForm, ImageForm, ModelForm, OfferingForm, SpecificationForm, StatusForm
from qm_catalog.problems import AlreadyExists, UnknownName
from qm_catalog.projections import AcceleratorItem, ImageItem, ModelItem, OfferingItem, SpecificationItem
from qm_catalog.slicing import specification_of
from qm_events import EventData
from qm_events.accelerators import Accelerator
from qm_events.catalog import (
    AcceleratorPublished,
    CatalogueItemStatusChanged,
    ImagePublished,
    ModelPublished,
    OfferingPublished,
    SpecificationPublished,
)
from qm_events.ids import PLATFORM
from qm_events.specs import CatalogueStatus, ServiceModel, Slice, Specification
from qm_service.caller import Access, Page
from qm_service.model import Docs
from qm_service.page import Paged, page
from qm_service.problem import IdempotencyKeyReused, NotFound, VersionConflict, problems
from qm_service.runtime import Runtime

Kind = Literal["specification", "offering", "image", "model", "accelerator"]


class VersionView(BaseModel):
    """A specification as it was from an instant on."""

    version: int
    description: str
    accelerators: list[str]
    cards_per_unit: int
    accelerator_memory_mib: int
    cpu_milli: int
    memory_mib: int
    traits: list[str] | None
    slice: Slice | None
    """The part of a card that a unit takes; null: whole cards."""
    published_at: datetime


class SpecificationView(VersionView):
    """A specification: its newest version, which orders get, and all versions."""

    name: str
    status: CatalogueStatus
    versions: list[VersionView]


class PriceView(BaseModel):
    """A price from an instant on."""

    from_at: datetime
    price_per_card_hour: str


class OfferingView(BaseModel):
    """A specification on sale; the prices are all that there were, the newest last."""

    name: str
    specification: str
    service_model: ServiceModel
    images: list[str]
    price_per_card_hour: str
    currency: str
    prices: list[PriceView]
    status: CatalogueStatus


class ImageView(BaseModel):
    """An approved image."""

    name: str
    service_models: list[ServiceModel]
    reference: str
    published_at: datetime
    status: CatalogueStatus


class ModelView(BaseModel):
    """An approved model for serving."""

    name: str
    reference: str
    published_at: datetime
    status: CatalogueStatus


class AcceleratorView(Accelerator):
    """An accelerator type as it is now."""

    description: str
    published_at: datetime
    status: CatalogueStatus


def _version(item: Any) -> dict[str, Any]:
    specification: Specification = item.specification
    return {
        **specification.model_dump(exclude={"name"}),
        "description": item.description,
        "published_at": item.published_at,
    }


def _specification(item: SpecificationItem) -> SpecificationView:
    versions = [_version(version) for version in item.versions]
    return SpecificationView(name=item.name, status=item.status, versions=versions, **versions[-1])


def _offering(item: OfferingItem) -> OfferingView:
    prices = [PriceView(from_at=p.from_at, price_per_card_hour=str(p.per_card_hour)) for p in item.prices]
    return OfferingView(
        name=item.name,
        specification=item.specification,
        service_model=item.service_model,
        images=list(item.images),
        price_per_card_hour=prices[-1].price_per_card_hour,
        currency=item.prices[-1].currency,
        prices=prices,
        status=item.status,
    )


def _image(item: ImageItem) -> ImageView:
    return ImageView(
        name=item.name,
        service_models=list(item.service_models),
        reference=item.reference,
        published_at=item.published_at,
        status=item.status,
    )


def _model(item: ModelItem) -> ModelView:
    return ModelView(name=item.name, reference=item.reference, published_at=item.published_at, status=item.status)


def _accelerator(item: AcceleratorItem) -> AcceleratorView:
    return AcceleratorView(
        description=item.description,
        published_at=item.published_at,
        status=item.status,
        **item.accelerator.model_dump(),
    )


@dataclass(frozen=True, slots=True)
class Shelf:
    """One kind of item: what is sent, the fact that it becomes, what is shown of it, alone and in a list."""

    kind: Kind
    form: type[Any]
    fact: Callable[[Any, Docs], EventData]
    view: Callable[[Any], BaseModel]
    shown: type[BaseModel]
    page: Any


SHELVES = (
    Shelf(
        "specification",
        SpecificationForm,
        lambda form, docs: SpecificationPublished(
            specification=specification_of(form, docs), description=form.description
        ),
        _specification,
        SpecificationView,
        Paged[SpecificationView],
    ),
    Shelf(
        "offering",
        OfferingForm,
        lambda form, _: OfferingPublished(**form.model_dump()),
        _offering,
        OfferingView,
        Paged[OfferingView],
    ),
    Shelf("image", ImageForm, lambda form, _: ImagePublished(**form.model_dump()), _image, ImageView, Paged[ImageView]),
    Shelf("model", ModelForm, lambda form, _: ModelPublished(**form.model_dump()), _model, ModelView, Paged[ModelView]),
    Shelf(
        "accelerator",
        AcceleratorForm,
        lambda form, _: AcceleratorPublished(
            accelerator=Accelerator(**form.model_dump(exclude={"description"})), description=form.description
        ),
        _accelerator,
        AcceleratorView,
        Paged[AcceleratorView],
    ),
)


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes: a list, a publication and a change of status for each kind."""
    router = APIRouter()
    for shelf in SHELVES:
        _add(router, runtime, shelf)
    return router


def _add(router: APIRouter, runtime: Runtime, shelf: Shelf) -> None:
    kind, many = shelf.kind, f"{shelf.kind}s"
    faults = problems(AlreadyExists, UnknownName, IdempotencyKeyReused, VersionConflict)

    async def declared(access: Access, fact: EventData, name: str) -> BaseModel:
        await runtime.execute(declare(PLATFORM, fact), access.cause(PLATFORM), expected_version=access.if_match)
        return shelf.view(runtime.context().docs.resident(many)[name])

    @router.get(f"/{many}", responses=problems(), name=f"list_{many}", response_model=shelf.page)
    async def list_items(
        access: Access,  # noqa: ARG001 - any valid token may read the catalogue
        window: Page,
        status: Annotated[CatalogueStatus | None, Query(description="Only these")] = None,
    ) -> Any:
        """List the catalogue by name."""
        where: Mapping[str, Any] = {} if status is None else {"status": status.value}
        rows = await runtime.docs.page(many, where, after=window.start(str), limit=window.fetch)
        items, following = window.cut(rows, lambda row: (row[0],))
        return page([shelf.view(item) for _, item in items], following)

    @router.get(f"/{many}/{{name}}", responses=problems(), name=f"read_{kind}", response_model=shelf.shown)
    async def read_item(name: str, access: Access) -> Any:  # noqa: ARG001 - any valid token may read the catalogue
        """Return an item of the catalogue."""
        item = await runtime.docs.get(many, name)
        if item is None:
            raise NotFound(f"There is no {kind} {name}.")
        return shelf.view(item)

    async def publish(form: Any, access: Access, response: Response) -> Any:
        """Publish an item; what is published already stays as it is."""
        response.headers["Location"] = f"/v1/{many}/{form.name}"
        return await declared(access, shelf.fact(form, runtime.context().docs), form.name)

    # The framework reads the form's class from here; a type checker cannot know it.
    publish.__annotations__["form"] = shelf.form
    router.post(f"/{many}", status_code=201, responses=faults, name=f"publish_{kind}", response_model=shelf.shown)(
        publish
    )

    @router.post(f"/{many}/{{name}}/status", responses=faults, name=f"set_{kind}_status", response_model=shelf.shown)
    async def set_status(name: str, form: StatusForm, access: Access) -> Any:
        """Deprecate, retire or reactivate an item; orders that have it are not touched."""
        if name not in runtime.context().docs.resident(many):
            raise NotFound(f"There is no {kind} {name}.")
        return await declared(access, CatalogueItemStatusChanged(kind=kind, name=name, status=form.status), name)
