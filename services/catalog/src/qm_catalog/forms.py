"""What the routes of the catalog take: unknown fields, wrong types and absurd quantities are refused right here."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from qm_catalog.domain import LIFE_MAX
from qm_events.accelerators import Accelerator, check_geometry
from qm_events.envelope import UtcTime
from qm_events.specs import (
    CatalogueStatus,
    FaultReport,
    Labels,
    Parameters,
    ProfileName,
    Role,
    ServiceModel,
    ShareMilli,
    Text,
    Topology,
)
from qm_events.units import Cards, DnsLabel, MemoryMib, MilliCpu

PARAMETERS_MAX_BYTES = 16_384
_DURATION = re.compile(
    r"P(?:(\d{1,6})W|(?:(\d{1,6})D)?(?:T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?)", re.ASCII
)
_SSH_KEY = re.compile(
    r"(?:ssh-(?:rsa|ed25519)|ecdsa-sha2-nistp\d{3}|sk-[a-z0-9@.-]+) [A-Za-z0-9+/]+={0,3}(?: [^\r\n]*)?"
)


def _duration(value: Any) -> timedelta:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or not any(match.groups()):
        raise ValueError("an ISO 8601 duration is needed, of weeks or of days, hours, minutes and seconds: PT8H, P3D")
    weeks, days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    span = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    if not timedelta(0) < span <= LIFE_MAX:
        raise ValueError("the duration must be more than nothing and at most ten years")
    return span


def _public_key(value: str) -> str:
    if not _SSH_KEY.fullmatch(value.strip()):
        raise ValueError("a public key in OpenSSH form is needed, `ssh-ed25519 AAAA… comment`")
    return value.strip()


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    if len(orjson.dumps(value)) > PARAMETERS_MAX_BYTES:
        raise ValueError(f"the parameters may take {PARAMETERS_MAX_BYTES} bytes")
    return value


def _once_each(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(value)) < len(value):
        raise ValueError("each may be named once")
    return value


def _zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError("an IANA zone is needed, as Europe/Berlin")
    return ZoneInfo(value).key


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "format": "duration", "examples": ["PT8H"]}),
]
ProjectName = Annotated[
    str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[/.])?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
]
"""`name`, or `tenant/name`; in a path, where a slash has its own meaning, `tenant.name`."""
PublicKey = Annotated[str, StringConstraints(max_length=8_192), AfterValidator(_public_key)]
BoundedParameters = Annotated[Parameters, AfterValidator(_bounded)]
Subject = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._:|+-]{0,198}$")]
PersonalText = Annotated[StrictStr, StringConstraints(min_length=1, max_length=200)]


class Form(BaseModel):
    """Base of all bodies."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OrderForm(Form):
    """An order. `count` is in units of the specification; all units are placed together or not at all."""

    project: ProjectName
    specification: DnsLabel
    service_model: ServiceModel
    image: DnsLabel | None = None
    model: DnsLabel | None = None
    count: int = Field(default=1, ge=1, le=10_000, strict=True)
    parameters: BoundedParameters = Field(default_factory=dict)
    ssh_keys: tuple[PublicKey, ...] = Field(default=(), max_length=32)
    priority: int = Field(default=0, ge=-1000, le=1000, strict=True)
    preemptible: StrictBool = False
    topology: Topology | None = None
    duration: Duration | None = None
    expires_at: UtcTime | None = None
    reservation: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,100}$")] | None = None
    """Run on what is kept for this reservation of the project, from its start on."""
    on_card_failure: Literal["tell", "replace"] = "tell"
    labels: Labels = Field(default_factory=dict, max_length=64)

    @model_validator(mode="after")
    def one_end(self) -> "OrderForm":
        """Refuse two ends."""
        if self.duration is not None and self.expires_at is not None:
            raise ValueError("give a duration or expires_at, not both")
        return self


class CancelForm(Form):
    """Why it is wanted no more."""

    reason: Annotated[StrictStr, StringConstraints(max_length=500)] = ""


class ReleaseForm(Form):
    """A fault report, where a card was at fault: as `fault`, or as the whole body."""

    fault: FaultReport | None = None

    @model_validator(mode="before")
    @classmethod
    def bare_report(cls, body: Any) -> Any:
        """Take a bare report for the fault."""
        return {"fault": body} if isinstance(body, dict) and "category" in body else body


