"""The operator's and approver's half of the `qm` command: approvals, quota, fleet, queue."""

from typing import Annotated

import typer

from qm_client.session import open_session
from qm_client.show import emit

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the command line."""
    for command in (approvals, approve, deny, quota, fleet, queue):
        app.command()(command)


def approvals(as_json: AsJson = False) -> None:
    """List what waits for your decision."""
    with open_session() as client:
        items = list(client.pages("/approvals", assigned_to="me"))
    rows = ([i["approval"], i["order"], i["policy"], i["status"]] for i in items)
    emit(items, as_json, rows, ("APPROVAL", "ORDER", "POLICY", "STATUS"))


def approve(approval: str, comment: str = "") -> None:
    """Agree."""
    _decide("approve", approval, comment)


def deny(approval: str, comment: str = "") -> None:
    """Refuse; the order is rejected."""
    _decide("deny", approval, comment)


def _decide(verb: str, approval: str, comment: str) -> None:
    with open_session() as client:
        emit(client.call("POST", f"/approvals/{approval}/{verb}", {"comment": comment}), True)


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
    heads = ("accelerator", "total", "free", "held", "suspect", "failed", "unknown", "quarantined", "cordoned")
    rows = ([item.get(head) for head in heads] for item in answer["items"])
    emit(answer, as_json, rows, tuple(head.upper() for head in heads))


def queue(as_json: AsJson = False) -> None:
    """Show who waits, in order, and why."""
    with open_session() as client:
        items = list(client.pages("/queue"))
    rows = (
        [i["position"], i["order"], i.get("project"), (i.get("reason") or {}).get("code"), i.get("estimate")]
        for i in items
    )
    emit(items, as_json, rows, ("POSITION", "ORDER", "PROJECT", "REASON", "ESTIMATE"))
