"""`qm up`: serve the embedded product until it is told to stop."""

import asyncio
import logging
import signal
from datetime import timedelta
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from socket import socket
from typing import Literal

import httpx
import uvloop

from qm_client.embedded.clock import StoredClock
from qm_client.embedded.load import LoadError, load
from qm_client.embedded.product import OPERATOR, FolderInUse, Product, build, opened, origin, owned
from qm_client.embedded.scenario import Scenario, ScenarioError, load_scenario
from qm_client.logs import CLOCK, IMPORTED, WORLD
from qm_service.cli import bound, serve_app
from qm_service.clock import Clock, WallClock
from qm_service.local_issuer import BindRefused, LocalIssuer

REASONS = (ScenarioError, BindRefused, FolderInUse, LoadError, OSError)
"""What the command says in one line instead of a traceback."""
SAMPLE = Path(str(files("qm_client.embedded") / "sample.yaml"))


def serve(data: Path, host: str, port: int, scenario: Path, clock: Literal["wall", "manual"]) -> None:
    """Serve until SIGTERM or SIGINT. Raises what REASONS names."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    world = load_scenario(scenario)
    LocalIssuer.check_bind(host)
    with owned(data), bound(host, port) as place, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        _keep_time(data, clock)
        runner.run(_serve(data, place, world, clock))


def _keep_time(data: Path, clock: str) -> None:
    """Keep a folder to one kind of time: a clock that stands would lie before facts of wall time."""
    mark = data / "clock.kind"
    if mark.exists() and mark.read_text() != clock:
        raise ScenarioError(
            f"{data} was begun with --clock {mark.read_text()}: go on with it, or use a new --data folder"
        )
    mark.write_text(clock)


async def _serve(data: Path, place: socket, world: Scenario, mode: str) -> None:
    host, port = place.getsockname()[:2]
    clock: Clock = StoredClock(data / CLOCK) if mode == "manual" else WallClock()
    async with opened(build(data, clock, host=host, port=port)) as product:
        serving = asyncio.create_task(serve_app(product.app, place))
        try:
            await ensure_loaded(product, url := origin(host, port), world)
            print(_welcome(url, world), flush=True)  # the command's output
            await serving
        finally:
            if not serving.done():
                signal.raise_signal(signal.SIGTERM)  # what the server ends on
                await serving


async def ensure_loaded(product: Product, url: str, world: Scenario) -> None:
    """Load the scenario into a new data folder. Raises ScenarioError where another one was loaded before, LoadError."""
    mark = product.data / WORLD
    # Without defaults: a later release, which knows more of them, still finds the same scenario.
    digest = sha256(world.model_dump_json(exclude_defaults=True).encode()).hexdigest()
    if mark.exists() and mark.read_text() not in (digest, IMPORTED):
        raise ScenarioError(f"{product.data} was begun with another scenario: use a new --data folder, or the old file")
    if mark.exists():
        return
    token = product.issuer.mint(OPERATOR, timedelta(hours=1))
    transport = httpx.ASGITransport(product.app)
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, transport=transport, timeout=30) as client:
        await load(client, world, product.clock.now())
    mark.write_text(digest)


def _welcome(url: str, world: Scenario) -> str:
    roles = {user.subject: sorted({grant.role.value for grant in user.grants}) for user in world.users}
    lines = [f"Quartermaster serves {url}", "", "Sample users (qm login --as NAME):"]
    lines += [f"  {subject:12} {', '.join(held)}" for subject, held in roles.items()]
    buyer = next(
        ((u.subject, g.project) for u in world.users for g in u.grants if g.role == "developer" and g.project), None
    )
    # A served model has to be named: what needs no more words than these is offered first.
    offer = next(iter(sorted(world.offerings, key=lambda offer: offer.service_model != "vm")), None)
    if buyer and offer:
        subject, project = buyer
        lines += ["", "Order something:", f"  qm login --as {subject} --url {url}"]
        lines += [f"  qm order {offer.specification} --project {project} --model {offer.service_model} --wait 30"]
    return "\n".join(lines)
