"""The embedded product, put together: the only place where all five services meet."""

import fcntl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

import qm_admission.app
import qm_admission.settings
import qm_catalog.app
import qm_catalog.settings
import qm_metering.app
import qm_metering.settings
import qm_provisioner.app
import qm_provisioner.settings
import qm_scheduler.app
import qm_scheduler.settings
from qm_client.embedded.settle import settled
from qm_client.embedded.sim import sim_routes
from qm_events import TOPICS, topics_of
from qm_service.clock import Clock, ManualClock
from qm_service.database import Database
from qm_service.directory import SUBJECTS
from qm_service.http import create_app
from qm_service.local_issuer import LocalIssuer
from qm_service.log import EventLog
from qm_service.log_sqlite import SqliteLog
from qm_service.model import Definition
from qm_service.replay import replay
from qm_service.service import Kit, Service
from qm_service.settings import Settings
from qm_service.tokens import KeyRing, TokenVerifier

OPERATOR = "operator"
"""The first operator: who loads the scenario."""

BUILDERS: Mapping[str, tuple[Callable[[Kit], Service], type[Settings]]] = {
    "catalog": (qm_catalog.app.build, qm_catalog.settings.Settings),
    "admission": (qm_admission.app.build, qm_admission.settings.Settings),
    "scheduler": (qm_scheduler.app.build, qm_scheduler.settings.Settings),
    "provisioner": (qm_provisioner.app.build, qm_provisioner.settings.Settings),
    "metering": (qm_metering.app.build, qm_metering.settings.Settings),
}


@dataclass(frozen=True, slots=True)
class Product:
    """All that runs in the one process."""

    data: Path
    app: FastAPI
    services: Sequence[Service]
    log: EventLog
    clock: Clock
    issuer: LocalIssuer


def origin(host: str, port: int) -> str:
    """Return the URL of an address; one of IPv6 stands in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def build(data: Path, clock: Clock, *, host: str = "127.0.0.1", port: int = 8080) -> Product:
    """Build the product on the folder `data`. Raises BindRefused for an address that others can reach."""
    LocalIssuer.check_bind(host)
    issuer = LocalIssuer(data / "issuer.pem", origin(host, port))
    tokens = TokenVerifier(origin(host, port), "quartermaster", KeyRing(issuer.fetch))
    log = SqliteLog(data / "log.sqlite", durable=_durable(clock))
    services = [_build(name, data, log, clock, tokens) for name in BUILDERS]
    catalog = services[0].runtime

    def known(subject: str) -> bool:
        return subject in catalog.context().docs.resident(SUBJECTS)

    async def settle() -> None:
        await settled(services, log)

    sim = sim_routes(clock, settle)
    sim.include_router(issuer.token_route(known))
    app = create_app([*services, Service("sim", catalog, sim)], tokens, title="Quartermaster")
    app.include_router(issuer.well_known())
    return Product(data, app, services, log, clock, issuer)


def _build(name: str, data: Path, log: EventLog, clock: Clock, tokens: TokenVerifier) -> Service:
    build_service, settings = BUILDERS[name]
    own: dict[str, dict[str, Any]] = {
        "catalog": {"bootstrap_operator": OPERATOR},
        "provisioner": {
            "simulated_clouds": data / "clouds.sqlite",
            "credential_keys_path": data / "credential-keys",
        },
    }
    database = Database(f"sqlite+aiosqlite:///{_database_file(data, name)}", durable=_durable(clock))
    return build_service(Kit(database, log, clock, settings(**own.get(name, {})), tokens))


def _durable(clock: Clock) -> bool:
    """Tell whether what is acknowledged must outlast a power cut: what happens on a clock moved by hand is a play."""
    return not isinstance(clock, ManualClock)


class FolderInUse(Exception):
    """Another process serves this data folder."""


@contextmanager
def owned(data: Path) -> Iterator[None]:
    """Keep the folder for this process: the system lets go of it however the process ends. Raises FolderInUse."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderInUse(f"{data} is served by another process") from error
        yield


@asynccontextmanager
async def opened(product: Product) -> AsyncIterator[Product]:
    """Open log and databases, rebuild a database that is missing while its topics are not, close all at the end."""
    try:
        await product.log.start()
        await product.log.ensure_topics(TOPICS.values())
        for service in product.services:
            await _rebuild(service.name, service.runtime.definition, product.data, product.log)
        yield product
    finally:
        await product.log.close()
        for service in product.services:
            await service.runtime.database.close()


async def _rebuild(name: str, definition: Definition, data: Path, log: EventLog) -> None:
    """Make a database that is missing from its topics: beside its place, so that a kill leaves none or a whole one."""
    place = _database_file(data, name)
    ends = await log.ends([topic.name for topic in topics_of(name)])
    if place.exists() or not any(ends.values()):
        return
    draft = _emptied(place.with_suffix(".rebuild"))
    database = Database(f"sqlite+aiosqlite:///{draft}")
    try:
        await replay(definition, database, log)
    finally:
        await database.close()
    draft.rename(place)


def _database_file(data: Path, name: str) -> Path:
    return data / f"{name}.sqlite"


def _emptied(draft: Path) -> Path:
    for leftover in draft.parent.glob(f"{draft.name}*"):
        leftover.unlink()
    return draft
