"""A scenario: the world that an embedded product starts in, one YAML file. Unknown fields are refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from qm_events.accelerators import Accelerator
from qm_events.approval import ApprovalPolicy
from qm_events.ids import PLATFORM
from qm_events.specs import Role, ServiceModel
from qm_events.units import Cards, DnsLabel, MemoryMib, MilliCpu


class ScenarioError(Exception):
    """The file is not a scenario; the message names each place and what is wrong there."""


class Part(BaseModel):
    """Base of all parts: an unknown field is an error, so that a typing error is not a silent default."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Tenant(Part):
    """A customer and its projects."""

    name: DnsLabel
    display_name: str = ""
    timezone: str = "UTC"
    projects: tuple[DnsLabel, ...] = ()


class Grant(Part):
    """A role in a project, in a whole tenant (no project), or on the platform (tenant `platform`)."""

    tenant: DnsLabel
    project: DnsLabel | None = None
    role: Role


class User(Part):
    """A sample user; `qm login --as SUBJECT` gives a token."""

    subject: str = Field(min_length=1, max_length=100)
    tenant: DnsLabel
    kind: Literal["person", "service_account"] = "person"
    display_name: str | None = None
    email: str | None = None
    grants: tuple[Grant, ...] = ()
    manager: str | None = None
    """Whom he reports to in `tenant`; approval policies may ask the manager."""
    groups: tuple[DnsLabel, ...] = ()
    """Of `tenant`; approval policies may name them."""


class AcceleratorItem(Accelerator):
    """An accelerator type; the fields are those of the catalogue."""

    description: str = ""


class SliceItem(Part):
    """A part of a card: a profile of its type, or thousandths of a shared card."""

    profile: str | None = None
    share_milli: int | None = None


class SpecificationItem(Part):
    """What can be ordered; the fields are those of the catalogue. Of a slice, cards and memory follow from the type."""

    name: DnsLabel
    description: str = ""
    accelerators: tuple[DnsLabel, ...] = Field(min_length=1)
    cards_per_unit: Cards | None = None
    accelerator_memory_mib: MemoryMib | None = None
    slice: SliceItem | None = None
    cpu_milli: MilliCpu
    memory_mib: MemoryMib
    traits: tuple[DnsLabel, ...] | None = None


class OfferingItem(Part):
    """A specification on sale for a service model."""

    name: DnsLabel
    specification: DnsLabel
    service_model: ServiceModel
    images: tuple[DnsLabel, ...] = ()
    price_per_card_hour: str = Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$")
    currency: str = Field(pattern=r"^[A-Z]{3}$")


class ImageItem(Part):
    """An approved image."""

    name: DnsLabel
    service_models: tuple[ServiceModel, ...] = Field(min_length=1)
    reference: str


class ModelItem(Part):
    """An approved model for serving."""

    name: DnsLabel
    reference: str


class Quota(Part):
    """The limits of a tenant, or of one of its projects."""

    tenant: DnsLabel
    project: DnsLabel | None = None
    limits: dict[str, int]
    over_quota: Literal["hold", "refuse"] = "hold"
    report_only: tuple[str, ...] = ()
    borrow: dict[str, int] = {}
    lend: dict[str, int] = {}
    hours_exhausted: Literal["warn", "suspend", "end"] = "warn"
    priority_at_most: int | None = None


class Policies(Part):
    """The approval policies of a tenant, in order."""

    tenant: DnsLabel
    policies: tuple[ApprovalPolicy, ...]


class ProjectShare(Part):
    """How much the turns of a project weigh in the queue."""

    tenant: DnsLabel
    project: DnsLabel
    weight: int = Field(ge=1, le=1000)


