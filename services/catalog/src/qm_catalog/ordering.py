"""From what a developer wrote to what is ordered: names are looked up in the catalogue as it is now, once."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from qm_catalog.domain import LIFE_MAX
from qm_catalog.forms import OrderForm
from qm_catalog.problems import AmbiguousProject, NotOffered, UnknownReference
from qm_catalog.projections import ImageItem, OfferingItem, SpecificationItem
from qm_events.envelope import utc_text
from qm_events.specs import CatalogueStatus, OrderRequest, ServiceModel
from qm_service.model import Docs
from qm_service.problem import ValidationFailed

ORDERING = (AmbiguousProject, UnknownReference, NotOffered)
"""The problems that only what is ordered can have."""
AMOUNT_MAX = 10**15
"""Of anything that an order takes, in the unit that it is counted in."""


def resolve(form: OrderForm, tenant: str, project: str, requester: str, docs: Docs, now: datetime) -> OrderRequest:
    """Return the order with everything looked up. Raises UnknownReference, NotOffered, ValidationFailed."""
    specification: SpecificationItem = _find(docs, "specification", form.specification)
    if form.image is not None:
        image: ImageItem = _find(docs, "image", form.image)
        if form.service_model not in image.service_models:
            raise NotOffered(
                f"The image {form.image} does not serve {form.service_model.value}.",
                field="image",
                choices=[model.value for model in image.service_models],
            )
    _check_model(form, docs)
    _check_offered(form, docs)
    if form.expires_at is not None and not now < form.expires_at <= now + LIFE_MAX:
        raise ValidationFailed(
            f"An order that is placed at {utc_text(now)} cannot end at {utc_text(form.expires_at)}.",
            field="expires_at",
            remedy="Name an instant in the future and at most ten years ahead, or give a duration.",
        )
    request = OrderRequest(
        tenant=tenant,
        project=project,
        requester=requester,
        specification=specification.versions[-1].specification,
        duration_seconds=int(form.duration.total_seconds()) if form.duration else None,
        on_card_failure=None if form.on_card_failure == "tell" else form.on_card_failure,
        **form.model_dump(exclude={"project", "specification", "duration", "on_card_failure"}),
    )
    _check_size(request)
    if request.reservation and request.specification.slice is not None:
        detail = f"A reservation is of whole cards; {form.specification} is a slice of one."
        raise NotOffered(detail, field="reservation", remedy="Order without the reservation, or whole cards.")
    return request


def _check_size(request: OrderRequest) -> None:
    """Refuse what no quota could hold: its figures would be beyond what every reader of JSON keeps exactly."""
    one, count = request.specification, request.count
    if max(request.cards * one.accelerator_memory_mib, count * one.cpu_milli, count * one.memory_mib) > AMOUNT_MAX:
        raise ValidationFailed(
            f"{count} units of {one.name} are more than {AMOUNT_MAX} MiB or thousandths of a CPU.",
            field="count",
            remedy="Order less.",
        )


def offering_of(offerings: Iterable[OfferingItem], request: OrderRequest) -> OfferingItem | None:
    """Return the offering whose price holds for an order: the one made for its image first, then by name."""
    fitting = [
        item
        for item in offerings
        if (item.specification, item.service_model) == (request.specification.name, request.service_model)
        and (not item.images or request.image is None or request.image in item.images)
    ]
    return min(fitting, key=lambda item: (request.image not in item.images, item.name), default=None)


def warnings(request: OrderRequest, docs: Docs) -> list[str]:
    """Return what a careful reader should know of the names that the order uses."""
    used = {"specification": request.specification.name, "image": request.image, "model": request.model}
    items = [(kind, docs.resident(f"{kind}s").get(name)) for kind, name in used.items() if name is not None]
    return [
        f"The {kind} {item.name} is deprecated; choose another for new work."
        for kind, item in items
        if item is not None and item.status is CatalogueStatus.DEPRECATED
    ]


def _find(docs: Docs, kind: str, name: str) -> Any:
    items = docs.resident(f"{kind}s")
    item = items.get(name)
    if item is None or item.status is CatalogueStatus.RETIRED:
        why = "is retired" if item else "is not in the catalogue"
        raise UnknownReference(f"The {kind} {name} {why}.", field=kind, choices=_active(items))
    return item


def _active(items: Mapping[str, Any]) -> list[str]:
    return sorted(name for name, item in items.items() if item.status is CatalogueStatus.ACTIVE)[:50]


def _check_model(form: OrderForm, docs: Docs) -> None:
    serves = form.service_model is ServiceModel.MAAS
    if form.model is not None:
        _find(docs, "model", form.model)
    if serves and form.model is None:
        choices = _active(docs.resident("models"))
        raise UnknownReference("To serve a model, the order must name it.", field="model", choices=choices)
    if form.model is not None and not serves:
        detail = f"A model is served by maas, not by {form.service_model.value}."
        raise NotOffered(detail, field="model", choices=[ServiceModel.MAAS.value])


def _check_offered(form: OrderForm, docs: Docs) -> None:
    """A specification that is on sale is sold as its offerings say; one without any offering has no price."""
    offered = [
        item
        for item in docs.resident("offerings").values()
        if item.specification == form.specification and item.status is not CatalogueStatus.RETIRED
    ]
    fitting = [item for item in offered if item.service_model is form.service_model]
    if offered and not fitting:
        choices = sorted({item.service_model.value for item in offered})
        detail = f"{form.specification} is not offered as {form.service_model.value}."
        raise NotOffered(detail, field="service_model", choices=choices)
    if fitting and form.image and not any(not item.images or form.image in item.images for item in fitting):
        choices = sorted({image for item in fitting for image in item.images})
        raise NotOffered(f"{form.specification} is not offered with {form.image}.", field="image", choices=choices)
