"""The conditions that stand beside the phase: eight questions, each answered from one or two sections of the record."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from qm_catalog.record_phase import billable_end
from qm_catalog.request_record import Record
from qm_catalog.standing import environment
from qm_events.envelope import utc_text
from qm_events.units import card_hours

Status = Literal["True", "False", "Unknown"]


class Condition(BaseModel):
    """The answer to one question about the order, and since when it holds."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    type: str
    status: Status
    reason: str
    message: str = ""
    since: datetime | None = None


Answer = tuple[Status, str, str, datetime | None]
"""status, reason, message, since."""

_NOT_YET: Answer = ("Unknown", "NotYet", "", None)


def _approved(record: Record) -> Answer:
    vetted = record.vetted
    for asked in vetted.approvals:
        if asked.status in ("denied", "lapsed"):
            return "False", asked.status.capitalize(), asked.comment, asked.decided_at
    for asked in vetted.approvals:
        if asked.status == "pending":
            message = f"level {asked.level} of {asked.levels}, {asked.agreed} of {asked.needed}, policy {asked.policy}"
            return "False", "Pending", message, asked.requested_at
    if vetted.approvals:
        last = vetted.approvals[-1]
        if last.status == "void":
            return "False", "Void", "the order ended first", vetted.rejected_at or vetted.withdrawn_at
        if last.status == "withdrawn":
            return "True", "NotRequired", last.comment, last.decided_at
        return "True", "Granted", f"by {last.approver}", last.decided_at
    since = vetted.held_at or vetted.claimed_at or vetted.admitted_at
    return ("True", "NotRequired", "", since) if since else _NOT_YET


def _quota_reserved(record: Record) -> Answer:
    vetted = record.vetted
    if vetted.refunded_at:
        return "False", "Refunded", "", vetted.refunded_at
    if vetted.suspended_at:
        status: Status = "False" if vetted.gate else "True"
        return status, "Suspended", "waits for card-hours; its claim is free with its cards", vetted.suspended_at
    if vetted.exhausted_at:
        return "True", "HoursExhausted", "the card-hours of the month are used up", vetted.exhausted_at
    reach = f"card-hours are held up to {utc_text(vetted.covered_until)}" if vetted.covered_until else ""
    if vetted.committed_at:
        return "True", "Committed", reach, vetted.committed_at
    if vetted.claimed_at:
        return "True", "Claimed", reach, vetted.claimed_at
    if vetted.rejected_at and vetted.violations:
        return "False", "Refused", vetted.remedy, vetted.rejected_at
    return ("False", "Exhausted", vetted.remedy, vetted.held_at) if vetted.held_at else _NOT_YET


def _scheduled(record: Record) -> Answer:
    placed = record.placed
    if placed.returned_at:
        return "False", "Returned", "", placed.returned_at
    if placed.given_up:
        return "False", placed.given_up.cause.capitalize(), placed.given_up.why, placed.given_up.at
    if placed.impaired:
        sick = ", ".join(" ".join(filter(None, (it.card, it.health.value, it.code))) for it in placed.impaired)
        return "True", "Impaired", sick, placed.impaired[0].since
    if placed.allocated_at:
        nodes = len({unit.node for unit in placed.units})
        count = sum(len(unit.cards) for unit in placed.units)
        what = "slices" if placed.units[0].slice else "cards"
        return "True", "Allocated", f"{count} {what} on {nodes} nodes", placed.allocated_at
    if placed.withdrawn_at:
        return "False", "Withdrawn", "", placed.withdrawn_at
    if placed.reasons:
        return "False", placed.reasons[0].code.value, placed.reasons[0].counterfactual, placed.waiting_since
    return ("False", "Queued", "", placed.queued_at) if placed.queued_at else _NOT_YET


def _provisioned(record: Record) -> Answer:
    built = environment(record)
    if built.failed_at:
        return "False", "Failed", f"{built.failed_step}: {built.error}", built.failed_at
    if built.release_started_at:
        return "False", "Released", "", built.release_started_at
    if built.ready_at:
        return "True", "Ready", "", built.ready_at
    return ("False", "InProgress", "", built.started_at) if built.started_at else _NOT_YET


def _verified(record: Record) -> Answer:
    built = environment(record)
    if built.verified_at is None:
        return _NOT_YET
    failed = [probe.name for probe in built.probes if not probe.passed]
    if failed or not built.probes:
        return "False", "ProbeFailed" if failed else "NoProbe", ", ".join(failed), built.verified_at
    return "True", "AllProbesPassed", f"{len(built.probes)} probes", built.verified_at


def _metering(record: Record) -> Answer:
    ready, end = environment(record).ready_at, billable_end(record)
    if ready is None:
        return _NOT_YET
    if end is None:
        return "True", "Running", "billed since ready", ready
    billed = sum(interval.card_us for interval in record.metered.billable)
    return "False", "Stopped", f"{card_hours(billed)} card-hours" if record.metered.billable else "", end


def _credentials_revoked(record: Record) -> Answer:
    built = environment(record)
    if built.revoked_at:
        return "True", "Revoked", "seen to be refused", built.revoked_at
    return ("False", "InUse", "", built.ready_at) if built.ready_at else _NOT_YET


def _sanitised(record: Record) -> Answer:
    built = environment(record)
    if built.quarantined_at:
        return "False", "Quarantined", f"{built.quarantine_step}: {built.quarantine_error}", built.quarantined_at
    if built.validated_at:
        return "True", "Validated", f"{len(built.suspect)} suspect cards" if built.suspect else "", built.validated_at
    return ("False", "InUse", "", built.started_at) if built.started_at else _NOT_YET


CONDITIONS: dict[str, Callable[[Record], Answer]] = {
    "Approved": _approved,
    "QuotaReserved": _quota_reserved,
    "Scheduled": _scheduled,
    "Provisioned": _provisioned,
    "Verified": _verified,
    "Metering": _metering,
    "CredentialsRevoked": _credentials_revoked,
    "Sanitised": _sanitised,
}


def conditions(record: Record) -> tuple[Condition, ...]:
    """Return the answers to all questions, always all and in the same order."""
    return tuple(
        Condition(type=name, status=status, reason=reason, message=message, since=since)
        for name, answer in CONDITIONS.items()
        for status, reason, message, since in (answer(record),)
    )
