"""What is told, in the words of a mail. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from qm_catalog.notices import Notice

_ASKS: Mapping[str, str] = {
    "asked": "asks for your agreement",
    "joined": "waits for you now, as the approvers changed",
    "escalated": "was not decided in time and waits for you now",
    "reminded": "still waits for you",
}
_ENDS: Mapping[str, str] = {
    "granted": "was approved",
    "denied": "was refused",
    "lapsed": "was not decided in time and is rejected",
    "rejected": "is rejected by quota",
}
"""By kind, what became of the order of the reader."""


def subject_of(notices: Sequence[Notice]) -> str:
    """Return the subject line of a mail."""
    if len(notices) > 1:
        return f"{len(notices)} approvals wait for you in {notices[0].tenant}"
    body = notices[0].body
    if notices[0].outcome:
        return f"Your order in {body['tenant']}/{body['project']} {_ENDS[body['kind']]}: {body['order']}"
    word = "Reminder: approval" if body["kind"] == "reminded" else "Approval"
    return f"{word} needed in {body['tenant']}/{body['project']}: order {body['order']}"


def text_of(notices: Sequence[Notice], link: str) -> str:
    """Return the text of a mail."""
    lines = [line for it in notices for line in (_told(it.body) if it.outcome else _asks(it.body, link))]
    return "\n".join(lines)


def _told(body: Mapping[str, Any]) -> list[str]:
    what = f"{body['cards']} cards, {body['specification']} as {body['service_model']}"
    lines = [f"Your order {body['order']} in {body['tenant']}/{body['project']} ({what}) {_ENDS[body['kind']]}."]
    if "approver" in body:
        whom = f" for {body['on_behalf_of']}" if "on_behalf_of" in body else ""
        lines.append(f"  {body['approver']}{whom} decided. {body.get('comment', '')}".rstrip())
    if "remedy" in body:
        lines.append(f"  {body['remedy']}")
    return [*lines, f"  qm orders {body['order']}", ""]


def _asks(body: Mapping[str, Any], link: str) -> list[str]:
    lines = [
        f"Order {body['order']} in {body['tenant']}/{body['project']} {_ASKS[body['kind']]} (level {body['level']})."
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
