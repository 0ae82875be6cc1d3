"""`qm quota …`: limits and use, what to set, and the requests for more."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from qm_client.sdk import Json
from qm_client.session import open_session
from qm_client.show import emit


class ShowsByDefault(TyperGroup):
    """`qm quota acme/vision` is `qm quota show acme/vision`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb that is meant before a scope."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(no_args_is_help=True, help=__doc__, cls=ShowsByDefault)

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Scope = Annotated[str, typer.Argument(help="`tenant` or `tenant/project`.")]
Request = Annotated[str, typer.Argument(help="The id of the request, see `qm quota requests`.")]
Comment = Annotated[str, typer.Option(help="Why; the requester reads it.")]
Limit = Annotated[
    list[str] | None, typer.Option("--limit", "-l", help="`dimension=number`, as cards=8; once for each dimension.")
]
HEADS = ("DIMENSION", "UNIT", "LIMIT", "USED", "AVAILABLE", "BOUND BY", "BORROWED")
REQUEST_HEADS = ("REQUEST", "TENANT", "PROJECT", "ASKS FOR", "REASON", "REQUESTER", "STATUS", "DECIDED BY")


@app.command()
def show(scope: Scope, as_json: AsJson = False) -> None:
    """Show limits and use of a scope, and its card-hours by month."""
    with open_session() as client:
        answer = client.call("GET", f"/quotas/{scope}")
    rows = [
        [name, it["unit"], it["limit"], it["used"], it["available"], it["bound_by"], it["borrowed"] or None]
        for name, it in answer["dimensions"].items()
        if name != "card_hours_month"
    ]
    for month in answer["months"]:
        used = f"{month['settled']} + {month['held']} held"
        rows.append(
            [f"card hours of {month['month']}", "card-hours", month["limit"], used, month["available"], None, None]
        )
    rows.append(["priority", "highest allowed", answer["priority_allowed"], *[None] * 4])
    emit(answer, as_json, rows, HEADS)


@app.command("set")
def set_limits(
    scope: Scope,
    limit: Limit = None,
    borrow: Annotated[list[str] | None, typer.Option(help="`dimension=number` beyond the limit.")] = None,
    lend: Annotated[list[str] | None, typer.Option(help="`dimension=number` of what is not used.")] = None,
    report_only: Annotated[list[str] | None, typer.Option(help="A dimension whose limit is only told.")] = None,
    over_quota: Annotated[str, typer.Option(help="hold or refuse what does not fit now.")] = "hold",
    hours_exhausted: Annotated[str, typer.Option(help="What runs on used up hours: warn, suspend or end.")] = "warn",
    priority_at_most: Annotated[
        int | None, typer.Option(help="The highest that an order may ask for; left out: 0, or as the tenant.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replace all limits of a scope; what is not named is unlimited from then on."""
    body = {
        "limits": quantities(limit),
        "borrow": quantities(borrow),
        "lend": quantities(lend),
        "report_only": report_only or [],
        "over_quota": over_quota,
        "hours_exhausted": hours_exhausted,
        "priority_at_most": priority_at_most,
    }
    with open_session() as client:
        answer = client.call("PUT", f"/quotas/{scope}", body)
    emit(answer, as_json, sorted(answer["limits"].items()), ("DIMENSION", "LIMIT"))


@app.command()
def ask(
    scope: Scope,
    reason: Annotated[str, typer.Option(help="Why; who decides reads it.")],
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Ask for other limits; who answers for the level above decides."""
    tenant, _, project = scope.partition("/")
    body = {"tenant": tenant, "project": project or None, "limits": quantities(limit), "reason": reason}
    with open_session() as client:
        asked = client.call("POST", "/quota-requests", body)
    emit(asked, as_json, [_line(asked)], REQUEST_HEADS)


@app.command()
def requests(
    status: Annotated[str | None, typer.Option(help="Only these: open, approved or denied.")] = None,
    as_json: AsJson = False,
) -> None:
    """List requests for quota, the oldest first."""
    with open_session() as client:
        items = list(client.pages("/quota-requests", status=status))
    emit(items, as_json, map(_line, items), REQUEST_HEADS)


@app.command()
def grant(request: Request, limit: Limit = None, comment: Comment = "", as_json: AsJson = False) -> None:
    """Grant a request, as asked or with other limits."""
    _decide("approve", request, {"comment": comment, "limits": quantities(limit) or None}, as_json)


@app.command()
def refuse(request: Request, comment: Comment = "", as_json: AsJson = False) -> None:
    """Refuse a request."""
    _decide("deny", request, {"comment": comment}, as_json)


def quantities(pairs: list[str] | None) -> dict[str, int]:
    """Return `dimension=number` pairs as a mapping. Raises typer.BadParameter."""
    found = {}
    for pair in pairs or ():
        name, _, number = pair.partition("=")
        try:
            found[name] = int(number)
        except ValueError:
            raise typer.BadParameter(f"{pair}: give dimension=number, a whole number without a unit") from None
    return found


def _decide(verb: str, request: str, body: Json, as_json: bool) -> None:
    with open_session() as client:
        decided = client.call("POST", f"/quota-requests/{request}/{verb}", body)
    emit(decided, as_json, [_line(decided)], REQUEST_HEADS)


def _line(item: Json) -> list[Any]:
    asked = ", ".join(f"{name} {limit}" for name, limit in (item["granted"] or item["limits"]).items())
    return [
        item["request"],
        item["tenant"],
        item["project"],
        asked,
        item["reason"],
        item["requester"],
        item["status"],
        item["decided_by"],
    ]
