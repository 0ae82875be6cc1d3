"""`qm <service> serve|replay|verify|openapi|migrate`: the same command line for every service."""

import asyncio
import gc
import json
import logging
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOL_SOCKET, socket
from typing import Annotated, Any, TypeVar

import typer
import uvicorn
import uvloop
from fastapi import FastAPI

from qm_service import trace
from qm_service.clock import clock_from
from qm_service.database import Database, DatabaseUnavailable
from qm_service.http import create_app
from qm_service.log import LogUnavailable, TopicMisconfigured
from qm_service.log_memory import MemoryLog
from qm_service.log_url import log_from
from qm_service.rebuild import Busy, rebuild
from qm_service.redrive import Which, ask
from qm_service.refold import BrokenHistory, first_parked
from qm_service.replay import LogBehind, NotEmpty, replay, verify
from qm_service.schema import schema_of
from qm_service.service import Kit, Service
from qm_service.settings import Settings, SettingsInvalid, load
from qm_service.tokens import KeyRing, TokenVerifier, keys_over_http

T = TypeVar("T")
Build = Callable[[Kit], Service]
_REASONS = (NotEmpty, LogBehind, BrokenHistory, Busy, DatabaseUnavailable, LogUnavailable, TopicMisconfigured, OSError)
_GRACE_SECONDS = 1
"""For calls that are under way when the process is asked to end; a stream of events never ends by itself."""


def run(name: str, build: Build, settings: type[Settings]) -> None:
    """Run the command line of a service."""
    commands(name, build, settings)()


def commands(name: str, build: Build, settings: type[Settings]) -> typer.Typer:
    """Return the commands of a service."""
    app = typer.Typer(name=name, help=f"The {name} service.", no_args_is_help=True, pretty_exceptions_enable=False)

    @app.command("serve")
    def serve_command() -> None:
        """Serve the HTTP interface and follow the topics until SIGTERM."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        run_loop(_serve(name, build, _given(settings)))

    @app.command("replay")
    def replay_command(
        drop: Annotated[
            bool, typer.Option(help="Drop the tables first; parked copies and effect marks go too")
        ] = False,
        projection: Annotated[
            str | None, typer.Option(help="Build only this projection anew, beside the running service")
        ] = None,
    ) -> None:
        """Rebuild the database, which must be empty, from the topics. Stop the service first."""
        if projection is None:
            run_loop(_replay(build, _given(settings), drop=drop))
        else:
            run_loop(_rebuild(build, _given(settings), projection))

    @app.command("verify")
    def verify_command(
        beside: Annotated[str | None, typer.Option(help="URL of an empty database to rebuild in")] = None,
    ) -> None:
        """Rebuild from the topics beside the live database and compare. Exit code 1 where they differ."""
        raise typer.Exit(run_loop(_verify(build, _given(settings), beside)))

    @app.command("parked")
    def parked_command() -> None:
        """List the records that wait because a rule could not handle them, or wait behind one."""
        run_loop(_parked(build, _given(settings)))

    @app.command("redrive")
    def redrive_command(
        stream: Annotated[str | None, typer.Option(help="Only those of this stream")] = None,
        wire: Annotated[str | None, typer.Option("--type", help="Of streams with one of this type")] = None,
        discard: Annotated[
            str | None,
            typer.Option(metavar="STREAM", help="Skip the first of this stream for good, try the others"),
        ] = None,
    ) -> None:
        """Ask the running service to try parked records again, in the order of each stream."""
        run_loop(_redrive(build, _given(settings), Which(discard or stream, wire), discard=discard is not None))

    @app.command("openapi")
    def openapi_command() -> None:
        """Print the OpenAPI document."""
        typer.echo(json.dumps(_offline(name, build, settings()).openapi(), indent=2, sort_keys=True))

    @app.command("migrate")
    def migrate_command() -> None:
        """Bring the database up to this release."""
        run_loop(_migrate(name, _given(settings)))

    return app


def _given(settings: type[Settings]) -> Settings:
    try:
        return load(settings)
    except SettingsInvalid as error:
        raise _given_up(error) from error


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on uvloop; exit code 2 where it cannot be done, with the reason in one line."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main)
    except _REASONS as error:
        raise _given_up(error) from error


def _given_up(error: Exception) -> typer.Exit:
    typer.echo(f"{type(error).__name__}: {error}", err=True)
    return typer.Exit(2)


@contextmanager
def bound(host: str, port: int) -> Iterator[socket]:
    """Own the address from before anything is started; nobody is let in yet. Raises OSError."""
    with socket(AF_INET6 if ":" in host else AF_INET) as place:
        place.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        try:
            place.bind((host, port))
        except OSError as error:
            raise OSError(error.errno, f"{host}, port {port}: {error.strerror}") from error
        yield place


def collect_rarely() -> None:
    """Look for cycles in memory once in a long while: documents and states of this process live long and hold none, and
    looking through them again and again takes a third of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


