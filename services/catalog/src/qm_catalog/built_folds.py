"""What each fact of the topic `environments` changes in the record."""

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Literal

from qm_catalog.approval_folds import Change, Changes
from qm_catalog.request_record import Built, PastEnvironment, Placed, Receipt, Step
from qm_events import EventData, provisioner


def blank(nothing: Placed | Built, *kept: str) -> Changes:
    """Return what makes a section what it was before anything was told of it, but for what is kept."""
    return {each.name: getattr(nothing, each.name) for each in fields(nothing) if each.name not in kept}


def _afresh(s: Built) -> Changes:
    """Return what begins the next environment, nothing for the first: all that was is gone and has a receipt."""
    if s.receipt is None:
        return {}
    past = PastEnvironment(s.allocation, s.ready_at, s.error, s.probes, s.receipt)
    return blank(Built(), "version", "anomalies") | {"earlier": (*s.earlier, past)}


def _step(s: Built, new: Step) -> Changes:
    kept = tuple(old for old in s.steps if (old.step, old.direction) != (new.step, new.direction))
    return dict(steps=(*kept, new))


def _find(s: Built, d: Any, at: datetime) -> Step:
    for old in s.steps:
        if (old.step, old.direction) == (d.step, d.direction):
            return old
    return Step(d.step, d.direction, "running", d.attempt, at)


def _step_intended(s: Built, d: provisioner.EnvironmentStepIntended, _: datetime) -> Changes:
    began = _find(s, d, d.intended_at).started_at
    return _step(s, Step(d.step, d.direction, "running", d.attempt, began, external_name=d.external_name))


def _step_done(s: Built, d: provisioner.EnvironmentStepDone, _: datetime) -> Changes:
    old = _find(s, d, d.done_at)
    return _step(s, replace(old, status="done", attempts=d.attempt, ended_at=d.done_at, error=""))


def _step_failed(s: Built, d: provisioner.EnvironmentStepFailed, _: datetime) -> Changes:
    status: Literal["failed", "retrying"] = "failed" if d.final else "retrying"
    old = _find(s, d, d.failed_at)
    return _step(s, replace(old, status=status, attempts=d.attempt, ended_at=d.failed_at, error=d.error))


BUILT: Mapping[type[EventData], Change] = {
    provisioner.EnvironmentStarted: lambda s, d, _: {
        **_afresh(s),
        **dict(allocation=d.allocation, planned=d.steps, started_at=d.started_at),
    },
    provisioner.EnvironmentStepIntended: _step_intended,
    provisioner.EnvironmentStepDone: _step_done,
    provisioner.EnvironmentStepFailed: _step_failed,
    provisioner.EnvironmentVerified: lambda _s, d, _: dict(probes=d.probes, verified_at=d.verified_at),
    provisioner.EnvironmentReady: lambda _s, d, _: dict(endpoint=d.endpoint, ready_at=d.ready_at),
    provisioner.EnvironmentFailed: lambda _s, d, _: dict(
        failed_at=None if d.elsewhere else d.failed_at, failed_step=d.step, error=d.error
    ),
    # What the end was is told by the topic `orders` and by the release; the note is the provisioner's own memory.
    provisioner.EnvironmentEndNoted: lambda _s, _d, _at: {},
    provisioner.EnvironmentReleaseStarted: lambda s, d, _: {
        **_afresh(s),
        **dict(allocation=d.allocation, release_started_at=d.started_at, release_cause=d.cause),
    },
    provisioner.EnvironmentRevoked: lambda _s, d, _: dict(revoked_at=d.revoked_at, endpoint=None),
    provisioner.EnvironmentWiped: lambda _s, d, _: dict(wiped_at=d.wiped_at),
    provisioner.EnvironmentValidated: lambda _s, d, _: dict(validated_at=d.validated_at, suspect=d.suspect),
    provisioner.EnvironmentQuarantined: lambda _s, d, _: dict(
        quarantined_at=d.quarantined_at, quarantine_step=d.step, quarantine_error=d.error
    ),
    provisioner.EnvironmentReleased: lambda _s, d, _: dict(
        receipt=Receipt(d.cause, d.outcome, d.lines, d.digest, d.released_at)
    ),
}
