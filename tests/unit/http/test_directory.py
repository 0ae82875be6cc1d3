"""People and tenants as every service knows them, in whatever order the tenants' facts come."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

from qm_events import EventData, new_event
from qm_events.catalog import MemberGranted, MemberRevoked, ProjectRegistered, SubjectErased, TenantRegistered
from qm_events.specs import Role
from qm_service.directory import DIRECTORY_PROJECTIONS, Grant, SubjectDoc, TenantDoc

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def fold(*facts: EventData) -> dict[str, dict[str, Any]]:
    """Return the documents by projection and key."""
    documents: dict[str, dict[str, Any]] = {projection.name: {} for projection in DIRECTORY_PROJECTIONS}
    for number, fact in enumerate(facts, 1):
        event = new_event(f"tenant/{fact.tenant}", number, NOW, "/test", fact)  # type: ignore[attr-defined]  # all have it
        for projection in DIRECTORY_PROJECTIONS:
            if found := projection.folds.get(type(fact)):
                for key in found.keys(event):
                    documents[projection.name][key] = found.apply(documents[projection.name].get(key), event)
    return documents


def granted(tenant: str, project: str | None, role: Role = Role.VIEWER) -> MemberGranted:
    """Return a grant for dora."""
    return MemberGranted(tenant=tenant, project=project, subject="dora", role=role)


def revoked(tenant: str, project: str | None, role: Role = Role.VIEWER) -> MemberRevoked:
    """Return its end."""
    return MemberRevoked(tenant=tenant, project=project, subject="dora", role=role)


def interleavings(left: Sequence[EventData], right: Sequence[EventData]) -> list[list[EventData]]:
    """Return all orders that keep the order within each side."""
    orders = sorted(set(permutations("l" * len(left) + "r" * len(right))))
    return [_merge(order, left, right) for order in orders]


def _merge(order: Sequence[str], left: Sequence[EventData], right: Sequence[EventData]) -> list[EventData]:
    sides = {"l": iter(left), "r": iter(right)}
    return [next(sides[side]) for side in order]


def test_the_order_of_tenants_changes_nothing() -> None:
    acme = [granted("acme", None), granted("acme", "p", Role.DEVELOPER), revoked("acme", None), granted("acme", "a")]
    beta = [granted("beta", "p"), SubjectErased(tenant="beta", subject="dora"), granted("beta", "q")]
    results = [fold(*order)["subjects"]["dora"].model_dump_json() for order in interleavings(acme, beta)]
    assert len(results) > 30
    assert len(set(results)) == 1


def test_a_subject_without_a_grant_has_no_document() -> None:
    assert fold(granted("acme", None), revoked("acme", None))["subjects"] == {"dora": None}
    assert fold(revoked("acme", None))["subjects"] == {"dora": None}


def test_a_grant_is_held_once_however_often_it_is_given() -> None:
    document = fold(granted("acme", None), granted("acme", None))["subjects"]["dora"]
    assert document == SubjectDoc(grants=(Grant("acme", None, Role.VIEWER),))


def test_what_changes_nothing_returns_the_same_document() -> None:
    (subjects, *_) = DIRECTORY_PROJECTIONS
    event = new_event("tenant/acme", 1, NOW, "/test", granted("acme", None))
    apply = subjects.folds[MemberGranted].apply
    first = apply(None, event)
    assert apply(first, event) is first


def test_a_tenant_names_its_projects_in_order_and_keeps_them_when_it_changes() -> None:
    facts = [
        TenantRegistered(tenant="acme", display_name="Acme", timezone="Europe/Berlin"),
        ProjectRegistered(tenant="acme", project="vision", display_name="Vision"),
        ProjectRegistered(tenant="acme", project="audio", display_name="Audio"),
        TenantRegistered(tenant="acme", display_name="Acme AG", timezone="Europe/Berlin"),
    ]
    assert fold(*facts)["tenants"]["acme"] == TenantDoc(
        display_name="Acme AG", timezone="Europe/Berlin", projects={"audio": "Audio", "vision": "Vision"}
    )


def test_a_document_survives_its_row() -> None:
    document = fold(granted("acme", None), granted("acme", "p", Role.APPROVER))["subjects"]["dora"]
    assert SubjectDoc.model_validate_json(document.model_dump_json()) == document