async def serve_app(app: FastAPI, place: socket) -> None:
    """Serve an app until SIGTERM or SIGINT; returns when it has stopped, within seconds."""
    collect_rarely()
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    await _Server(config).serve([place])


class _Server(uvicorn.Server):
    """Raises no signal again after its end: log and database are closed after that."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Kit]:
    """Open the kit that `settings` describe, and close it at the end."""
    database, log = Database(settings.database_url), log_from(settings.log_url)
    tokens = TokenVerifier(
        settings.issuer, settings.audience, KeyRing(keys_over_http(settings.issuer, settings.jwks_url))
    )
    try:
        await log.start()
        yield Kit(database, log, clock_from(settings.clock), settings, tokens)
    finally:
        await log.close()
        await database.close()


async def _serve(name: str, build: Build, settings: Settings) -> None:
    with trace.recording(name, settings.trace_file), bound(settings.host, settings.port) as place:
        async with opened(settings) as kit:
            app = create_app([build(kit)], kit.tokens, title=f"Quartermaster {name}")
            await serve_app(app, place)


async def _replay(build: Build, settings: Settings, *, drop: bool) -> None:
    collect_rarely()
    async with opened(settings) as kit:
        definition = build(kit).runtime.definition
        if drop:
            async with kit.database.write() as tx:
                await tx.run_sync(schema_of(definition).metadata.drop_all)
        await replay(definition, kit.database, kit.log)


async def _rebuild(build: Build, settings: Settings, projection: str) -> None:
    async with opened(settings) as kit:
        definition = build(kit).runtime.definition
        if projection not in (names := [known.name for known in definition.projections]):
            raise typer.BadParameter(f"{projection}: it has {', '.join(names)}")
        await rebuild(definition, kit.database, kit.log, projection)


async def _parked(build: Build, settings: Settings) -> None:
    async with opened(settings) as kit:
        table = build(kit).runtime.schema.parked
        async with kit.database.read() as tx:
            for row in await tx.execute(table.select().order_by(table.c.id)):
                place = f"{row.topic}/{row.partition}/{row.offset}"
                typer.echo(f"{row.parked_at.isoformat()} {place} {row.stream}@{row.version} {row.type}: {row.error}")


async def _redrive(build: Build, settings: Settings, which: Which, *, discard: bool) -> None:
    async with opened(settings) as kit:
        schema = build(kit).runtime.schema
        if discard and which.stream:
            async with kit.database.read() as tx:
                first = (await first_parked(tx, schema)).get(which.stream)
            which = replace(which, discard=first)
            typer.echo(f"{which.stream}@{first} to be discarded" if first else f"nothing of {which.stream} is parked")
        count = await ask(kit.database, schema, which)
    typer.echo(f"{count - (which.discard is not None)} to be tried again")


async def _verify(build: Build, settings: Settings, beside: str | None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        fresh = Database(beside or f"sqlite+aiosqlite:///{Path(folder) / 'fresh.sqlite'}", durable=beside is not None)
        async with opened(settings) as kit:
            comparison = await verify(build(kit).runtime.definition, kit.database, fresh, kit.log)
        await fresh.close()
    for part in comparison.live:
        typer.echo(f"{'differs' if part in comparison.differing else 'equal':8} {part}")
    return 0 if comparison.equal else 1


async def _migrate(name: str, settings: Settings) -> None:
    from qm_service import migrate  # Alembic costs every other start a tenth of its time

    database = Database(settings.database_url)
    try:
        await migrate.upgrade(database, f"qm_{name}")
    finally:
        await database.close()


def _offline(name: str, build: Build, settings: Settings) -> FastAPI:
    """Return the app without anything behind it."""
    tokens = TokenVerifier(settings.issuer, settings.audience, KeyRing(keys_over_http(settings.issuer)))
    kit = Kit(Database("sqlite+aiosqlite://"), MemoryLog(), clock_from("manual"), settings, tokens)
    return create_app([build(kit)], tokens, title=f"Quartermaster {name}")
