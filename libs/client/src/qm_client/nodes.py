"""The operator's commands on nodes, on the turns of projects, and on what would happen if."""

from pathlib import Path
from typing import Annotated

import typer
import yaml

from qm_client.operate import AsJson
from qm_client.session import open_session
from qm_client.show import Json, emit

Node = Annotated[str, typer.Argument(help="The name of the node.")]
Reason = Annotated[str, typer.Option(help="Why; it is on the log.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the command line."""
    for command in (drain, uncordon, retire, shares, weigh, whatif):
        app.command()(command)


def drain(
    node: Node,
    reason: Reason = "",
    plan: Annotated[bool, typer.Option("--plan", help="Only show who is on it and until when.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give a node no new work and show when it will be empty; nobody is thrown out."""
    with open_session() as client:
        path = f"/fleet/nodes/{node}/drain"
        view = client.call("GET", path) if plan else client.call("POST", path, {"reason": reason or "drained"})
    rows = (
        [each["order"], f"{each['tenant']}/{each['project']}", len(each["cards"]), each["ends_at"], each["returning"]]
        for each in view["orders"]
    )
    emit(view, as_json, rows, ("ORDER", "PROJECT", "CARDS", "ENDS", "RETURNING"))
    if not as_json:
        typer.echo(_outlook(view))


def _outlook(view: Json) -> str:
    if view["empty"]:
        return "Nothing is held on it."
    if view["empty_at"]:
        return f"Empty at {view['empty_at']}, if leases end as promised."
    return f"No end is known for {view['without_end']} of {len(view['orders'])}: ask their owners."


def uncordon(node: Node, as_json: AsJson = False) -> None:
    """Let a node that was drained or cordoned take work again."""
    with open_session() as client:
        emit(client.call("POST", f"/fleet/nodes/{node}/uncordon"), as_json, [[node, "takes work"]], ("NODE", "STATE"))


def retire(node: Node, reason: Reason = "retired", as_json: AsJson = False) -> None:
    """Take an empty node and its cards out of the fleet for good."""
    with open_session() as client:
        last = client.call("POST", f"/fleet/nodes/{node}/retire", {"reason": reason})
    rows = ([card["card"], card["accelerator"], card["health"]] for card in last["cards"])
    emit(last, as_json, rows, ("CARD", "ACCELERATOR", "HEALTH"))


def shares(as_json: AsJson = False) -> None:
    """Show whose turn it is within a priority: the smallest share is next."""
    with open_session() as client:
        items = list(client.pages("/shares"))
    rows = ([f"{i['tenant']}/{i['project']}", i["weight"], i["cards_held"], i["share"], i["waiting"]] for i in items)
    emit(items, as_json, rows, ("PROJECT", "WEIGHT", "CARDS", "SHARE", "WAITING"))


def weigh(
    project: Annotated[str, typer.Argument(help="`tenant/project`.")],
    weight: Annotated[int, typer.Argument(help="1 to 1000; 1 where nothing was said.")],
    as_json: AsJson = False,
) -> None:
    """Set how much the turns of a project weigh."""
    with open_session() as client:
        item = client.call("PUT", f"/shares/{project}", {"weight": weight})
    rows = [[f"{item['tenant']}/{item['project']}", item["weight"], item["share"]]]
    emit(item, as_json, rows, ("PROJECT", "WEIGHT", "SHARE"))


def whatif(
    file: Annotated[
        Path, typer.Argument(help="YAML or JSON: `orders`, and changes of the fleet in `nodes` and `cordon`.")
    ],
    as_json: AsJson = False,
) -> None:
    """Ask what would become of orders, on the fleet as it is or might be; nothing is changed."""
    try:
        body = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise typer.BadParameter(f"{file} cannot be read as YAML: {error}") from error
    with open_session() as client:
        answer = client.call("POST", "/queue:simulate", body)
    rows = (
        [
            each["order"],
            "placed" if each["units"] else "waits",
            ", ".join(dict.fromkeys(unit["node"] for unit in each["units"])),
            each["position"],
            each["reasons"][0]["code"] if each["reasons"] else None,
            each["estimate"],
        ]
        for each in answer["orders"]
    )
    emit(answer, as_json, rows, ("ORDER", "OUTCOME", "NODES", "POSITION", "REASON", "ESTIMATE"))
    if answer["placed"] and not as_json:
        typer.echo(f"Waiting now, and would be placed: {', '.join(answer['placed'])}")
