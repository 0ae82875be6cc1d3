"""When people are away, and who speaks for them then: stream `delegations/<tenant>`. Pure.

Said in whole days of a zone, kept as two instants: from the first moment of the first day to the first moment after the
last. In a zone where that midnight is skipped or comes twice, a day begins when the calendar first shows it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from qm_events import Event
from qm_events.admission_approval import DelegationSet
from qm_events.approval import Absence
from qm_service.model import Context, Decider, Decision, Fold, Projection, Rejected

Away = Mapping[str, tuple[Absence, ...]]
"""By subject."""


@dataclass(frozen=True, slots=True)
class Days:
    """Whole days, the last one included; `timezone` None is that of the tenant."""

    first_day: date
    last_day: date
    delegate: str | None = None
    timezone: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SetAbsences:
    """Replace all absences of a subject."""

    tenant: str
    subject: str
    days: tuple[Days, ...]


def begin_of(day: date, timezone: str) -> datetime:
    """Return the first instant of a day in a zone. Raises ZoneInfoNotFoundError or ValueError for no zone."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(timezone)).astimezone(UTC)


def days_of(absence: Absence) -> tuple[date, date]:
    """Return the first and the last day of an absence, in its zone."""
    zone = ZoneInfo(absence.timezone)
    last = absence.ends_at - timedelta(microseconds=1)
    return absence.starts_at.astimezone(zone).date(), last.astimezone(zone).date()


def decide(state: Away, command: SetAbsences, ctx: Context) -> Decision:
    """Return the change; nothing where it is so already."""
    tenant = ctx.docs.resident("tenants").get(command.tenant)
    known = ctx.docs.resident("subjects")
    absences = []
    for place, days in enumerate(command.days):
        zone = days.timezone or (tenant.timezone if tenant else "UTC")
        doc = known.get(days.delegate) if days.delegate else None
        if days.delegate == command.subject:
            return _invalid(place, "delegate", "nobody stands in for himself", "name somebody else, or nobody")
        if days.delegate and not (doc and any(grant[0] == command.tenant for grant in doc.grants)):
            detail = f"{days.delegate} has no role in the tenant"
            return _invalid(place, "delegate", detail, "grant one first, or name somebody else")
        if days.last_day < days.first_day:
            return _invalid(place, "last_day", "the last day is before the first", "exchange the two")
        try:
            span = begin_of(days.first_day, zone), begin_of(days.last_day + timedelta(days=1), zone)
        except (ZoneInfoNotFoundError, ValueError, OverflowError):
            return _invalid(place, "timezone", f"no such zone or day: {zone}", "name an IANA zone, as Asia/Seoul")
        absences.append(
            Absence(delegate=days.delegate, starts_at=span[0], ends_at=span[1], timezone=zone, reason=days.reason)
        )
    wanted = tuple(sorted(absences, key=lambda absence: (absence.starts_at, absence.ends_at, absence.delegate or "")))
    if state.get(command.subject, ()) == wanted:
        return []
    return [DelegationSet(tenant=command.tenant, subject=command.subject, absences=wanted)]


def _invalid(place: int, field: str, detail: str, remedy: str) -> Rejected:
    return Rejected("delegation-invalid", f"absences.{place}.{field}: {detail}", remedy)


def evolve(state: Away, data: DelegationSet) -> Away:
    """Return who is away after a change."""
    return MappingProxyType({**state, data.subject: data.absences})


DELEGATIONS: Decider[Any] = Decider("delegations", MappingProxyType({}), decide, evolve)


def _set(_: Any, event: Event[DelegationSet]) -> tuple[Absence, ...] | None:
    return event.data.absences or None


def _key(event: Event[DelegationSet]) -> Sequence[str]:
    return (f"{event.data.tenant}/{event.data.subject}",)


AWAY: Projection[tuple[Absence, ...]] = Projection(
    name="delegations",
    version=1,
    model=tuple[Absence, ...],
    folds={DelegationSet: Fold(_set, _key)},
    resident=lambda _: True,
)
