"""What `decide` and `settle` ask without a scan: lines of held orders, open questions, prices, and who has which role.
Follows the resident documents and is built anew from them at each start."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from qm_admission.lines import Lines, Place, Spot
from qm_admission.prices import OFFERINGS, Prices
from qm_admission.quota import Block, Quantities, path_of
from qm_admission.watch import OpenQuestions
from qm_events.ids import PLATFORM


@dataclass(frozen=True, slots=True)
class Waiting:
    """An order that has no answer yet; the document is gone once it has."""

    order: str
    tenant: str
    project: str
    submitted_at: datetime
    status: Literal["pending_approval", "held"]
    lapses_at: datetime | None = None
    amounts: Quantities = field(default_factory=dict)
    blocked: tuple[Block, ...] = ()
    """What holds it; it stands in the line of each."""

    @property
    def place(self) -> Place:
        """The rank in every line."""
        return (self.submitted_at, self.order)

    @property
    def spots(self) -> set[Spot]:
        """The lines in which it stands."""
        return {(scope, dimension) for scope, dimension, _ in self.blocked}


class AdmissionIndex:
    """Implements `qm_service.model.Index`."""

    def __init__(self) -> None:
        self.lines = Lines()
        self.questions = OpenQuestions()
        self.prices = Prices()
        self._waiting: dict[str, Waiting] = {}
        self._holders: dict[tuple[str, str | None, str], set[str]] = defaultdict(set)
        self._follow: dict[str, Callable[[str, Any, Any], None]] = {
            "waiting": self._follow_waiting,
            "scopes": self.lines.posted,
            "subjects": self._follow_subject,
            "approvals": self.questions.approval,
            "policies": self.questions.policies,
            "organisation": self.questions.position,
            "delegations": self.questions.absences,
            OFFERINGS: self.prices.follow,
        }

    def changed(self, projection: str, key: str, old: Any | None, new: Any | None) -> None:
        """Follow one resident document."""
        if follow := self._follow.get(projection):
            follow(key, old, new)

    def next_woken(self) -> Waiting | None:
        """Return the oldest held order that is to be examined, once; None when there is none."""
        while place := self.lines.next_woken():
            waiting = self._waiting.get(place[1])
            if waiting and waiting.status == "held":
                return waiting
        return None

    def holders(self, tenant: str, project: str, role: str) -> Iterable[str]:
        """Return who has the role in the project, by a grant there, in the tenant or on the platform."""
        for place in ((tenant, project), (tenant, None), (PLATFORM, None)):
            yield from self._holders.get((*place, role), ())

    def _follow_waiting(self, order: str, old: Waiting | None, new: Waiting | None) -> None:
        before, after = _held(old), _held(new)
        if new is None:
            self._waiting.pop(order, None)
        else:
            self._waiting[order] = new
        self.questions.waiting(order, old, new)
        left, joined = before.spots if before else set(), after.spots if after else set()
        if after:
            self.lines.enter(after.place, path_of(after.tenant, after.project), joined - left)
        if before:
            path = () if after else path_of(before.tenant, before.project)
            self.lines.quit(before.place, path, left - joined)

    def _follow_subject(self, subject: str, old: Any | None, new: Any | None) -> None:
        for tenant, project, role in old.grants if old else ():
            self._holders[tenant, project, role].discard(subject)
        for tenant, project, role in new.grants if new else ():
            self._holders[tenant, project, role].add(subject)
        self.questions.subject(subject, old, new)


def _held(waiting: Waiting | None) -> Waiting | None:
    return waiting if waiting and waiting.status == "held" else None
