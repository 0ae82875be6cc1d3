"""How the command line shows things: tables for people, `--json` for scripts."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qm_client.sdk import Json, impaired

console = Console(width=1_000, soft_wrap=True)
"""As wide as what it shows: a terminal may break a line, but no id or path is cut or split by us."""


def emit(value: Any, as_json: bool, rows: Iterable[Sequence[Any]] | None = None, heads: Sequence[str] = ()) -> None:
    """Print `value` as JSON, or `rows` under `heads` as a table."""
    if as_json or rows is None:
        console.print_json(json.dumps(value))
        return
    table = Table(*heads, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in row))
    console.print(table)


def order_line(record: Json) -> list[Any]:
    """Return one order as a table row, see ORDER_HEADS."""
    reason = record.get("reason") or {}
    return [
        record["order"],
        record["project"],
        record["specification"]["name"],
        record["count"],
        record["service_model"],
        record["phase"],
        reason.get("code"),
    ]


ORDER_HEADS = ("ORDER", "PROJECT", "SPECIFICATION", "COUNT", "MODEL", "PHASE", "REASON")


def explain(record: Json) -> None:
    """Print the phase of an order and, when it waits, why and what would help."""
    console.print(f"[bold]{record['order']}[/bold]  {record['phase']}")
    for reason in record.get("reasons") or ([record["reason"]] if record.get("reason") else []):
        console.print(f"  [yellow]{reason['code']}[/yellow] {escape(_figures(reason.get('figures', {})))}")
        if reason.get("counterfactual"):
            console.print(f"    {escape(reason['counterfactual'])}")
        if reason.get("remedy"):
            console.print(f"    remedy: {escape(reason['remedy'])}")
    if sick := impaired(record):
        console.print(f"  [yellow]Impaired[/yellow] {escape(sick)}")
        console.print(
            "    remedy: it runs on; to change it, `qm release ORDER --fault WHAT --card CARD`, then order again"
        )


def _figures(value: Any) -> str:
    """Return figures as words: what is not known is left out."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_figures(held)}" for name, held in value.items() if held is not None)
    if isinstance(value, list):
        return "; ".join(map(_figures, value)) if any(isinstance(v, dict) for v in value) else "/".join(map(str, value))
    return str(value)


def recount(record: Json) -> None:
    """Print the record of an order that was served in short: what it got, when, what is true of it, and its receipt."""
    what = f"{record['count']} x {record['specification']['name']} as {record['service_model']}"
    console.print(f"[bold]{record['order']}[/bold]  {record['phase']}: {what} for {record['requester']}")
    for it in record["approvals"]:
        console.print(f"  approval {it['policy']}, level {it['level']}: {it['status']} by {it['approver']}")
    console.print(f"  cards: {', '.join(record['allocation']['cards'])}")
    probes = (f"{it['name']} {'passed' if it['passed'] else 'failed'}" for it in record["probes"])
    console.print(f"  tried as its user: {', '.join(probes)}")
    console.print()
    emit(None, False, ((name.removesuffix("_at"), at) for name, at in record["times"].items()), ("WHAT", "WHEN"))
    console.print()
    rows = ((it["type"], it["status"], it["reason"], it["message"]) for it in record["conditions"])
    emit(None, False, rows, ("CONDITION", "", "REASON", ""))
    receipt = record["receipt"]
    console.print(f"\n  receipt: {receipt['outcome']}, {receipt['cause']}; digest {receipt['digest']}")
