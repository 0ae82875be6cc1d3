"""Where an order is: its phase, who ended it, its instants, and why it is not further.

All of it is derived from the sections of the record, so it is the same in whatever order the topics were read. The end
comes first in every question: whatever else is known, an order that holds cards is not at an end.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from qm_catalog.request_record import Approval, Record, finished, holds_cards
from qm_events.specs import EndCause, Remedy, Violation, WaitCode
from qm_events.units import amount


class Phase(StrEnum):
    """Where an order is. The last five are ends; none of them holds a card."""

    SUBMITTED = "submitted"
    """Taken; admission has not spoken yet."""
    PENDING_APPROVAL = "pending_approval"
    """A person must agree."""
    HELD = "held"
    """Waits for quota."""
    QUEUED = "queued"
    """Admitted; waits for cards."""
    SCHEDULED = "scheduled"
    """Holds cards; nothing is built yet."""
    PROVISIONING = "provisioning"
    """The environment is being built."""
    VERIFYING = "verifying"
    """All is built; the probes run."""
    ACTIVE = "active"
    """Usable, proven, billed."""
    RELEASING = "releasing"
    """Ends: access is revoked and the tenant's data wiped."""
    RECOVERING = "recovering"
    """The tenant is out; the cards are cleaned and checked, or isolated."""
    CLOSED = "closed"
    """Was delivered, and is over."""
    REJECTED = "rejected"
    """Was never admitted."""
    CANCELLED = "cancelled"
    """Ended by its owner before it was delivered."""
    EXPIRED = "expired"
    """Reached its end before it was delivered."""
    FAILED = "failed"
    """Could not be built, or broke in use."""


ENDS = frozenset({Phase.CLOSED, Phase.REJECTED, Phase.CANCELLED, Phase.EXPIRED, Phase.FAILED})


class Reason(BaseModel):
    """Why the order is not further: figures, what would have to change, and what the reader can do."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    code: str
    figures: dict[str, Any] = {}
    counterfactual: str = ""
    remedy: str = ""
    remedies: tuple[Remedy, ...] = ()
    since: datetime | None = None


def ended_by(record: Record) -> EndCause | None:
    """Return what ended the order, or is ending it; the release itself knows best, then who withdrew it."""
    built, known = record.built, record.vetted.withdrawn_by or record.placed.withdrawn_by or record.asked.ended_by
    if built.receipt is not None:
        return built.receipt.cause
    return built.release_cause or (EndCause.FAILED if built.failed_at else known)


def phase(record: Record) -> Phase:
    """Return the phase."""
    if finished(record):
        return _end(record)
    if holds_cards(record) or record.placed.returned_at is not None:
        return _with_cards(record)
    return _without_cards(record)


def _end(record: Record) -> Phase:
    if record.placed.returned_at is None and record.vetted.rejected_at is not None:
        return Phase.REJECTED
    cause = ended_by(record)
    if cause is EndCause.FAILED:
        return Phase.FAILED
    if record.built.ready_at is not None:
        return Phase.CLOSED
    return Phase.EXPIRED if cause is EndCause.EXPIRED else Phase.CANCELLED


def _with_cards(record: Record) -> Phase:
    built = record.built
    if built.wiped_at or built.validated_at or built.quarantined_at or record.placed.returned_at:
        return Phase.RECOVERING
    if built.release_started_at or built.failed_at or record.asked.ended_at:
        return Phase.RELEASING
    if built.ready_at:
        return Phase.ACTIVE
    if built.started_at is None:
        return Phase.SCHEDULED
    done = {step.step for step in built.steps if step.direction == "do" and step.status == "done"}
    return Phase.VERIFYING if built.verified_at or done.issuperset(built.planned) else Phase.PROVISIONING


def _without_cards(record: Record) -> Phase:
    vetted = record.vetted
    if record.asked.ended_at is not None:
        return Phase.RELEASING
    if vetted.admitted_at or record.placed.queued_at:
        return Phase.QUEUED
    if vetted.gate is None:
        return Phase.SUBMITTED
    return Phase.HELD if vetted.gate == "quota" else Phase.PENDING_APPROVAL


def billable_end(record: Record) -> datetime | None:
    """Return when billing stopped: the first of the end asked for, a failure and a quarantine; None while it runs."""
    built = record.built
    ends = (record.asked.ended_at, built.failed_at, built.quarantined_at, built.release_started_at)
    return min((end for end in ends if end is not None), default=None)


def ended_at(record: Record) -> datetime | None:
    """Return when a finished order came to its end."""
    if not finished(record):
        return None
    receipt, vetted = record.built.receipt, record.vetted
    if record.placed.returned_at is not None and receipt is not None:
        return max(record.placed.returned_at, receipt.released_at)
    return vetted.rejected_at or vetted.withdrawn_at or record.placed.withdrawn_at


def times(record: Record) -> Mapping[str, datetime]:
    """Return the instants that are known, in the order of an order's life."""
    asked, vetted, placed, built = record.asked, record.vetted, record.placed, record.built
    every = {
        "submitted_at": asked.submitted_at,
        "held_at": vetted.held_at,
        "admitted_at": vetted.admitted_at,
        "rejected_at": vetted.rejected_at,
        "queued_at": placed.queued_at,
        "allocated_at": placed.allocated_at,
        "started_at": built.started_at,
        "verified_at": built.verified_at,
        "ready_at": built.ready_at,
        "failed_at": built.failed_at,
        "end_requested_at": asked.ended_at,
        "withdrawn_at": vetted.withdrawn_at or placed.withdrawn_at,
        "release_started_at": built.release_started_at,
        "revoked_at": built.revoked_at,
        "wiped_at": built.wiped_at,
        "validated_at": built.validated_at,
        "quarantined_at": built.quarantined_at,
        "released_at": built.receipt.released_at if built.receipt else None,
        "returned_at": placed.returned_at,
        "ended_at": ended_at(record),
    }
    return {name: at for name, at in every.items() if at is not None}


