"""What `decide` and `settle` ask without a scan: lines of held orders, open questions, prices, and who has which role.
Follows the resident documents and is built anew from them at each start."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from qm_admission import thresholds
from qm_admission.catalogue import Specifications
from qm_admission.hours import Life
from qm_admission.lending import Lending
from qm_admission.lines import Lines, Place, Spot
from qm_admission.prices import OFFERINGS, Prices
from qm_admission.quota import LENT, Block, Quantities, Scope, path_of
from qm_admission.timers import Clock, Timers
from qm_admission.watch import OpenQuestions
from qm_events.ids import PLATFORM

_NO_LIFE = Life(0)


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
    life: Life = _NO_LIFE
    """How long it takes how many cards: hours depend on when it begins."""
    wakes_at: datetime | None = None
    """When the month of the hours that it waits for ends."""

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
        self.lending = Lending()
        self.specifications = Specifications()
        self.looks = Timers()
        self.wakes = Timers()
        self.reached: dict[thresholds.Spot, None] = {}
        """Where a threshold may be reached, in order, each once."""
        self._waiting: dict[str, Waiting] = {}
        self._holders: dict[tuple[str, str | None, str], set[str]] = defaultdict(set)
        self._follow: dict[str, Callable[[str, Any, Any], None]] = {
            "waiting": self._follow_waiting,
            "scopes": self._follow_scope,
            "subjects": self._follow_subject,
            "approvals": self.questions.approval,
            "policies": self.questions.policies,
            "organisation": self.questions.position,
            "delegations": self.questions.absences,
            OFFERINGS: self.prices.follow,
            "specifications": lambda name, _, new: self.specifications.changed(name, new),
            "clocks": lambda order, _, new: self.looks.follow(order, new),
        }

    def changed(self, projection: str, key: str, old: Any | None, new: Any | None) -> None:
        """Follow one resident document."""
        if follow := self._follow.get(projection):
            follow(key, old, new)

    @property
    def unexamined(self) -> bool:
        """Whether something was noticed that `settle` has not looked at."""
        return bool(self.reached or self.lines.woken)

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

    def take_reached(self) -> list[thresholds.Spot]:
        """Return where a threshold may be reached, once."""
        found = list(self.reached)
        self.reached.clear()
        return found

    def wake_due(self, now: datetime) -> None:
        """Have those examined for whom a new month has begun."""
        for order, _ in self.wakes.take(now):
            if (waiting := self._waiting.get(order)) and waiting.status == "held":
                self.lines.wake(waiting.place)

    def _follow_scope(self, name: str, old: Scope | None, new: Scope | None) -> None:
        self.lines.posted(name, old, new)
        for tenant, dimension in self.lending.posted(name, old, new):
            self.lines.wake_head(tenant, LENT + dimension)
        self.reached.update(dict.fromkeys(thresholds.crossed(name, old, new)))

    def _follow_waiting(self, order: str, old: Waiting | None, new: Waiting | None) -> None:
        before, after = _held(old), _held(new)
        at = after.wakes_at if after else None
        self.wakes.follow(order, Clock(after.tenant, after.project, at) if after and at else None)
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
