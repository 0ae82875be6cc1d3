"""How much the turns of projects weigh: streams `share/<tenant>/<project>`, and the document that follows from them."""

from dataclasses import dataclass
from typing import Any

from qm_events import Event
from qm_events.scheduler import ShareSet
from qm_service.model import Context, Decider, Decision, Fold, Projection, Rejected

WEIGHT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Share:
    """The state of a project's stream, and its document."""

    tenant: str = ""
    project: str = ""
    weight: int = 1


@dataclass(frozen=True, slots=True)
class SetShare:
    """Let the project's turns weigh so much."""

    tenant: str
    project: str
    weight: int


def _decide(state: Share, command: SetShare, ctx: Context) -> Decision:
    tenant = ctx.docs.resident("tenants").get(command.tenant)
    if tenant is None or command.project not in tenant.projects:
        return Rejected("project-unknown", f"There is no project {command.tenant}/{command.project}.")
    if state.weight == command.weight:
        return []
    return [ShareSet(tenant=command.tenant, project=command.project, weight=command.weight)]


def _evolve(_: Share, fact: ShareSet) -> Share:
    return Share(fact.tenant, fact.project, fact.weight)


def _folded(_: Share | None, event: Event[Any]) -> Share:
    return _evolve(Share(), event.data)


SHARE = Decider("share", Share(), _decide, _evolve)
SHARES = Projection("shares", 1, Share, {ShareSet: Fold(_folded)}, resident=lambda _: True)
