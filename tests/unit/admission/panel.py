"""A desk with an organisation around it: people who may decide by role, name, group, as manager or by a field."""

from typing import Any

from qm_admission.book import SetPolicies
from qm_admission.delegations import Days, SetAbsences
from qm_events.admission import Submission
from qm_events.approval import ApprovalLevel, ApprovalPolicy, Approvers
from qm_events.catalog import GroupJoined, MemberGranted, MemberRevoked, SubjectManagerSet
from qm_events.specs import OrderRequest, Role
from qm_service.model import Rejected
from tests.unit.admission.desk import TENANT, Desk, furnished, names

BOARD = ("eva", "fay", "gus")


def assembled() -> Desk:
    """Beside the people of the desk: a board of three, mia who is dev's manager, and tina the admin."""
    desk = furnished()
    for subject in (*BOARD, "mia", "sam"):
        grant(desk, subject, Role.VIEWER)
    grant(desk, "tina", Role.TENANT_ADMIN)
    for subject in BOARD:
        desk.tell(GroupJoined(tenant=TENANT, group="board", subject=subject), "tenant/acme")
    desk.tell(SubjectManagerSet(tenant=TENANT, subject="dev", manager="mia"), "tenant/acme")
    return desk


def grant(desk: Desk, subject: str, role: Role, project: str | None = None) -> list[Any]:
    fact = MemberGranted(tenant=TENANT, project=project, subject=subject, role=role)
    return desk.tell(fact, "tenant/acme")


def revoke(desk: Desk, subject: str, role: Role, project: str | None = None) -> list[Any]:
    return desk.tell(MemberRevoked(tenant=TENANT, project=project, subject=subject, role=role), "tenant/acme")


def level(rule: str = "any", n: int | None = None, *, escalate_to: dict[str, Any] | None = None, **more: Any) -> Any:
    """A level; what says who may decide is told from the rest by name."""
    who = {name: more.pop(name) for name in Approvers.model_fields if name in more}
    to = Approvers(**escalate_to) if escalate_to else None
    return ApprovalLevel.model_validate(
        {"approvers": Approvers(**who or {"groups": ("board",)}), "rule": rule, "n": n, "escalate_to": to} | more
    )


def policy(*levels: Any, **more: Any) -> ApprovalPolicy:
    return ApprovalPolicy(**{"name": "big", "levels": levels} | more)


def put(desk: Desk, *policies: ApprovalPolicy) -> list[Any]:
    said = desk.command("quota/acme", SetPolicies(TENANT, policies))
    assert not isinstance(said, Rejected), said
    return said


def away(desk: Desk, subject: str, *days: Days) -> list[Any]:
    said = desk.command("delegations/acme", SetAbsences(TENANT, subject, days))
    assert names(said)[0] == "delegation.set"
    return said[1:]


def submission(asked: OrderRequest, desk: Desk) -> Submission:
    return Submission(request=asked, digest="d", submitted_at=desk.now)


def asked_of(desk: Desk, order: str = "o1") -> Any:
    return desk.states[f"admission/{order}"].asked
