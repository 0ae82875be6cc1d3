"""Facts of the catalog: the topics `directory` (who and what there is) and `orders` (what was asked)."""

from decimal import Decimal
from typing import Literal

from pydantic import Field

from qm_events.accelerators import Accelerator
from qm_events.audit import AccessAudited
from qm_events.envelope import EventData, UtcTime
from qm_events.registry import DIRECTORY, ORDERS, event
from qm_events.sealed import Sealed
from qm_events.specs import CatalogueStatus, FaultReport, OrderRequest, Role, ServiceModel, Specification, Text
from qm_events.units import DnsLabel

# ---- directory: streams `tenant/<tenant>`; the catalogue items of all tenants are in `tenant/platform`


@event("tenant.registered", version=1, topic=DIRECTORY)
class TenantRegistered(EventData):
    """A customer exists. Its months begin and end in its zone."""

    tenant: DnsLabel
    display_name: Text
    timezone: str = "UTC"


@event("project.registered", version=1, topic=DIRECTORY)
class ProjectRegistered(EventData):
    """A project exists: quota, orders and usage belong to one."""

    tenant: DnsLabel
    project: DnsLabel
    display_name: Text


@event("subject.registered", version=1, topic=DIRECTORY)
class SubjectRegistered(EventData):
    """A person or a service account is known. Personal fields are sealed."""

    tenant: DnsLabel
    subject: Text
    kind: Literal["person", "service_account"]
    display_name: Sealed | None = None
    email: Sealed | None = None


@event("subject.erased", version=1, topic=DIRECTORY)
class SubjectErased(EventData):
    """The key of the subject's personal fields is gone: every projection forgets them."""

    tenant: DnsLabel
    subject: Text


@event("member.granted", version=1, topic=DIRECTORY)
class MemberGranted(EventData):
    """A subject has a role, in one project or (project None) in the whole tenant."""

    tenant: DnsLabel
    project: DnsLabel | None = None
    subject: Text
    role: Role


@event("member.revoked", version=1, topic=DIRECTORY)
class MemberRevoked(EventData):
    """The role is taken back; orders stay with the project."""

    tenant: DnsLabel
    project: DnsLabel | None = None
    subject: Text
    role: Role


@event("subject.manager_set", version=1, topic=DIRECTORY)
class SubjectManagerSet(EventData):
    """A subject reports to a manager within the tenant; None = to nobody."""

    tenant: DnsLabel
    subject: Text
    manager: Text | None = None


@event("group.joined", version=1, topic=DIRECTORY)
class GroupJoined(EventData):
    """A subject is in a group of the tenant. A group is named by policies and gives no role."""

    tenant: DnsLabel
    group: DnsLabel
    subject: Text


@event("group.left", version=1, topic=DIRECTORY)
class GroupLeft(EventData):
    """A subject is in the group no more."""

    tenant: DnsLabel
    group: DnsLabel
    subject: Text


@event("specification.published", version=1, topic=DIRECTORY)
class SpecificationPublished(EventData):
    """A specification, or a new version of one, can be ordered."""

    specification: Specification
    description: str = ""


@event("accelerator.published", version=1, topic=DIRECTORY)
class AcceleratorPublished(EventData):
    """What the catalogue knows of an accelerator type, or knows from now on; specifications keep what they were
    published with."""

    accelerator: Accelerator
    description: str = ""


@event("offering.published", version=1, topic=DIRECTORY)
class OfferingPublished(EventData):
    """A specification is on sale for a service model, at a price for a card-hour."""

    name: DnsLabel
    specification: DnsLabel
    service_model: ServiceModel
    images: tuple[DnsLabel, ...] = ()
    price_per_card_hour: Decimal = Field(ge=0, max_digits=18, decimal_places=9)
    currency: str = Field(pattern=r"^[A-Z]{3}$")


@event("image.published", version=1, topic=DIRECTORY)
class ImagePublished(EventData):
    """An approved image."""

    name: DnsLabel
    service_models: tuple[ServiceModel, ...] = Field(min_length=1)
    reference: Text


@event("model.published", version=1, topic=DIRECTORY)
class ModelPublished(EventData):
    """An approved model for serving."""

    name: DnsLabel
    reference: Text


@event("catalogue_item.status_changed", version=1, topic=DIRECTORY)
class CatalogueItemStatusChanged(EventData):
    """An item is deprecated, retired or active again."""

    kind: Literal["specification", "offering", "image", "model", "accelerator"]
    name: DnsLabel
    status: CatalogueStatus


@event("directory.access_audited", version=1, topic=DIRECTORY)
class DirectoryAccessAudited(AccessAudited):
    """A mutating call on the catalog; stream `audit-catalog/<tenant>`."""


# ---- orders: streams `order/<order>`


@event("order.submitted", version=1, topic=ORDERS)
class OrderSubmitted(EventData):
    """An order was taken; `digest` binds every later approval to these parameters."""

    order: str
    request: OrderRequest
    digest: str
    submitted_at: UtcTime


@event("order.cancel_requested", version=1, topic=ORDERS)
class OrderCancelRequested(EventData):
    """The owner wants it no more; lawful in every phase."""

    order: str
    requested_at: UtcTime
    reason: str = ""


@event("order.release_requested", version=1, topic=ORDERS)
class OrderReleaseRequested(EventData):
    """The owner is done. Billing stops at `requested_at`."""

    order: str
    requested_at: UtcTime
    fault: FaultReport | None = None


@event("order.extension_requested", version=1, topic=ORDERS)
class OrderExtensionRequested(EventData):
    """The end moves, at once; admission holds card-hours up to it as far as limits allow, and says what is lacking."""

    order: str
    expires_at: UtcTime
    requested_at: UtcTime


@event("order.replacement_requested", version=1, topic=ORDERS)
class OrderReplacementRequested(EventData):
    """The owner wants other cards in the place of sick ones; the order lives on."""

    order: str
    allocation: str
    cards: tuple[str, ...] = Field(min_length=1)
    """Those that are at fault: they are isolated when they come back."""
    reason: str = ""
    requested_at: UtcTime


@event("order.expired", version=1, topic=ORDERS)
class OrderExpired(EventData):
    """The end was reached. `expired_at` is the promised instant, also where it was noticed later."""

    order: str
    expired_at: UtcTime
