"""The `qm` command: order, wait, use and release; run the embedded product; keep the logs.

`qm SERVICE …` (catalog, admission, scheduler, provisioner, metering) hands over to that service where it is installed.
"""

import importlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from qm_client import agree, logs, nodes, operate, serving
from qm_client.sdk import ApiError, Client, Json
from qm_client.session import DEFAULT_URL, open_session, save_session
from qm_client.show import ORDER_HEADS, console, emit, explain, order_line

SERVICES = ("catalog", "admission", "scheduler", "provisioner", "metering")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
agree.register(app)
operate.register(app)
nodes.register(app)
logs.register(app)
serving.register(app)

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
OrderArg = Annotated[str, typer.Argument(help="The id of the order.")]


@app.command()
def login(
    subject: Annotated[str | None, typer.Option("--as", help="A sample user of the embedded product.")] = None,
    token: Annotated[str | None, typer.Option(help="A bearer token of your issuer.")] = None,
    url: Annotated[str, typer.Option(help="Where Quartermaster is served.")] = DEFAULT_URL,
) -> None:
    """Keep an address and a token for the commands that follow."""
    if (subject is None) == (token is None):
        raise typer.BadParameter("give either --as SUBJECT (embedded) or --token TOKEN")
    if token is None:
        with Client(url, timeout=10) as client:
            token = str(client.call("POST", "/sim/token", {"subject": subject})["access_token"])
    path = save_session(url, token)
    console.print(f"logged in{f' as {subject}' if subject else ''} at {url}; kept in {path}")


@app.command()
def specs(as_json: AsJson = False) -> None:
    """List what can be ordered, and as which service model, at what price of a card-hour."""
    with open_session() as client:
        items = list(client.pages("/specifications"))
        offered: dict[str, list[str]] = defaultdict(list)
        for offer in client.pages("/offerings"):
            if offer["status"] == "active":
                price = f"{offer['service_model']} {offer['price_per_card_hour']} {offer['currency']}"
                offered[offer["specification"]].append(price)
    rows = (
        [
            i["name"],
            i["cards_per_unit"],
            ",".join(i["accelerators"]),
            i["status"],
            ", ".join(offered[i["name"]]),
            i.get("description"),
        ]
        for i in items
    )
    emit(items, as_json, rows, ("NAME", "CARDS", "ACCELERATORS", "STATUS", "OFFERED AS, A CARD-HOUR", ""))


def _order_body(
    project: str,
    specification: str,
    service_model: str,
    count: int,
    image: str | None,
    model: str | None,
    duration: str | None,
    priority: int,
    ssh_key: list[Path] | None,
) -> Json:
    body: Json = {
        "project": project,
        "specification": specification,
        "service_model": service_model,
        "count": count,
        "image": image,
        "model": model,
        "duration": duration,
        "priority": priority,
        "ssh_keys": [path.read_text().strip() for path in ssh_key or []],
    }
    return {name: value for name, value in body.items() if value is not None}


Specification = Annotated[str, typer.Argument(help="The specification, see `qm specs`.")]
Project = Annotated[str, typer.Option(help="`name` or `tenant/name`.")]
ServiceModel = Annotated[str, typer.Option("--model", "-m", help="bare_metal, vm, kubernetes or maas.")]
Count = Annotated[int, typer.Option(help="Units of the specification.")]
Duration = Annotated[str | None, typer.Option(help="ISO 8601, counts from ready: PT8H.")]


@app.command()
def quote(
    specification: Specification,
    project: Project,
    service_model: ServiceModel = "vm",
    count: Count = 1,
    duration: Duration = None,
) -> None:
    """Ask what an order would cost, take, wait for and when it may start, and what would help; place nothing."""
    with open_session() as client:
        body = _order_body(project, specification, service_model, count, None, None, duration, 0, None)
        emit(client.quote(body), True)


