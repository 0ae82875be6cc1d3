"""The operator's and approver's half of the `qm` command: approvals, quota, fleet, queue."""

from typing import Annotated, Any

import typer

from qm_client.session import open_session
from qm_client.show import Json, emit

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Approval = Annotated[str, typer.Argument(help="The id of the approval, see `qm approvals`.")]
Comment = Annotated[str, typer.Option(help="Why; the requester reads it.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the command line."""
    for command in (approvals, approve, deny, quota, fleet, queue):
        app.command()(command)


def approvals(as_json: AsJson = False) -> None:
    """List what waits for your decision."""
    with open_session() as client:
        items = list(client.pages("/approvals", assigned_to="me"))
    emit(items, as_json, map(_approval_line, items), APPROVAL_HEADS)


def approve(approval: Approval, comment: Comment = "", as_json: AsJson = False) -> None:
    """Agree to an order that waits for it."""
    _decide("approve", approval, comment, as_json)


def deny(approval: Approval, comment: Comment = "", as_json: AsJson = False) -> None:
    """Refuse; the order is rejected."""
    _decide("deny", approval, comment, as_json)


def _decide(verb: str, approval: str, comment: str, as_json: bool) -> None:
    with open_session() as client:
        decided = client.call("POST", f"/approvals/{approval}/{verb}", {"comment": comment})
    emit(decided, as_json, [_approval_line(decided)], APPROVAL_HEADS)


def _approval_line(item: Json) -> list[Any]:
    asked = item["request"]
    return [
        item["approval"],
        item["order"],
        item["requester"],
        item["project"],
        asked["specification"]["name"],
        item["cards"],
        asked["service_model"],
        item["policy"],
        item["status"],
    ]


APPROVAL_HEADS = (
    "APPROVAL",
    "ORDER",
    "REQUESTER",
    "PROJECT",
    "SPECIFICATION",
    "CARDS",
    "MODEL",
    "POLICY",
    "STATUS",
)


def quota(scope: Annotated[str, typer.Argument(help="`tenant` or `tenant/project`.")], as_json: AsJson = False) -> None:
    """Show limits and use of a scope."""
    with open_session() as client:
        answer = client.call("GET", f"/quotas/{scope}")
    rows = ([name, d["limit"], d["used"], d["available"]] for name, d in answer["dimensions"].items())
    emit(answer, as_json, rows, ("DIMENSION", "LIMIT", "USED", "AVAILABLE"))


def fleet(as_json: AsJson = False) -> None:
    """Show capacity by accelerator type."""
    with open_session() as client:
        answer = client.call("GET", "/fleet/capacity")
    heads = (
        "accelerator",
        "total",
        "free",
        "held",
        "cleaning",
        "suspect",
        "failed",
        "unknown",
        "quarantined",
        "cordoned",
    )
    rows = ([item.get(head) for head in heads] for item in answer["items"])
    emit(answer, as_json, rows, tuple(head.upper() for head in heads))


def queue(as_json: AsJson = False) -> None:
    """Show who waits, in the order in which they are due, and why; KEPT: a place is kept."""
    with open_session() as client:
        items = sorted(client.pages("/queue"), key=lambda i: (i["accelerators"], i["position"], i["order"]))
    rows = (
        [
            i["position"],
            i["order"],
            i["project"],
            i["specification"],
            i["count"],
            i["priority"],
            (i["reason"] or {}).get("code"),
            "yes" if i["promised"] else "",
            i["estimate"],
        ]
        for i in items
    )
    heads = ("POSITION", "ORDER", "PROJECT", "SPECIFICATION", "COUNT", "PRIORITY", "REASON", "KEPT", "ESTIMATE")
    emit(items, as_json, rows, heads)
