"""What every service knows of people and tenants: three projections of the topic `directory`, wholly in memory.

Put `DIRECTORY_PROJECTIONS` into a service's `Definition`; the catalog does so too and folds its own facts with them.
Only facts of one tenant are ordered, so a document holds each tenant's part apart from the others' and in sorted order.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from qm_events import Event
from qm_events.catalog import MemberGranted, MemberRevoked, ProjectRegistered, SubjectErased, TenantRegistered
from qm_events.specs import Role
from qm_service.model import Fold, Projection
from qm_service.organisation import POSITIONS

SUBJECTS = "subjects"
TENANTS = "tenants"


class Grant(NamedTuple):
    """A role, in one project or (project None) in the whole tenant."""

    tenant: str
    project: str | None
    role: Role


class SubjectDoc(BaseModel):
    """What a subject may do. A subject without a grant has no document."""

    model_config = ConfigDict(frozen=True)

    grants: tuple[Grant, ...]


class TenantDoc(BaseModel):
    """A tenant and its projects: name to display name."""

    model_config = ConfigDict(frozen=True)

    display_name: str
    timezone: str = "UTC"
    projects: dict[str, str] = {}


def _with(doc: SubjectDoc | None, grants: Iterable[Grant]) -> SubjectDoc | None:
    ordered = tuple(sorted(set(grants), key=lambda grant: (grant.tenant, grant.project or "", grant.role)))
    if doc is not None and doc.grants == ordered:
        return doc
    return SubjectDoc(grants=ordered) if ordered else None


def _grants(doc: SubjectDoc | None) -> Sequence[Grant]:
    return doc.grants if doc else ()


def _granted(doc: SubjectDoc | None, event: Event[Any]) -> SubjectDoc | None:
    return _with(doc, [*_grants(doc), _grant(event)])


def _revoked(doc: SubjectDoc | None, event: Event[Any]) -> SubjectDoc | None:
    return _with(doc, (grant for grant in _grants(doc) if grant != _grant(event)))


def _grant(event: Event[Any]) -> Grant:
    return Grant(event.data.tenant, event.data.project, event.data.role)


def _erased(doc: SubjectDoc | None, event: Event[Any]) -> SubjectDoc | None:
    # Of this tenant only: facts of another tenant about the same subject may be folded before or after this one.
    return _with(doc, (grant for grant in _grants(doc) if grant.tenant != event.data.tenant))


def _tenant_registered(doc: TenantDoc | None, event: Event[Any]) -> TenantDoc:
    projects = doc.projects if doc else {}
    return TenantDoc(display_name=event.data.display_name, timezone=event.data.timezone, projects=projects)


def _project_registered(doc: TenantDoc | None, event: Event[Any]) -> TenantDoc:
    doc = doc or TenantDoc(display_name=event.data.tenant)
    projects = doc.projects | {event.data.project: event.data.display_name}
    return doc.model_copy(update={"projects": dict(sorted(projects.items()))})


def _by_subject(event: Event[Any]) -> Sequence[str]:
    return (event.data.subject,)


def _always(_: object) -> bool:
    return True


DIRECTORY_PROJECTIONS: tuple[Projection[Any], ...] = (
    Projection(
        name=SUBJECTS,
        version=1,
        model=SubjectDoc,
        folds={
            MemberGranted: Fold(_granted, _by_subject),
            MemberRevoked: Fold(_revoked, _by_subject),
            SubjectErased: Fold(_erased, _by_subject),
        },
        resident=_always,
    ),
    Projection(
        name=TENANTS,
        version=1,
        model=TenantDoc,
        folds={TenantRegistered: Fold(_tenant_registered), ProjectRegistered: Fold(_project_registered)},
        resident=_always,
    ),
    POSITIONS,
)
"""For every `Definition.projections`."""