@app.command()
def order(
    specification: Specification,
    project: Project,
    service_model: ServiceModel = "vm",
    count: Count = 1,
    image: Annotated[str | None, typer.Option(help="An approved image of the offering.")] = None,
    serve: Annotated[str | None, typer.Option(help="The approved model to serve; maas needs it.")] = None,
    duration: Duration = None,
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 0,
    ssh_key: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="A file with a public key.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Repeat safely: the same key gives the same order.")
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to follow the order until it is usable.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Place an order."""
    body = _order_body(project, specification, service_model, count, image, serve, duration, priority, ssh_key)
    with open_session() as client:
        record = client.submit(body, idempotency_key=idempotency_key)
        for changed in client.watch(record["order"], limit_seconds=wait) if wait else ():
            record = changed
            if not as_json:
                explain(record)
        emit(record, as_json, [order_line(record)], ORDER_HEADS)


@app.command()
def orders(
    order_id: Annotated[str | None, typer.Argument(help="One order, whole.")] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    phase: Annotated[str | None, typer.Option(help="Only this phase.")] = None,
    as_json: AsJson = False,
) -> None:
    """List orders, or show one."""
    with open_session() as client:
        if order_id:
            emit(client.order(order_id), True)
            return
        items = list(client.pages("/orders", project=project, phase=phase))
    emit(items, as_json, map(order_line, items), ORDER_HEADS)


@app.command()
def watch(order_id: OrderArg, limit: Annotated[float, typer.Option(help="Seconds.")] = 3600) -> None:
    """Follow an order until it is usable or has ended; says why it waits."""
    with open_session() as client:
        for record in client.watch(order_id, limit_seconds=limit):
            explain(record)


def _end(verb: str, order_id: str, body: Json, as_json: bool) -> None:
    with open_session() as client:
        record = client.call("POST", f"/orders/{order_id}/{verb}", body)
    emit(record, as_json, [order_line(record)], ORDER_HEADS)


@app.command()
def release(
    order_id: OrderArg,
    fault: Annotated[str | None, typer.Option(help="What was wrong with a card; it will be isolated.")] = None,
    card: Annotated[str | None, typer.Option(help="Which card, with --fault.")] = None,
    as_json: AsJson = False,
) -> None:
    """Give an environment back."""
    if card and not fault:
        raise typer.BadParameter("say with --fault what was wrong with it", param_hint="--card")
    report = {"category": "reported", "summary": fault} | ({"card": card} if card else {}) if fault else None
    _end("release", order_id, {"fault": report} if report else {}, as_json)


@app.command()
def cancel(order_id: OrderArg, as_json: AsJson = False) -> None:
    """Take an order back."""
    _end("cancel", order_id, {}, as_json)


@app.command()
def extend(
    order_id: OrderArg,
    expires_at: Annotated[str, typer.Argument(help="RFC 3339 with a zone: 2026-06-30T23:30:00Z.")],
    as_json: AsJson = False,
) -> None:
    """Move the end of an order, to a later time."""
    _end("extend", order_id, {"expires_at": expires_at}, as_json)


@app.command()
def credentials(order_id: OrderArg) -> None:
    """Print the credentials of an environment that is ready."""
    with open_session() as client:
        emit(client.call("GET", f"/orders/{order_id}/credentials"), True)


@app.command()
def usage(
    group_by: Annotated[str, typer.Option(help="tenant,project,accelerator,service_model,order")] = "project",
    as_json: AsJson = False,
) -> None:
    """Show card-hours."""
    groups = group_by.split(",")
    with open_session() as client:
        answer = client.call("GET", "/usage", query={"group_by": group_by})
    rows = (
        [*(i.get(g) for g in groups), i["billable"]["card_hours"], i["held"]["card_hours"]] for i in answer["items"]
    )
    emit(answer, as_json, rows, (*(g.upper() for g in groups), "BILLABLE h", "HELD h"))


def _hand_over(service: str, arguments: list[str]) -> Any:
    try:
        module = importlib.import_module(f"qm_{service}.__main__")
    except ModuleNotFoundError as error:
        raise SystemExit(f"the {service} service is not installed here: {error}") from error
    sys.argv = [f"qm {service}", *arguments]
    return module.main()


def main() -> None:
    """Run the command; a refused call ends with its problem on stderr and exit code 1."""
    if len(sys.argv) > 1 and sys.argv[1] in SERVICES:
        _hand_over(sys.argv[1], sys.argv[2:])
        return
    try:
        app()
    except ApiError as error:
        for line in _told(error):
            typer.echo(line, err=True)
        raise SystemExit(1) from error
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise SystemExit(f"Quartermaster cannot be reached: {error}") from error
    except JSONDecodeError as error:
        raise SystemExit(f"this is no answer of Quartermaster: {error}") from error


def _told(error: ApiError) -> Iterator[str]:
    """Yield what was refused, what its remedy speaks of, and the remedy."""
    yield str(error)
    problem = error.problem
    faults = problem.get("errors") or ()
    if len(faults) > 1:
        yield from (f"  {fault.get('field')}: {fault.get('detail')}" for fault in faults)
    for name in ("choices", "needed_roles"):
        if problem.get(name):
            yield f"  {name}: {', '.join(map(str, problem[name]))}"
    remedy = "Run `qm login`." if error.status == httpx.codes.UNAUTHORIZED else problem.get("remedy")
    if remedy:
        yield remedy
