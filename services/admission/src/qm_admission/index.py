"""What `decide` and `settle` ask without a scan: lines of held orders, approvals by the time at which they lapse, and
who has which role. Follows the resident documents and is built anew from them at each start."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, Literal

from qm_admission.lines import Lines, Place, Spot
from qm_admission.quota import Block, Quantities, path_of
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
        self._waiting: dict[str, Waiting] = {}
        self._lapses: list[tuple[datetime, str]] = []
        self._holders: dict[tuple[str, str | None, str], set[str]] = defaultdict(set)
        self._follow: dict[str, Callable[[str, Any, Any], None]] = {
            "waiting": self._follow_waiting,
            "scopes": self.lines.posted,
            "subjects": self._follow_subject,
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

    def next_lapse(self) -> datetime | None:
        """Return when the next open approval lapses."""
        while self._lapses and not self._open(*self._lapses[0]):
            heappop(self._lapses)
        return self._lapses[0][0] if self._lapses else None

    def take_lapsed(self, now: datetime) -> list[Waiting]:
        """Return the orders whose open approval has lapsed by now, once."""
        lapsed = []
        while (at := self.next_lapse()) and at <= now:
            lapsed.append(self._waiting[heappop(self._lapses)[1]])
        return lapsed

    def holders(self, tenant: str, project: str, role: str) -> Iterable[str]:
        """Return who has the role in the project, by a grant there, in the tenant or on the platform."""
        for place in ((tenant, project), (tenant, None), (PLATFORM, None)):
            yield from self._holders.get((*place, role), ())

    def _open(self, lapses_at: datetime, order: str) -> bool:
        waiting = self._waiting.get(order)
        return waiting is not None and waiting.lapses_at == lapses_at

    def _follow_waiting(self, order: str, old: Waiting | None, new: Waiting | None) -> None:
        before, after = _held(old), _held(new)
        if new is None:
            self._waiting.pop(order, None)
        else:
            self._waiting[order] = new
            if new.lapses_at:
                heappush(self._lapses, (new.lapses_at, order))
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


def _held(waiting: Waiting | None) -> Waiting | None:
    return waiting if waiting and waiting.status == "held" else None
