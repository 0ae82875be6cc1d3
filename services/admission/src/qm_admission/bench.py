"""Who may speak to a question, and whether enough have spoken. Pure: the directory is handed in by the context.

A seat belongs to whom the level names: by role in the project, by name, by group, as the manager of the requester, by a
field of the order. Its holder may speak, and his delegates while he is away. One word a seat and one a person: whoever
stands in for another does not speak twice. The requester has no seat, and speaks for none, unless the policy allows
it. When fewer can agree than must, the level's `escalate_to`, or else the admins of the tenant, get seats too (policies
with `levels` only). Nobody is a visible state, never a consent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qm_admission.fields import names_in
from qm_admission.question import Approval
from qm_events.approval import Absence, Approvers
from qm_events.ids import PLATFORM
from qm_events.specs import OrderRequest, Role
from qm_service.model import Context

Grant = tuple[str, str | None, str]
"""(tenant, project or None for all of them, role)."""
ADMINS = Approvers(role=Role.TENANT_ADMIN)
DELEGATIONS = "delegations"


@dataclass(frozen=True, slots=True)
class Bench:
    """The seats of a question now."""

    seats: Mapping[str, frozenset[str]]
    """Holder -> who else may speak for him now."""
    open_: frozenset[str]
    """Seats that somebody can fill: the holder is not away, or a delegate is at hand who has no seat himself."""
    must: frozenset[str]
    """Those of them that the level itself names."""
    reach: int
    """How many can agree at most, given who has refused."""
    away: frozenset[str]

    @property
    def approvers(self) -> tuple[str, ...]:
        """All who may speak, sorted."""
        return tuple(sorted({*self.seats, *(name for others in self.seats.values() for name in others)}))


def bench(asked: Approval, ctx: Context) -> Bench:
    """Return the seats as the directory and the delegations are now."""
    rule, room = asked.rule, _Room(asked.request, asked.by.self_approval, ctx)
    named = room.chosen(rule.approvers)
    if asked.escalated_at and rule.escalate_to:
        named |= room.chosen(rule.escalate_to)
    found = _seated(named, named, asked, room)
    if asked.by.levels is None:
        return found
    spare = room.chosen(rule.escalate_to or ADMINS)
    if found.reach >= asked.needed:
        spare &= {vote.seat for vote in asked.votes}
    return _seated(named | spare, named, asked, room) if spare - named else found


def _seated(holders: set[str], named: set[str], asked: Approval, room: "_Room") -> Bench:
    refused = {vote.seat for vote in asked.votes if vote.verdict == "deny"}
    away = {holder: room.delegates(holder) for holder in sorted(holders) if room.absences(holder)}
    here = holders - set(away)
    outside = {holder: others - here for holder, others in away.items() if others - here}
    helpers = frozenset[str]().union(*outside.values())
    stood_for = len(set(outside) - refused)
    return Bench(
        seats={holder: frozenset(away.get(holder, ())) for holder in sorted(holders)},
        open_=frozenset(here | set(outside)),
        must=frozenset((here | set(outside)) & named),
        reach=len(here - refused) + min(stood_for, len(helpers)),
        away=frozenset(away),
    )


def seats_of(found: Bench, person: str) -> Iterator[str]:
    """Yield the seats for which a person may speak, his own first."""
    if person in found.seats:
        yield person
    yield from (holder for holder, others in found.seats.items() if person in others)


def awaited(asked: Approval, found: Bench) -> tuple[str, ...]:
    """Return whose word is awaited: of each open seat that has not spoken, the holder or, while he is away, others."""
    spoken, voters = {vote.seat for vote in asked.votes}, {vote.voter for vote in asked.votes}
    silent = found.open_ - spoken
    people = {holder for holder in silent if holder not in found.away}
    people |= {name for holder in silent & found.away for name in found.seats[holder]}
    return tuple(sorted(people - voters))


def agreed(asked: Approval, found: Bench) -> set[str]:
    """Return the seats that agreed and still are seats."""
    return {vote.seat for vote in asked.votes if vote.verdict == "approve" and vote.seat in found.seats}


def fulfilled(asked: Approval, found: Bench) -> bool:
    """Tell whether so many agreed as the level demands."""
    yes = agreed(asked, found)
    if len(yes) < asked.needed:
        return False
    return asked.rule.rule != "all" or asked.escalated_at is not None or found.must <= yes


def refuses(asked: Approval, before: Bench, seat: str) -> bool:
    """Tell whether a refusal from this seat ends the question, seen from before it."""
    return asked.rule.rule != "n_of_m" or before.reach - (seat in before.open_) < asked.needed


def needed_at_first(asked: Approval, ctx: Context) -> int:
    """Return how many must agree. For `all` it is as many as are named when asked: nobody's leaving lowers it."""
    rule = asked.rule
    if rule.rule == "all":
        return max(1, len(_Room(asked.request, asked.by.self_approval, ctx).chosen(rule.approvers)))
    return rule.n or 1


def present(tenant: str, grants: Iterable[Grant]) -> bool:
    """Tell whether somebody has a role in the tenant; operators have one everywhere. Whoever has none has gone."""
    return any(at == tenant or (at == PLATFORM and role == Role.OPERATOR) for at, _, role in grants)


def holds(role: Role, request: OrderRequest, grants: Iterable[Grant]) -> bool:
    """Tell whether one of the grants gives the role in the project of the order."""
    return any(
        held == role
        and project in (None, request.project)
        and (at == request.tenant or (at == PLATFORM and role == Role.OPERATOR))
        for at, project, held in grants
    )


class _Room:
    """The directory, as it looks from one order."""

    def __init__(self, request: OrderRequest, own: bool, ctx: Context) -> None:
        self._request = request
        self._banned = None if own else request.requester
        self._ctx = ctx
        self._subjects: Mapping[str, Any] = ctx.docs.resident("subjects")
        self._absences: Mapping[str, tuple[Absence, ...]] = ctx.docs.resident(DELEGATIONS)

    def chosen(self, approvers: Approvers) -> set[str]:
        """Return who is named and can be asked."""
        named = set(self._named(approvers))
        if role := approvers.role:
            holders = self._ctx.index.holders(self._request.tenant, self._request.project, role)
            named |= {subject for subject in holders if holds(role, self._request, self._grants(subject))}
        return {subject for subject in named if self._can(subject)}

    def absences(self, subject: str) -> list[Absence]:
        """Return the absences in which somebody is now."""
        all_ = self._absences.get(f"{self._request.tenant}/{subject}", ())
        return [absence for absence in all_ if absence.starts_at <= self._ctx.now < absence.ends_at]

    def delegates(self, subject: str) -> frozenset[str]:
        """Return who stands in for somebody now; not further: a delegate's delegate has no say."""
        names = {absence.delegate for absence in self.absences(subject)}
        return frozenset(name for name in names if name and name != subject and self._can(name))

    def _named(self, approvers: Approvers) -> Iterator[str]:
        tenant = self._request.tenant
        yield from approvers.subjects or ()
        for group in approvers.groups or ():
            yield from self._ctx.index.questions.members(tenant, group)
        if approvers.manager:
            position = self._ctx.docs.resident("organisation").get(f"{tenant}/{self._request.requester}")
            if position and position.manager:
                yield position.manager
        if approvers.field:
            yield from names_in(self._request, approvers.field)

    def _can(self, subject: str) -> bool:
        return subject != self._banned and present(self._request.tenant, self._grants(subject))

    def _grants(self, subject: str) -> Iterable[Grant]:
        doc = self._subjects.get(subject)
        return doc.grants if doc else ()
