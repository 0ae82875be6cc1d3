"""What each fact changes in the record: one table for each section, in the order of an order's life.

A step sees its own section only. A fact that comes after the end of its stream is kept as an anomaly and changes
nothing else, unless it is one of those that lawfully follow the end (`AFTERWARDS`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from qm_catalog.approval_folds import APPROVALS, Change, Changes
from qm_catalog.built_folds import BUILT, blank
from qm_catalog.request_record import (
    ANOMALY_LIMIT,
    HISTORY_LIMIT,
    Anomaly,
    Asked,
    Built,
    GivenUp,
    Impaired,
    Interval,
    Metered,
    PastAllocation,
    Placed,
    QueueNote,
    Record,
    Section,
    Vetted,
)
from qm_events import Event, EventData, admission, admission_quota, catalog, metering, scheduler
from qm_events.specs import EndCause, Health
from qm_service.model import Fold

# ---- orders


def _end(cause: EndCause, instant: str) -> Change:
    return lambda _s, d, _: dict(
        ended_at=getattr(d, instant),
        ended_by=cause,
        end_reason=getattr(d, "reason", ""),
        fault=getattr(d, "fault", None),
    )


ASKED: Mapping[type[EventData], Change] = {
    catalog.OrderSubmitted: lambda _s, d, _: dict(request=d.request, digest=d.digest, submitted_at=d.submitted_at),
    catalog.OrderExtensionRequested: lambda _s, d, _: dict(extended_to=d.expires_at),
    catalog.OrderCancelRequested: _end(EndCause.CANCELLED, "requested_at"),
    catalog.OrderReleaseRequested: _end(EndCause.RELEASED, "requested_at"),
    # What is asked for is seen where it is done: in the allocation.
    catalog.OrderReplacementRequested: lambda _s, _d, _at: {},
    catalog.OrderExpired: _end(EndCause.EXPIRED, "expired_at"),
}

# ---- admissions


def _closed(s: Vetted) -> Changes:
    """No gate is waited for any more: approvals that are still open are void."""
    approvals = tuple(replace(a, status="void", awaited=()) if a.status == "pending" else a for a in s.approvals)
    return dict(gate=None, approvals=approvals)


def _adjusted(s: Vetted, d: admission_quota.QuotaAdjusted, _: datetime) -> Changes:
    if d.cause not in ("ready", "extended", "renewed", "given_up"):
        return {}
    renewed = d.covered_until != s.covered_until
    return dict(covered_until=d.covered_until, exhausted_at=None if renewed else s.exhausted_at)


VETTED: Mapping[type[EventData], Change] = {
    **APPROVALS,
    admission.OrderHeld: lambda _s, d, _: dict(
        gate="quota", violations=d.violations, remedy=d.remedy, remedies=d.remedies or (), held_at=d.held_at
    ),
    admission.QuotaClaimed: lambda _s, _d, at: dict(gate=None, claimed_at=at),
    admission.OrderAdmitted: lambda _s, d, at: dict(gate=None, admitted_at=at, covered_until=d.covered_until),
    admission.QuotaCommitted: lambda _s, _d, at: dict(committed_at=at),
    admission.QuotaRefunded: lambda _s, _d, at: dict(refunded_at=at),
    admission.OrderSuspended: lambda _s, d, _: dict(suspended_at=d.suspended_at, renews_at=d.renews_at),
    admission.OrderResumed: lambda _s, d, _: dict(
        gate=None, suspended_at=None, exhausted_at=None, covered_until=d.covered_until
    ),
    admission.OrderRejected: lambda s, d, _: dict(
        **_closed(s),
        violations=d.violations,
        remedy=d.remedy,
        remedies=d.remedies or (),
        rejected_at=d.rejected_at,
        reject_code=d.code,
    ),
    admission.OrderWithdrawn: lambda s, d, _: dict(
        **_closed(s), withdrawn_at=d.withdrawn_at, withdrawn_by=EndCause(d.cause)
    ),
    admission_quota.QuotaAdjusted: _adjusted,
    admission_quota.QuotaHoursEnding: lambda _s, d, _: dict(covered_until=d.covered_until),
    admission_quota.QuotaHoursExhausted: lambda _s, d, _: dict(
        exhausted_at=d.exhausted_at, hours_end_at=d.exhausted_at if d.action == "end" else None
    ),
}

# ---- allocations


def _noted(s: Placed, code: str, at: datetime, figures: dict[str, Any] | None = None) -> Changes:
    history = (*s.history, QueueNote(code, at, figures or {}))
    over = max(0, len(history) - HISTORY_LIMIT)
    return {"history": history[over:], "history_dropped": s.history_dropped + over}


def _waiting(s: Placed, d: scheduler.AllocationWaiting, _: datetime) -> Changes:
    first = d.reasons[0]
    return dict(reasons=d.reasons, waiting_since=d.since, **_noted(s, first.code.value, d.since, first.figures))


def _returned(s: Placed, d: scheduler.AllocationReturned, _: datetime) -> Changes:
    if not d.lives_on:
        return dict(returned_at=d.returned_at, pooled=d.pooled, quarantined=d.quarantined)
    past = PastAllocation(s.allocation, s.units, s.allocated_at, s.given_up, d.returned_at, d.quarantined)
    kept = ("version", "anomalies", "history", "history_dropped")
    return blank(Placed(), *kept) | {"earlier": (*s.earlier, past)}


def _impaired(s: Placed, d: scheduler.AllocationImpaired, _: datetime) -> Changes:
    others = tuple(known for known in s.impaired if known.card != d.card)
    sick = () if d.health is Health.HEALTHY else (Impaired(d.card, d.health, d.code, d.impaired_at),)
    return dict(impaired=(*others, *sick))


PLACED: Mapping[type[EventData], Change] = {
    scheduler.AllocationQueued: lambda s, d, _: dict(queued_at=d.queued_at, **_noted(s, "Queued", d.queued_at)),
    scheduler.AllocationWaiting: _waiting,
    scheduler.AllocationAllocated: lambda s, d, _: dict(
        allocation=d.allocation,
        units=d.units,
        allocated_at=d.allocated_at,
        reasons=(),
        **_noted(s, "Allocated", d.allocated_at),
    ),
    scheduler.AllocationImpaired: _impaired,
    scheduler.AllocationWithdrawn: lambda s, d, _: dict(
        withdrawn_at=d.withdrawn_at,
        withdrawn_by=EndCause(d.cause),
        reasons=(),
        **_noted(s, "Withdrawn", d.withdrawn_at),
    ),
    scheduler.AllocationPreempted: lambda s, d, _: dict(
        given_up=GivenUp(d.cause, d.why, d.preempted_at),
        **_noted(s, d.cause.capitalize(), d.preempted_at, {"why": d.why}),
    ),
    scheduler.AllocationReturned: _returned,
}

# ---- usage


def _recorded(s: Metered, d: metering.UsageLine, _: datetime) -> Changes:
    old: tuple[Interval, ...] = getattr(s, d.meter)
    if any(known.record == d.record for known in old):
        return {}
    rates = None if d.rates is None else tuple((it.from_at, it.to_at, it.price_per_card_hour) for it in d.rates)
    lines = (*old, Interval(d.record, d.from_at, d.to_at, d.card_us, rates, d.share))
    return {d.meter: tuple(sorted(lines, key=lambda it: (it.from_at, it.record)))}


def _corrected(s: Metered, d: metering.UsageCorrected, _: datetime) -> Changes:
    old: tuple[Interval, ...] = getattr(s, d.meter)
    return {d.meter: tuple(known for known in old if known.record != d.reverses)}


METERED: Mapping[type[EventData], Change] = {
    metering.UsageRecorded: _recorded,
    metering.UsageCorrected: _corrected,
}

# ---- the whole


def _never(_: object) -> bool:
    return False


_OVER: Mapping[type[Section], Callable[[Any], bool]] = {
    Asked: lambda s: s.ended_at is not None,
    Vetted: lambda s: s.rejected_at is not None or s.withdrawn_at is not None or s.refunded_at is not None,
    Placed: lambda s: s.withdrawn_at is not None or s.returned_at is not None,
    Built: lambda s: s.receipt is not None and s.receipt.cause is not EndCause.PREEMPTED,
}
AFTERWARDS: Mapping[type[EventData], Callable[[Any], bool]] = {
    admission.QuotaRefunded: lambda s: s.claimed_at is not None and not (s.refunded_at or s.suspended_at),
    admission_quota.QuotaAdjusted: lambda s: s.claimed_at is not None,
}
"""Facts that may follow the end of their stream, and when."""


def _fold(name: str, section: type[Section], change: Change, fact: type[EventData]) -> Fold[Record]:
    over, lawful = _OVER[section], AFTERWARDS.get(fact, _never)

    def apply(record: Record | None, event: Event[Any]) -> Record:
        record = record or Record(event.data.order)
        old: Section = getattr(record, name)
        if event.version <= old.version:
            return record
        if over(old) and not lawful(old):
            late = Anomaly(event.type, event.version, event.time)
            changes: Changes = {"anomalies": (*old.anomalies, late)[:ANOMALY_LIMIT]}
        else:
            changes = change(old, event.data, event.time)
        changed: Changes = {name: replace(old, version=event.version, **changes)}
        return replace(record, **changed)

    return Fold(apply)


def _metered(change: Change) -> Fold[Record]:
    def apply(record: Record | None, event: Event[Any]) -> Record:
        record = record or Record(event.data.order)
        old, stream = record.metered, event.key
        if event.version <= old.versions.get(stream, 0):
            return record
        versions = {**old.versions, stream: event.version}
        told: Changes = {"versions": dict(sorted(versions.items())), "version": sum(versions.values())}
        new = replace(old, **told, **change(old, event.data, event.time))
        return replace(record, metered=new)

    return Fold(apply, _of_order)


def _of_order(event: Event[Any]) -> tuple[str]:
    return (event.data.order,)


SECTIONS: Mapping[str, tuple[type[Section], Mapping[type[EventData], Change]]] = {
    "asked": (Asked, ASKED),
    "vetted": (Vetted, VETTED),
    "placed": (Placed, PLACED),
    "built": (Built, BUILT),
    "metered": (Metered, METERED),
}

RECORD_FOLDS: Mapping[type[EventData], Fold[Record]] = {
    fact: _metered(change) if section is Metered else _fold(name, section, change, fact)
    for name, (section, table) in SECTIONS.items()
    for fact, change in table.items()
}
