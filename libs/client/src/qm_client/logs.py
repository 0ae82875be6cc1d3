"""`qm log`: the topics as JSON lines; one order across all topics as a causal tree."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.tree import Tree

from qm_client.sdk import Json
from qm_client.session import open_session
from qm_client.show import console

WORLD = "scenario.sha256"
"""The file of a data folder that says which scenario it was begun with."""
CLOCK = "clock"
"""The file that says where a manual clock stands."""
IMPORTED = "imported"
"""Said there where the world came with a log: `qm up` then loads no scenario."""

LogUrl = Annotated[str | None, typer.Option("--log", help="kafka://host:port,… or sqlite:///path.")]
DataDir = Annotated[Path, typer.Option("--data", help="The folder of an embedded product, where --log is not given.")]
File = Annotated[Path, typer.Argument(help="JSON lines, closed by a checksum.")]


def register(app: typer.Typer) -> None:
    """Add `qm log …` to the command line."""
    log = typer.Typer(no_args_is_help=True, help="Keep, move and read the topics.")
    commands: dict[str, Callable[..., None]] = {"export": export, "import": import_, "tail": tail, "show": show}
    for name, command in commands.items():
        log.command(name)(command)
    app.add_typer(log, name="log")


def export(file: File, log: LogUrl = None, data: DataDir = Path("var/up")) -> None:
    """Write all topics to a file."""
    from qm_service.segments import export_log

    async def run() -> int:
        async with _opened(log, data) as source:
            return await export_log(source, file)

    console.print(f"{_run(run)} facts in {file}")


def import_(file: File, log: LogUrl = None, data: DataDir = Path("var/up")) -> None:
    """Fill an empty log from a file; services rebuild their databases from it."""
    from qm_service.segments import import_log, last_time

    async def run() -> int:
        async with _opened(log, data) as target:
            return await import_log(target, file)

    console.print(f"{_run(run)} facts from {file}")
    if log is None:
        (data / WORLD).write_text(IMPORTED)  # a scenario on top would undo what was decided since
        if latest := last_time(file):
            (data / CLOCK).write_text(latest.isoformat())


def tail(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as facts come.")] = False,
    log: LogUrl = None,
    data: DataDir = Path("var/up"),
) -> None:
    """Print facts, a JSON line each."""
    from qm_events import TOPICS
    from qm_service.log import first_positions

    async def run() -> None:
        async with _opened(log, data) as source:
            position = first_positions(TOPICS)
            while (records := await source.read(position, 500, 1.0 if follow else 0.0)) or follow:
                for record in records:
                    position[record.topic, record.partition] = record.offset + 1
                    typer.echo(record.value.decode(errors="replace"))

    _run(run)


def show(order: Annotated[str, typer.Argument(help="The id of the order.")]) -> None:
    """Show one order across all topics: which fact led to which."""
    with open_session() as client:
        facts = list(client.pages(f"/orders/{order}/events"))
    console.print(causal_tree(order, facts))


def causal_tree(order: str, facts: list[Json]) -> Tree:
    """Return the facts of an order as a tree: each under the fact that led to it.

    What a rule or a runner decided by itself names no cause: it stands under the first fact of its stream.
    """
    tree = Tree(f"order {order}")
    facts = sorted(facts, key=lambda fact: (fact["time"], fact["subject"], fact["version"]))
    known = {fact["id"]: fact for fact in facts}
    first = {fact["subject"]: fact for fact in reversed(facts)}
    led_to: dict[str, list[Json]] = defaultdict(list)
    for fact in facts:
        cause = known.get(fact.get("causation") or "", first[fact["subject"]])
        led_to["" if cause is fact else cause["id"]].append(fact)

    def hang(branch: Tree, cause: str) -> None:
        for fact in led_to[cause]:
            hang(branch.add(_line(fact)), fact["id"])

    hang(tree, "")
    return tree


def _line(fact: Json) -> str:
    data = fact.get("data", {})
    step = f" {data['direction']} {data['step']}" if {"step", "direction"} <= data.keys() else ""
    who = "" if fact.get("actor") in (None, "system") else f" by {fact['actor']}"
    return f"[bold]{fact['type']}[/bold]{escape(step)} {fact['time']} {fact['source'].split('/')[-1]}{escape(who)}"


@asynccontextmanager
async def _opened(url: str | None, data: Path) -> AsyncIterator[Any]:
    from qm_service.log_url import log_from

    log = log_from(url or f"sqlite:///{data / 'log.sqlite'}")
    await log.start()
    try:
        yield log
    finally:
        await log.close()


def _run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    from qm_service.log import LogUnavailable, PositionLost
    from qm_service.segments import SegmentRefused

    try:
        return asyncio.run(main())
    except (LogUnavailable, PositionLost, SegmentRefused, OSError, ValueError, json.JSONDecodeError) as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise typer.Exit(2) from error
