"""The operator's half of the `qm` command: fleet, queue; `quotas` and `agree` have the rest."""

from typing import Annotated

import typer

from qm_client import quotas
from qm_client.session import open_session
from qm_client.show import emit

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the command line."""
    for command in (fleet, queue):
        app.command()(command)
    app.add_typer(quotas.app, name="quota")


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