class NodeGroup(Part):
    """`count` equal nodes `<name>-1` … (or just `<name>` for one), each with `cards` cards `<node>-c0` …"""

    name: DnsLabel
    count: int = Field(default=1, ge=1, le=10_000)
    accelerator: DnsLabel
    cards: int = Field(ge=0, le=64)
    card_memory_mib: MemoryMib
    cpu_milli: MilliCpu
    memory_mib: MemoryMib
    rack: str | None = None
    domain: str | None = None
    traits: tuple[DnsLabel, ...] = ()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the body of `PUT /v1/fleet/nodes/{node}` for each node, by name."""
        names = [self.name] if self.count == 1 else [f"{self.name}-{i}" for i in range(1, self.count + 1)]
        return {name: self._node(name) for name in names}

    def _node(self, name: str) -> dict[str, Any]:
        card = {"accelerator": self.accelerator, "memory_mib": self.card_memory_mib}
        body: dict[str, Any] = {
            "cpu_milli": self.cpu_milli,
            "memory_mib": self.memory_mib,
            "cards": [{"card": f"{name}-c{i}", **card} for i in range(self.cards)],
        }
        more = {"rack": self.rack, "domain": self.domain, "traits": list(self.traits)}
        return body | {key: value for key, value in more.items() if value}


class SickCard(Part):
    """A card that an agent reports from the start."""

    card: str
    status: Literal["suspect", "failed", "unknown"]
    code: str = ""
    message: str = ""


class Scenario(Part):
    """The whole file."""

    tenants: tuple[Tenant, ...]
    users: tuple[User, ...]
    accelerators: tuple[AcceleratorItem, ...] = ()
    specifications: tuple[SpecificationItem, ...] = ()
    offerings: tuple[OfferingItem, ...] = ()
    images: tuple[ImageItem, ...] = ()
    models: tuple[ModelItem, ...] = ()
    quotas: tuple[Quota, ...] = ()
    approval_policies: tuple[Policies, ...] = ()
    shares: tuple[ProjectShare, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    sick_cards: tuple[SickCard, ...] = ()
    backends: dict[ServiceModel, dict[str, Any]] = Field(default_factory=dict)
    """By service model, the body of `PUT /v1/sim/backends/{service_model}`."""

    @model_validator(mode="after")
    def names_exist(self) -> "Scenario":
        """Refuse a reference to something that the file does not declare, naming both."""
        for what, kind, name, declared in self._references():
            if name not in declared:
                raise ValueError(f"{what} names {kind} {name!r}, which is not declared")
        return self

    def _references(self) -> Iterator[tuple[str, str, str, set[str]]]:
        """Yield what names something, what kind of thing that is, its name, and the names that there are."""
        tenants = {PLATFORM} | {t.name for t in self.tenants}
        projects = {f"{t.name}/{p}" for t in self.tenants for p in t.projects}
        places: list[tuple[str, Grant | Quota]] = [(f"user {u.subject}", g) for u in self.users for g in u.grants]
        subjects = {u.subject for u in self.users}
        for user in self.users:
            if user.manager is not None:
                yield f"user {user.subject}", "manager", user.manager, subjects
        places += [(f"quota of {q.tenant}", q) for q in self.quotas]
        for what, at in places:
            yield what, "tenant", at.tenant, tenants
            if at.project is not None:
                yield what, "project", f"{at.tenant}/{at.project}", projects
        specifications = {s.name for s in self.specifications}
        for offering in self.offerings:
            what = f"offering {offering.name}"
            yield what, "specification", offering.specification, specifications
            fitting = {i.name for i in self.images if offering.service_model in i.service_models}
            yield from ((what, f"an image for {offering.service_model}", image, fitting) for image in offering.images)
        cards = {c["card"] for group in self.nodes for node in group.nodes().values() for c in node["cards"]}
        yield from (("sick_cards", "card", sick.card, cards) for sick in self.sick_cards)


def load_scenario(path: Path) -> Scenario:
    """Read and check a scenario. Raises ScenarioError with every fault and its place."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        faults = [f"  {'.'.join(map(str, fault['loc'])) or 'file'}: {fault['msg']}" for fault in error.errors()]
        raise ScenarioError("\n".join([f"{path} is not a scenario:", *faults])) from error
