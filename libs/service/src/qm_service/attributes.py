"""Who and what caused a fact: its envelope, its audit, its idempotency key."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from qm_events import Event
from qm_events.audit import AccessAudited
from qm_events.ids import event_id, stream_key
from qm_service.commands import SYSTEM, Cause, IdempotencyMismatch, Outcome, Refused, VersionConflict
from qm_service.items import Command
from qm_service.memory import Stream

Attributes = dict[str, Any]
"""Of the envelope."""


def idempotency_row(key: str, request: str | None, stream: str, first: int, last: int) -> dict[str, Any]:
    """Return the row that remembers what a keyed call led to."""
    return {"key": key, "request": request or "", "stream": stream, "first_version": first, "last_version": last}


def audit_of(
    cls: type[AccessAudited], command: Command, result: Outcome | Exception, before: int, after: int, now: datetime
) -> AccessAudited:
    """Return the fact that records a call and what came of it."""
    code = command.refusal or _code(result)
    return cls(
        actor=command.cause.actor,
        token=command.cause.token,
        action=command.cause.action or "",
        resource=command.act.stream,
        decision="allowed" if code is None else "refused",
        code=code,
        before_version=before,
        after_version=after,
        audited_at=now,
    )


def _code(result: Outcome | Exception) -> str | None:
    if isinstance(result, Refused):
        return result.rejected.code
    if isinstance(result, VersionConflict):
        return "version-conflict"
    return "idempotency-mismatch" if isinstance(result, IdempotencyMismatch) else None


def asked_by(cause: Cause) -> Attributes:
    """Return the attributes of a fact that a caller caused."""
    return {
        "tenant": cause.tenant,
        "project": cause.project,
        "correlation": cause.correlation,
        "actor": cause.actor,
        "token": cause.token,
        "idempotency": cause.idempotency,
        "request": cause.request,
        "traceparent": cause.traceparent,
    }


def caused_by(event: Event[Any], position: str | None) -> Attributes:
    """Return the attributes of a fact that another fact caused; `position`: the input behind it all."""
    return {
        "tenant": event.tenant,
        "project": event.project,
        "correlation": event.correlation,
        "causation": event.id,
        "input": position,
        "actor": SYSTEM,
        "traceparent": event.traceparent,
    }


def continued(attributes: Attributes, name: str, stream: Stream, walks: Mapping[str | None, Event[Any]]) -> None:
    """Let what nobody asked for, as by `settle` or by a runner, follow from the fact before it in the stream of its
    order. In a stream that is about many orders, from the last fact of its order in this batch (`walks`), if any."""
    order = attributes.get("correlation")
    if order is None or attributes.get("causation") or attributes.get("traceparent") or attributes["actor"] != SYSTEM:
        return
    if stream.version and order == stream_key(name):
        attributes["causation"] = event_id(name, stream.version)
        attributes["traceparent"] = stream.traceparent
    elif order in walks:
        attributes["causation"] = walks[order].id
        attributes["traceparent"] = walks[order].traceparent
