"""Which facts of admission somebody is told of, and in what words. Pure.

A notice names people by their subject only; the address is looked up, and unsealed, at the moment of sending.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from qm_events import Event, EventData
from qm_events.admission import ApprovalRequested
from qm_events.admission_approval import ApprovalEscalated, ApprovalReminded, ApprovalRerouted
from qm_events.approval import Notices
from qm_events.envelope import utc_text
from qm_events.ids import derived_id

Kind = Literal["asked", "joined", "escalated", "reminded"]
_ZERO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell: to one person by mail, or all at once to the webhook (`recipient` empty)."""

    id: str
    """The same however often the fact is read: a receiver that keeps the ids sees each notice once."""
    channel: Literal["mail", "webhook"]
    recipient: str
    due_at: datetime
    digest: bool
    body: Mapping[str, Any]
    """What a webhook gets, as JSON, and what the mail is written from."""

    @property
    def tenant(self) -> str:
        """Whose approval it is about."""
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
FACTS = tuple(_TOLD)


def notices_of(event: Event[Any], channels: Iterable[str], now: datetime) -> list[Notice]:
    """Return what a fact is to be told of, on those channels that the policy wants and the product has."""
    kind, people, wanted = _TOLD[type(event.data)](event.data)
    if wanted is None or not people:
        return []
    due_at = now if wanted.digest_seconds is None else _next_digest(now, wanted.digest_seconds)
    body = _body(event, kind, people)
    found = []
    for channel in sorted(set(wanted.channels) & set(channels)):
        for recipient in people if channel == "mail" else ("",):
            id_ = derived_id("notice", event.id, channel, recipient)
            found.append(Notice(id_, channel, recipient, due_at, wanted.digest_seconds is not None, body))
    return found


def _next_digest(now: datetime, seconds: int) -> datetime:
    """Return the next border of a grid that begins in 1970, so that all instances mean the same one."""
    span = timedelta(seconds=seconds)
    return _ZERO + ((now - _ZERO) // span + 1) * span


def _body(event: Event[Any], kind: Kind, people: Sequence[str]) -> dict[str, Any]:
    d = event.data
    body = {
        "kind": kind,
        "approval": d.approval,
        "order": d.order,
        "tenant": event.tenant or "",
        "project": event.project or "",
        "level": d.level,
        "recipients": list(people),
        "at": utc_text(event.time),
    }
    if isinstance(d, ApprovalRequested) and d.submission is not None:
        request = d.submission.request
        body |= {"tenant": request.tenant, "project": request.project, "requester": request.requester}
        body |= {"policy": d.policy, "specification": request.specification.name, "cards": request.cards}
        body |= {"service_model": request.service_model.value}
    if until := getattr(d, "lapses_at", None):
        body["lapses_at"] = utc_text(until)
    return body


_WORDS: Mapping[str, str] = {
    "asked": "asks for your agreement",
    "joined": "waits for you now, as the approvers changed",
    "escalated": "was not decided in time and waits for you now",
    "reminded": "still waits for you",
}


def subject_of(notices: Sequence[Notice]) -> str:
    """Return the subject line of a mail."""
    if len(notices) > 1:
        return f"{len(notices)} approvals wait for you in {notices[0].tenant}"
    body = notices[0].body
    word = "Reminder: approval" if body["kind"] == "reminded" else "Approval"
    return f"{word} needed in {body['tenant']}/{body['project']}: order {body['order']}"


def text_of(notices: Sequence[Notice], link: str) -> str:
    """Return the text of a mail."""
    return "\n".join([line for notice in notices for line in _lines(notice.body, link)])


def _lines(body: Mapping[str, Any], link: str) -> list[str]:
    lines = [
        f"Order {body['order']} in {body['tenant']}/{body['project']} {_WORDS[body['kind']]} (level {body['level']})."
    ]
    if "requester" in body:
        what = f"{body['cards']} cards, {body['specification']} as {body['service_model']}"
        lines.append(f"  {body['requester']} wants {what}; policy {body['policy']}.")
    if "lapses_at" in body:
        lines.append(f"  Undecided by {body['lapses_at']} the order is rejected.")
    lines.append(f"  qm approve {body['approval']}   or   qm deny {body['approval']}")
    if link:
        lines.append(f"  {link.rstrip('/')}/{body['approval']}")
    return [*lines, ""]
