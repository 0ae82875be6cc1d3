"""Who and what there is: streams `tenant/<tenant>`. The catalogue of all tenants is in the stream `tenant/platform`.

A command is the fact that is wished for. The state is the last fact about each thing, so a wish that repeats what is
known leads to nothing, and the rules below say which changes are lawful.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from qm_events import EventData
from qm_events.catalog import (
    AcceleratorPublished,
    CatalogueItemStatusChanged,
    GroupJoined,
    GroupLeft,
    ImagePublished,
    MemberGranted,
    MemberRevoked,
    ModelPublished,
    OfferingPublished,
    ProjectRegistered,
    SpecificationPublished,
    SubjectErased,
    SubjectManagerSet,
    SubjectRegistered,
    TenantRegistered,
)
from qm_events.ids import PLATFORM, stream_name
from qm_events.specs import CatalogueStatus, Role
from qm_service.model import Act, Context, Decider, Decision, Rejected

PLATFORM_ROLES = frozenset({Role.OPERATOR, Role.AUDITOR})

Key = tuple[str, ...]
State = Mapping[Key, Any]
"""What a fact is about -> the last fact about it."""

_KEYS: Mapping[type[EventData], Callable[[Any], Key]] = {
    TenantRegistered: lambda _: ("tenant",),
    ProjectRegistered: lambda d: ("project", d.project),
    SubjectRegistered: lambda d: ("subject", d.subject),
    SubjectErased: lambda d: ("subject", d.subject),
    MemberGranted: lambda d: ("member", d.project or "", d.subject, d.role),
    MemberRevoked: lambda d: ("member", d.project or "", d.subject, d.role),
    SubjectManagerSet: lambda d: ("manager", d.subject),
    GroupJoined: lambda d: ("group", d.group, d.subject),
    GroupLeft: lambda d: ("group", d.group, d.subject),
    SpecificationPublished: lambda d: ("specification", d.specification.name),
    OfferingPublished: lambda d: ("offering", d.name),
    ImagePublished: lambda d: ("image", d.name),
    ModelPublished: lambda d: ("model", d.name),
    AcceleratorPublished: lambda d: ("accelerator", d.accelerator.name),
    CatalogueItemStatusChanged: lambda d: ("status", d.kind, d.name),
}


@dataclass(frozen=True, slots=True)
class Declare:
    """Make this so. The version of a specification is given by the decision, whatever the wish says."""

    fact: EventData


def declare(tenant: str, fact: EventData) -> Act:
    """Return the act that brings a wish to the directory of its tenant."""
    project = getattr(fact, "project", None)
    return Act(stream_name("tenant", tenant), Declare(fact), tenant, project, correlation=None)


def _taken(what: str, name: str) -> Rejected:
    return Rejected("already-exists", f"{what} {name} exists and is another", "Choose another name.")


def _unknown(what: str, name: str) -> Rejected:
    return Rejected("unknown-name", f"there is no {what} {name}", f"Publish or register the {what} first.")


def _tenant(_: State, old: Any, new: TenantRegistered) -> Decision:
    return _taken("tenant", new.tenant) if old else (new,)


def _project(state: State, old: Any, new: ProjectRegistered) -> Decision:
    if new.tenant == PLATFORM:
        return Rejected("platform-has-no-projects", "no order can be placed in the tenant platform")
    if ("tenant",) not in state:
        return _unknown("tenant", new.tenant)
    return _taken("project", new.project) if old else (new,)


def _subject(state: State, _: Any, new: SubjectRegistered) -> Decision:
    return (new,) if ("tenant",) in state else _unknown("tenant", new.tenant)


def _erase(_: State, old: Any, new: SubjectErased) -> Decision:
    return (new,) if old else _unknown("subject", new.subject)


def _grant(state: State, _: Any, new: MemberGranted) -> Decision:
    if ("tenant",) not in state:
        return _unknown("tenant", new.tenant)
    if new.project is not None and ("project", new.project) not in state:
        return _unknown("project", new.project)
    if (new.role in PLATFORM_ROLES) != (new.tenant == PLATFORM):
        return Rejected(
            "role-out-of-place",
            f"the role {new.role.value} cannot be granted in the tenant {new.tenant}",
            "Operators and auditors belong to the tenant platform, all other roles to the other tenants.",
        )
    return (new,)


def _revoke(_: State, old: Any, new: MemberRevoked) -> Decision:
    return (new,) if isinstance(old, MemberGranted) else ()


def _manager(state: State, old: SubjectManagerSet | None, new: SubjectManagerSet) -> Decision:
    if ("tenant",) not in state:
        return _unknown("tenant", new.tenant)
    if new.manager == new.subject:
        return Rejected("own-manager", f"{new.subject} cannot be his own manager", "Name somebody else, or nobody.")
    for name in filter(None, (new.subject, new.manager)):
        if not _member(state, name):
            return _unknown("member", name)
    return (new,) if old or new.manager else ()


def _join(state: State, _: Any, new: GroupJoined) -> Decision:
    if ("tenant",) not in state:
        return _unknown("tenant", new.tenant)
    return (new,) if _member(state, new.subject) else _unknown("member", new.subject)


def _leave(_: State, old: Any, new: GroupLeft) -> Decision:
    return (new,) if isinstance(old, GroupJoined) else ()


def _member(state: State, subject: str) -> bool:
    """Whether a subject has, or had, a role in the tenant, or is registered there."""
    return ("subject", subject) in state or any(key[0] == "member" and key[2] == subject for key in state)


def _specification(_: State, old: SpecificationPublished | None, new: SpecificationPublished) -> Decision:
    if old is None:
        return (_versioned(new, 1),)
    now = old.specification.version
    return () if _versioned(new, now) == old else (_versioned(new, now + 1),)


def _versioned(fact: SpecificationPublished, version: int) -> SpecificationPublished:
    return fact.model_copy(update={"specification": fact.specification.model_copy(update={"version": version})})


def _offering(state: State, old: OfferingPublished | None, new: OfferingPublished) -> Decision:
    if ("specification", new.specification) not in state:
        return _unknown("specification", new.specification)
    for image in new.images:
        if ("image", image) not in state:
            return _unknown("image", image)
    if old and (old.specification, old.service_model) != (new.specification, new.service_model):
        return _taken("offering", new.name)
    if old and old.currency != new.currency:
        return Rejected("already-exists", f"{new.name} is sold in {old.currency}", "Publish an offering of its own.")
    return (new,)


def _image(_: State, old: Any, new: ImagePublished) -> Decision:
    return _taken("image", new.name) if old else (new,)


def _model(_: State, old: Any, new: ModelPublished) -> Decision:
    return _taken("model", new.name) if old else (new,)


def _status(state: State, old: CatalogueItemStatusChanged | None, new: CatalogueItemStatusChanged) -> Decision:
    if (new.kind, new.name) not in state:
        return _unknown(new.kind, new.name)
    return () if old is None and new.status is CatalogueStatus.ACTIVE else (new,)


_RULES: Mapping[type[EventData], Callable[[State, Any, Any], Decision]] = {
    TenantRegistered: _tenant,
    ProjectRegistered: _project,
    SubjectRegistered: _subject,
    SubjectErased: _erase,
    MemberGranted: _grant,
    MemberRevoked: _revoke,
    SubjectManagerSet: _manager,
    GroupJoined: _join,
    GroupLeft: _leave,
    SpecificationPublished: _specification,
    OfferingPublished: _offering,
    ImagePublished: _image,
    ModelPublished: _model,
    AcceleratorPublished: lambda _, __, new: (new,),
    CatalogueItemStatusChanged: _status,
}


def decide(state: State, command: Declare, _: Context) -> Decision:
    """Return the facts that make it so: none where it is so already."""
    fact = command.fact
    old = state.get(_KEYS[type(fact)](fact))
    return () if old == fact else _RULES[type(fact)](state, old, fact)


_PLACE: Mapping[str, int] = {"member": 2, "group": 2, "manager": 1}
"""Where the subject is in the key of what it has in the tenant."""


def _is(key: Key, subject: str) -> bool:
    return key[_PLACE[key[0]]] == subject


def evolve(state: State, data: EventData) -> State:
    """Return the directory after a fact; one that is no directory fact raises KeyError."""
    if isinstance(data, SubjectErased):
        state = {key: fact for key, fact in state.items() if key[0] not in _PLACE or not _is(key, data.subject)}
    return {**state, _KEYS[type(data)](data): data}


TENANT: Decider[State] = Decider("tenant", MappingProxyType({}), decide, evolve)
