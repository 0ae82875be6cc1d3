"""The half of the `qm` command that is about agreement: approvals, policies, absences, groups and managers."""

from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from qm_client.session import open_session
from qm_client.show import Json, console, emit

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Approval = Annotated[str, typer.Argument(help="The id of the approval, see `qm approvals`.")]
Comment = Annotated[str, typer.Option(help="Why; the requester reads it.")]
For = Annotated[str | None, typer.Option("--for", help="For whom, where you stand in for somebody who is away.")]
Tenant = Annotated[str, typer.Option(help="Of which tenant.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the command line."""
    for command in (approvals, approve, deny, policies, away, group, manager):
        app.command()(command)


def approvals(
    everything: Annotated[bool, typer.Option("--all", help="All that are open in your projects.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what waits for your decision: the level, how many agreed, and who else is awaited."""
    with open_session() as client:
        items = list(client.pages("/approvals", assigned_to=None if everything else "me"))
    emit(items, as_json, map(_line, items), HEADS)


def approve(approval: Approval, comment: Comment = "", on_behalf_of: For = None, as_json: AsJson = False) -> None:
    """Agree to an order that waits for it."""
    _decide("approve", approval, comment, on_behalf_of, as_json)


def deny(approval: Approval, comment: Comment = "", on_behalf_of: For = None, as_json: AsJson = False) -> None:
    """Refuse; the order is rejected, unless enough others can still agree."""
    _decide("deny", approval, comment, on_behalf_of, as_json)


def _decide(verb: str, approval: str, comment: str, on_behalf_of: str | None, as_json: bool) -> None:
    body = {"comment": comment} | ({"on_behalf_of": on_behalf_of} if on_behalf_of else {})
    with open_session() as client:
        decided = client.call("POST", f"/approvals/{approval}/{verb}", body)
    emit(decided, as_json, [_line(decided)], HEADS)
    for vote in () if as_json else decided["votes"]:
        whom = f" for {vote['on_behalf_of']}" if vote["on_behalf_of"] else ""
        said = f"{vote['voted_at']}  {vote['voter']}{whom}: {vote['verdict']}  {vote['comment']}"
        console.print(said, markup=False)


def _line(item: Json) -> list[Any]:
    return [
        item["approval"],
        item["order"],
        item["requester"],
        item["project"],
        item["request"]["specification"]["name"],
        item["cards"],
        item["policy"],
        f"{item['level']}/{item['levels']}",
        f"{item['agreed']} of {item['needed']}",
        ", ".join(item["awaited"]) or ("nobody can decide" if not item["approvers"] else ""),
        item["status"],
    ]


HEADS = (
    "APPROVAL",
    "ORDER",
    "REQUESTER",
    "PROJECT",
    "SPECIFICATION",
    "CARDS",
    "POLICY",
    "LEVEL",
    "AGREED",
    "AWAITED",
    "STATUS",
)


def policies(
    tenant: Annotated[str, typer.Argument(help="Whose policies.")],
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="YAML or JSON with `policies`: replace them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the approval policies of a tenant, or replace them with those of a file."""
    with open_session() as client:
        query = {"tenant": tenant}
        if file is None:
            answer = client.call("GET", "/approval-policies", query=query)
        else:
            answer = client.call("PUT", "/approval-policies", yaml.safe_load(file.read_text()), query=query)
    rows = ([it["name"], _conditions(it), _levels(it)] for it in answer["policies"])
    emit(answer, as_json, rows, ("POLICY", "ASKS FOR", "LEVELS"))


_NO_CONDITIONS = frozenset(
    {"name", "levels", "approver_role", "approver_subjects", "self_approval", "lapses_after_seconds", "notices"}
)


def _conditions(policy: Json) -> str:
    given = {name: value for name, value in policy.items() if name not in _NO_CONDITIONS and value is not None}
    return ", ".join(f"{name} {_words(value)}" for name, value in given.items()) or "every order"


def _levels(policy: Json) -> str:
    if policy["levels"] is None:
        return f"any of {_words([policy['approver_role'] or '', *policy['approver_subjects']])}"
    return " then ".join(
        f"{level['n'] or level['rule']} of {_who(level['approvers'])}" for level in policy["levels"]
    ) or ("none: passes")


def _who(approvers: Json) -> str:
    return _words({"manager": "of the requester"} | approvers if approvers["manager"] else approvers)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(held)}" for name, held in value.items() if held is not None)
    return "/".join(_words(it) for it in value if it != "") if isinstance(value, list) else str(value)


def away(
    subject: Annotated[str, typer.Argument(help="Who is away.")],
    tenant: Tenant,
    first_day: Annotated[datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="First day.")] = None,
    last_day: Annotated[datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day.")] = None,
    delegate: Annotated[str | None, typer.Option(help="Who decides meanwhile.")] = None,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    clear: Annotated[bool, typer.Option(help="Forget all absences.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show when somebody is away, or add days; approvals wait for the delegate meanwhile."""
    path, query = f"/delegations/{subject}", {"tenant": tenant}
    if (first_day is None) != (last_day is None) or (first_day is None and delegate):
        raise typer.BadParameter("give --from and --to together")
    with open_session() as client:
        answer = client.call("GET", path, query=query)
        absences = [] if clear else [{name: it[name] for name in _KEPT} for it in answer["absences"]]
        if first_day is not None and last_day is not None:
            absences.append(_days(first_day.date(), last_day.date(), delegate, reason))
        if clear or first_day is not None:
            answer = client.call("PUT", path, {"absences": absences}, query=query)
    rows = (
        [it["first_day"], it["last_day"], it["timezone"], it["delegate"], it["reason"]] for it in answer["absences"]
    )
    emit(answer, as_json, rows, ("FROM", "TO", "ZONE", "DELEGATE", "REASON"))


_KEPT = ("first_day", "last_day", "timezone", "delegate", "reason")


def _days(first: date, last: date, delegate: str | None, reason: str) -> Json:
    return {"first_day": first.isoformat(), "last_day": last.isoformat(), "delegate": delegate, "reason": reason}


def group(
    name: Annotated[str, typer.Argument(help="The group.")],
    tenant: Tenant,
    add: Annotated[list[str] | None, typer.Option(help="Who joins.")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="Who leaves.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show who is in a group that policies may name, and change it."""
    path = f"/tenants/{tenant}/groups/{name}/members"
    with open_session() as client:
        for subject in add or ():
            client.call("POST", path, {"subject": subject})
        for subject in remove or ():
            client.call("DELETE", path, query={"subject": subject})
        items = list(client.pages(path))
    emit(items, as_json, ([it["group"], it["subject"]] for it in items), ("GROUP", "SUBJECT"))


def manager(
    subject: Annotated[str, typer.Argument(help="Who reports.")],
    tenant: Tenant,
    to: Annotated[str | None, typer.Option(help="To whom; left out: to nobody.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say whom somebody reports to; a policy may ask the manager of the requester."""
    with open_session() as client:
        answer = client.call("PUT", f"/subjects/{subject}/manager", {"tenant": tenant, "manager": to})
    emit(answer, as_json, [[answer["subject"], answer["manager"]]], ("SUBJECT", "MANAGER"))