class ReplaceForm(Form):
    """Which card is at fault, where it is not seen to be sick yet, and what is wrong with it."""

    card: Annotated[StrictStr, StringConstraints(min_length=1, max_length=200)] | None = None
    reason: Annotated[StrictStr, StringConstraints(max_length=500)] = ""


class ExtendForm(Form):
    """The new end."""

    expires_at: UtcTime


class TenantForm(Form):
    """A customer. Its months begin and end in its zone."""

    name: DnsLabel
    display_name: Text | None = None
    timezone: Annotated[StrictStr, AfterValidator(_zone)] = "UTC"


class ProjectForm(Form):
    """A project of a tenant."""

    tenant: DnsLabel
    name: DnsLabel
    display_name: Text | None = None


class MemberForm(Form):
    """A role for a subject."""

    subject: Subject
    role: Role


class SubjectForm(Form):
    """A person or a service account; name and address are kept sealed."""

    tenant: DnsLabel
    subject: Subject
    kind: Literal["person", "service_account"] = "person"
    display_name: PersonalText | None = None
    email: PersonalText | None = None


class EraseForm(Form):
    """Where the subject is known."""

    tenant: DnsLabel


class ManagerForm(Form):
    """Whom a subject reports to."""

    tenant: DnsLabel = Field(description="Where both are members.")
    manager: Subject | None = Field(description="The manager; null = nobody.")


class GroupMemberForm(Form):
    """Who joins a group."""

    subject: Subject = Field(description="A member of the tenant.")


class SliceForm(Form):
    """A part of one card: a profile of the geometry of its type, or thousandths of a shared card."""

    profile: ProfileName | None = None
    share_milli: ShareMilli | None = None

    @model_validator(mode="after")
    def _names_one(self) -> "SliceForm":
        if (self.profile is None) == (self.share_milli is None):
            raise ValueError("name a profile or share_milli, one of them")
        return self


class AcceleratorForm(Accelerator):
    """An accelerator type."""

    description: Annotated[StrictStr, StringConstraints(max_length=2_000)] = ""

    @model_validator(mode="after")
    def _can_be_cut_so(self) -> "AcceleratorForm":
        check_geometry(self)
        return self


class SpecificationForm(Form):
    """A specification; the catalogue numbers its versions. Of a slice, cards and their memory follow from the type."""

    name: DnsLabel
    description: Annotated[StrictStr, StringConstraints(max_length=2_000)] = ""
    accelerators: Annotated[tuple[DnsLabel, ...], AfterValidator(_once_each)] = Field(min_length=1, max_length=32)
    cards_per_unit: Cards | None = None
    accelerator_memory_mib: MemoryMib | None = None
    slice: SliceForm | None = None
    """What a unit takes instead of whole cards."""
    cpu_milli: MilliCpu
    memory_mib: MemoryMib
    traits: Annotated[tuple[DnsLabel, ...], AfterValidator(_once_each)] | None = Field(default=None, max_length=32)
    """What the node of each unit must have, as the operators named it; null = nothing."""

    @model_validator(mode="after")
    def _says_its_size_once(self) -> "SpecificationForm":
        sizes = {"cards_per_unit": self.cards_per_unit, "accelerator_memory_mib": self.accelerator_memory_mib}
        if wrong := [name for name, size in sizes.items() if (size is None) == (self.slice is None)]:
            rule = "follows from the slice: leave it out" if self.slice else "is needed, or a slice"
            raise ValueError(f"{' and '.join(wrong)} {rule}")
        return self


class OfferingForm(Form):
    """A specification on sale for a service model; no images = every image that fits the service model."""

    name: DnsLabel
    specification: DnsLabel
    service_model: ServiceModel
    images: Annotated[tuple[DnsLabel, ...], AfterValidator(_once_each)] = Field(default=(), max_length=200)
    price_per_card_hour: Annotated[StrictStr, StringConstraints(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$")]
    currency: str = Field(pattern=r"^[A-Z]{3}$")

    @property
    def price(self) -> Decimal:
        """Return the price as a number."""
        return Decimal(self.price_per_card_hour)


class ImageForm(Form):
    """An approved image."""

    name: DnsLabel
    service_models: Annotated[tuple[ServiceModel, ...], AfterValidator(_once_each)] = Field(min_length=1, max_length=4)
    reference: Text


class ModelForm(Form):
    """An approved model for serving."""

    name: DnsLabel
    reference: Text


class StatusForm(Form):
    """The new status of a catalogue item."""

    status: CatalogueStatus
