"""Which facts of admission somebody is told of. Pure.

A notice names people by their subject only; the address is looked up, and unsealed, at the moment of sending.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from qm_events import Event, EventData
from qm_events.admission import ApprovalDenied, ApprovalGranted, ApprovalLapsed, ApprovalRequested, OrderRejected
from qm_events.admission_approval import ApprovalEscalated, ApprovalReminded, ApprovalRerouted
from qm_events.approval import Notices
from qm_events.envelope import utc_text
from qm_events.ids import derived_id
from qm_events.specs import OrderRequest

Channel = Literal["mail", "webhook"]
Outcome = Literal["granted", "denied", "lapsed", "rejected"]
Kind = Literal["asked", "joined", "escalated", "reminded"] | Outcome
_ZERO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell: to one person by mail, or all at once to the webhook (`recipient` empty)."""

    id: str
    """The same however often the fact is read: a receiver that keeps the ids sees each notice once."""
    channel: Channel
    recipient: str
    due_at: datetime
    digest: bool
    body: Mapping[str, Any]
    """What a webhook gets, as JSON, and what the mail is written from."""

    @property
    def outcome(self) -> bool:
        """Whether it says what became of an order; such a notice is never stale."""
        return self.body["kind"] in get_args(Outcome)

    @property
    def tenant(self) -> str:
        """Whose order it is about."""
        return str(self.body["tenant"])


_Told = tuple[Kind, Sequence[str], Notices | None]


def _asked(d: ApprovalRequested) -> _Told:
    return "asked", d.approvers if d.awaited is None else d.awaited, d.by.notices if d.by else None


_TOLD: Mapping[type[EventData], Callable[[Any], _Told]] = {
    ApprovalRequested: _asked,
    ApprovalRerouted: lambda d: ("joined", d.joined, d.notices),
    ApprovalEscalated: lambda d: ("escalated", d.joined, d.notices),
    ApprovalReminded: lambda d: ("reminded", d.awaited, d.notices),
}
OUTCOMES: Mapping[type[EventData], tuple[Outcome, Callable[[Any], bool]]] = {
    ApprovalGranted: ("granted", lambda d: d.last is True),
    ApprovalDenied: ("denied", lambda _: True),
    ApprovalLapsed: ("lapsed", lambda _: True),
    # A refusal and a time-out were told as such.
    OrderRejected: ("rejected", lambda d: d.code.startswith("quota-")),
}
"""What the requester is told, and of which of the facts: the last word about his order."""
FACTS = (*_TOLD, *OUTCOMES)


def notices_of(event: Event[Any], channels: Iterable[Channel], now: datetime) -> list[Notice]:
    """Return what approvers are to be told, on those channels that the policy wants and the product has."""
    kind, people, wanted = _TOLD[type(event.data)](event.data)
    if wanted is None or not people:
        return []
    due_at = now if wanted.digest_seconds is None else _next_digest(now, wanted.digest_seconds)
    body, digest = _body(event, kind, people), wanted.digest_seconds is not None
    return _notices(event, set(wanted.channels) & set(channels), people, due_at, body, digest=digest)


def outcome_of(event: Event[Any], request: OrderRequest, channels: Iterable[Channel], now: datetime) -> list[Notice]:
    """Return what the requester is to be told, at once, on all channels that the product has: it is his own order."""
    kind, ends = OUTCOMES[type(event.data)]
    if not ends(event.data):
        return []
    people = (request.requester,)
    body = {**_body(event, kind, people), **_what(request)}
    return _notices(event, channels, people, now, body)


def _notices(
    event: Event[Any],
    channels: Iterable[Channel],
    people: Sequence[str],
    due_at: datetime,
    body: Mapping[str, Any],
    *,
    digest: bool = False,
) -> list[Notice]:
    return [
        Notice(derived_id("notice", event.id, channel, recipient), channel, recipient, due_at, digest, body)
        for channel in sorted(channels)
        for recipient in (people if channel == "mail" else ("",))
    ]


def _next_digest(now: datetime, seconds: int) -> datetime:
    """Return the next border of a grid that begins in 1970, so that all instances mean the same one."""
    span = timedelta(seconds=seconds)
    return _ZERO + ((now - _ZERO) // span + 1) * span


def _body(event: Event[Any], kind: Kind, people: Sequence[str]) -> dict[str, Any]:
    d = event.data
    body = {
        "kind": kind,
        "order": d.order,
        "tenant": event.tenant or "",
        "project": event.project or "",
        "recipients": list(people),
        "at": utc_text(event.time),
    }
    body |= {name: said for name in _SAID if (said := getattr(d, name, None))}
    if isinstance(d, ApprovalRequested) and d.submission is not None:
        body |= {"policy": d.policy, **_what(d.submission.request)}
    if until := getattr(d, "lapses_at", None):
        body["lapses_at"] = utc_text(until)
    return body


_SAID = ("approval", "level", "approver", "on_behalf_of", "comment", "code", "remedy")
"""Members of a fact that a notice repeats, where they say something."""


def _what(request: OrderRequest) -> dict[str, Any]:
    return {
        "tenant": request.tenant,
        "project": request.project,
        "requester": request.requester,
        "specification": request.specification.name,
        "cards": request.cards,
        "service_model": request.service_model.value,
    }