def reasons(record: Record) -> tuple[Reason, ...]:
    """Return every reason that holds now, the one first; none for an order that moves, serves or ended as wished."""
    now = phase(record)
    vetted, built = record.vetted, record.built
    if now is Phase.REJECTED:
        return (
            Reason(
                code=vetted.reject_code,
                figures=_violations(record),
                remedy=vetted.remedy,
                remedies=vetted.remedies,
                since=vetted.rejected_at,
            ),
        )
    if built.failed_at is not None and (now is Phase.FAILED or now not in ENDS):
        figures = {"step": built.failed_step, "error": built.error}
        remedy = "Order again; the cards were taken back to be checked, and nothing is billed after the failure."
        return (Reason(code="EnvironmentFailed", figures=figures, remedy=remedy, since=built.failed_at),)
    return _WAITS[now](record) if now in _WAITS else ()


def _violations(record: Record) -> dict[str, Any]:
    found = [violation.model_dump(exclude_none=True) for violation in record.vetted.violations]
    return {"violations": found} if found else {}


def _waits_for_quota(record: Record) -> tuple[Reason, ...]:
    vetted = record.vetted
    # Ranked: what is short comes before what an older order waits for.
    found = sorted(vetted.violations, key=lambda it: it.short_by == 0)
    return tuple(
        Reason(
            code=WaitCode.QUOTA_EXHAUSTED if violation.short_by else WaitCode.OLDER_ORDER_AHEAD,
            figures=violation.model_dump(exclude_none=True),
            counterfactual=_would_help(violation),
            remedy=vetted.remedy,
            remedies=vetted.remedies,
            since=vetted.held_at,
        )
        for violation in found
    )


def _would_help(violation: Violation) -> str:
    short, dimension, scope = violation.short_by, violation.dimension, violation.scope
    if not short:
        return f"the older orders that wait for {dimension} at {scope} go first"
    more = amount(short, dimension)
    return f"other projects lend {more} more" if violation.why == "lent_out" else f"fits with {more} more at {scope}"


def _waits_for_approval(record: Record) -> tuple[Reason, ...]:
    return tuple(
        Reason(
            code=WaitCode.APPROVAL_PENDING,
            figures={
                "level": asked.level,
                "levels": asked.levels,
                "needed": asked.needed,
                "agreed": asked.agreed,
                "awaited": asked.awaited,
                "approvers": asked.approvers,
                "policy": asked.policy,
            },
            counterfactual=_agreement(asked),
            remedy=_ASK if asked.approvers else _NOBODY,
            since=asked.requested_at,
        )
        for asked in record.vetted.approvals
        if asked.status == "pending"
    )


_ASK = "Ask those who are awaited, or another of the approvers."
_NOBODY = "Nobody can decide now: an admin of the tenant can give somebody the role, or change the policy."


def _agreement(asked: Approval) -> str:
    missing = asked.needed - asked.agreed
    who = "one of the approvers agrees" if missing == 1 else f"{missing} more of the approvers agree"
    return who + (f" before {asked.lapses_at.isoformat()}" if asked.lapses_at else "")


def _waits_for_cards(record: Record) -> tuple[Reason, ...]:
    since = record.placed.waiting_since
    return tuple(
        Reason(
            code=wait.code.value,
            figures=wait.figures,
            counterfactual=wait.counterfactual,
            remedy=wait.remedy,
            since=since,
        )
        for wait in record.placed.reasons
    )


_WAITS = {
    Phase.HELD: _waits_for_quota,
    Phase.PENDING_APPROVAL: _waits_for_approval,
    Phase.QUEUED: _waits_for_cards,
}
