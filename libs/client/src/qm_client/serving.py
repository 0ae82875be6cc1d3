"""`qm up` and `qm demo`: the embedded product, where the extra `embedded` is installed."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the command line."""
    app.command()(up)
    app.command()(demo)


def up(
    data: Annotated[Path, typer.Option(help="Where everything is kept; survives a restart and a kill.")] = Path(
        "var/up"
    ),
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port of the HTTP API.")] = 8080,
    host: Annotated[
        str, typer.Option(help="A loopback address: whoever reaches it can be any sample user.")
    ] = "127.0.0.1",
    scenario: Annotated[Path | None, typer.Option(help="The world to start with, see docs/scenario.md.")] = None,
    clock: Annotated[str, typer.Option(help="wall, or manual: time stands until moved.")] = "wall",
) -> None:
    """Serve the whole product in one process."""
    embedded = _embedded()
    mode: Literal["wall", "manual"] = "manual" if clock == "manual" else "wall"
    if clock != mode:
        raise typer.BadParameter(f"{clock!r} is no clock: wall or manual", param_hint="--clock")
    try:
        embedded.serve(data, host, port, scenario or embedded.SAMPLE, mode)
    except embedded.REASONS as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error


def demo() -> None:
    """Play the main story on a fresh embedded product; exit code 0 when all of it came true."""
    _embedded()
    from qm_client.embedded.demo import play

    raise typer.Exit(play())


def _embedded() -> Any:
    try:
        from qm_client.embedded import up as embedded
    except ModuleNotFoundError as error:
        raise SystemExit(f"the embedded product is not installed (pip install qm-client[embedded]): {error}") from error
    return embedded
