"""How the command line shows things: tables for people, `--json` for scripts."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Json = dict[str, Any]
console = Console()


def emit(value: Any, as_json: bool, rows: Iterable[Sequence[Any]] | None = None, heads: Sequence[str] = ()) -> None:
    """Print `value` as JSON, or `rows` under `heads` as a table."""
    if as_json or rows is None:
        console.print_json(json.dumps(value))
        return
    table = Table(*heads, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
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
        figures = ", ".join(f"{name} {value}" for name, value in reason.get("figures", {}).items())
        console.print(f"  [yellow]{reason['code']}[/yellow] {figures}")
        if reason.get("remedy"):
            console.print(f"    remedy: {reason['remedy']}")
