"""What open questions depend on, kept so that a change finds those that it can touch without a scan. Pure.

Part of the index: follows resident documents, and is built anew from them at each start; then every open question is
looked at once, so that a change just before the end of a process is not lost.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import Any

from qm_admission.bench import ADMINS
from qm_admission.fields import names_in
from qm_admission.question import Approval
from qm_events.approval import Absence, Approvers
from qm_events.ids import PLATFORM

Trigger = tuple[str, ...]
"""("subject", s) | ("role", tenant, role) | ("group", tenant, group) | ("position", tenant, subject)"""


class OpenQuestions:
    """The open questions: by what can change them, by who may answer, by when something is due; and waiting orders by
    tenant, for changes of its policies."""

    def __init__(self) -> None:
        self.again = False
        """Settle has asked streams whose answer it could not foresee: come again at once."""
        self._inbox: dict[str, set[str]] = defaultdict(set)
        self._watching: dict[Trigger, set[str]] = defaultdict(set)
        self._open: dict[str, Approval] = {}
        self._alarms: list[tuple[datetime, str]] = []
        self._turns: list[tuple[datetime, str]] = []
        self._touched: dict[str, None] = {}
        self._reviewed: dict[str, None] = {}
        self._waiting: dict[str, set[str]] = defaultdict(set)
        self._members: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._positions: dict[tuple[str, str], Any] = {}
        self._reports: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._stands_for: dict[str, set[str]] = defaultdict(set)

    # ---- answers

    def members(self, tenant: str, group: str) -> Iterable[str]:
        """Return who is in a group."""
        return self._members.get((tenant, group), ())

    def inbox(self, subject: str) -> list[str]:
        """Return the open approvals on which a subject may speak and has not."""
        return sorted(self._inbox.get(subject, ()))

    def next_at(self) -> datetime | None:
        """Return when something is due; the past while something is noticed and not looked at."""
        while self._alarms and not self._rings(*self._alarms[0]):
            heappop(self._alarms)
        return min((heap[0][0] for heap in (self._alarms, self._turns) if heap), default=None)

    def take_alarms(self, now: datetime) -> list[Approval]:
        """Return the questions for which something is due, once."""
        found = {}
        while self._alarms and self._alarms[0][0] <= now:
            at, approval = heappop(self._alarms)
            if self._rings(at, approval):
                found[approval] = self._open[approval]
        return list(found.values())

    def take_touched(self, now: datetime) -> list[Approval]:
        """Return the open questions whose people may have changed, once."""
        while self._turns and self._turns[0][0] <= now:
            self.fire(("subject", heappop(self._turns)[1]))
        touched, self._touched = self._touched, {}
        return [self._open[approval] for approval in touched if approval in self._open]

    def take_reviewed(self) -> list[tuple[str, list[str]]]:
        """Return the tenants whose policies changed, with their waiting orders, once."""
        reviewed, self._reviewed = self._reviewed, {}
        return [(tenant, sorted(self._waiting.get(tenant, ()))) for tenant in reviewed]

    def fire(self, *triggers: Trigger) -> None:
        """Note what has changed."""
        for trigger in triggers:
            self._touched |= dict.fromkeys(sorted(self._watching.get(trigger, ())))

    # ---- documents

    def approval(self, key: str, old: Approval | None, new: Approval | None) -> None:
        """Follow an open question; new None once it is closed."""
        for person in _speakers(old):
            self._inbox[person].discard(key)
        for trigger in _watched(old):
            self._watching[trigger].discard(key)
        self._open.pop(key, None)
        if new is None:
            return
        self._open[key] = new
        for person in _speakers(new):
            self._inbox[person].add(key)
        for trigger in _watched(new):
            self._watching[trigger].add(key)
        if new.alarm_at:
            # Also when it is the old instant: two things may be due at it, and one was taken.
            heappush(self._alarms, (new.alarm_at, key))
        if old is None:
            self._touched[key] = None

    def waiting(self, order: str, old: Any | None, new: Any | None) -> None:
        """Follow an order that waits."""
        if old is not None:
            self._waiting[old.tenant].discard(order)
        if new is not None:
            self._waiting[new.tenant].add(order)

    def policies(self, tenant: str, old: Any | None, _: Any | None) -> None:
        """Follow the policies of a tenant; at the start there is nothing to compare them with."""
        if old is not None or self._waiting.get(tenant):
            self._reviewed[tenant] = None

    def subject(self, subject: str, old: Any | None, new: Any | None) -> None:
        """Follow what a subject may do."""
        before, after = set(old.grants if old else ()), set(new.grants if new else ())
        for tenant, _, role in sorted(before ^ after, key=str):
            position = self._positions.get((tenant, subject))
            self.fire(
                ("subject", subject),
                ("role", tenant, role),
                *(("group", tenant, group) for group in (position.groups if position else ())),
                *(("position", tenant, report) for report in self._reports.get((tenant, subject), ())),
                *(("subject", absent) for absent in self._stands_for.get(subject, ())),
            )

    def position(self, key: str, old: Any | None, new: Any | None) -> None:
        """Follow the manager and the groups of a subject."""
        tenant, _, subject = key.partition("/")
        for doc, change in ((old, set.discard), (new, set.add)):
            for group in doc.groups if doc else ():
                change(self._members[tenant, group], subject)
            if doc and doc.manager:
                change(self._reports[tenant, doc.manager], subject)
        self._positions[tenant, subject] = new
        groups = set(old.groups if old else ()) ^ set(new.groups if new else ())
        self.fire(("position", tenant, subject), *(("group", tenant, group) for group in sorted(groups)))

    def absences(self, key: str, old: tuple[Absence, ...] | None, new: tuple[Absence, ...] | None) -> None:
        """Follow when a subject is away, and who stands in for him."""
        subject = key.partition("/")[2]
        for docs, change in ((old, set.discard), (new, set.add)):
            for absence in docs or ():
                if absence.delegate:
                    change(self._stands_for[absence.delegate], subject)
        for absence in new or ():
            heappush(self._turns, (absence.starts_at, subject))
            heappush(self._turns, (absence.ends_at, subject))
        self.fire(("subject", subject))

    def _rings(self, at: datetime, approval: str) -> bool:
        asked = self._open.get(approval)
        return asked is not None and asked.alarm_at == at


def _speakers(asked: Approval | None) -> set[str]:
    return set(asked.approvers) - {vote.voter for vote in asked.votes} if asked else set()


def _watched(asked: Approval | None) -> Iterator[Trigger]:
    if asked is None:
        return
    for person in asked.approvers:
        yield "subject", person
    rule, spare = asked.rule, ADMINS if asked.by.levels else None
    for approvers in (rule.approvers, rule.escalate_to, spare):
        if approvers is not None:
            yield from _named(approvers, asked)


def _named(approvers: Approvers, asked: Approval) -> Iterator[Trigger]:
    if approvers.role:
        yield "role", asked.tenant, approvers.role
        yield "role", PLATFORM, approvers.role
    for subject in approvers.subjects or ():
        yield "subject", subject
    for group in approvers.groups or ():
        yield "group", asked.tenant, group
    if approvers.manager:
        yield "position", asked.tenant, asked.request.requester
    if approvers.field:
        for subject in names_in(asked.request, approvers.field):
            yield "subject", subject
