"""The whole product as processes, in its two ways to run, behind one interface: for tests, benchmarks and crash runs.

    with Distributed() as product:          # of product_distributed, or Embedded() of product_embedded
        product.load(scenario)
        order = product.client("alice").submit({...})
        product.parts["scheduler"].kill9(); product.parts["scheduler"].restart()
        product.settled(); product.advance(timedelta(hours=2)); product.facts()

`parts` are the processes by name (`tests.support.servers.Server`): start, stop, kill9, restart, pause, resume each.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from os import environ
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from qm_client.embedded.load import load
from qm_client.embedded.scenario import Scenario
from qm_client.sdk import Client
from qm_service.local_issuer import LocalIssuer
from tests.support.servers import Server, wait_until
from tests.support.topics import Fact, Unreadable

SERVICES = ("catalog", "admission", "scheduler", "provisioner", "metering")
OPERATOR = "operator"
REST_SECONDS = 60.0


class Product(AbstractContextManager["Product"], ABC):
    """What both ways have in common. `folder` ends with the product, also when a test fails."""

    kind: str
    url: str
    clouds: Path
    """The file of the simulated clouds."""
    parts: Mapping[str, Server]
    """By name, in the order in which they start."""
    programs: Sequence[str]
    """Names of the parts that are ours."""
    issuer: LocalIssuer

    def __init__(self, *, manual: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"qm-{self.kind}-"))
        self.manual = manual
        self._statuses = httpx.Client(timeout=5.0, trust_env=False)

    @abstractmethod
    def start(self) -> Self:
        """Start everything, empty."""

    @abstractmethod
    def ends(self) -> dict[str, int]:
        """Return how many records each topic has."""

    @abstractmethod
    def facts(self) -> list[Fact]:
        """Return all records of all topics."""

    @abstractmethod
    def settings(self, service: str) -> dict[str, str]:
        """Return the environment of a service's command line."""

    @abstractmethod
    def advance(self, by: timedelta) -> None:
        """Move a manual clock and come to rest."""

    @abstractmethod
    def drop(self, *services: str) -> None:
        """Stop services, lose their databases, rebuild these from the topics and start the services again."""

    @abstractmethod
    def statuses(self) -> dict[str, Any]:
        """Return what /readyz says of each service, empty for one that does not answer."""

    def token(self, subject: str) -> str:
        """Return a token for a subject, whoever that is."""
        return self.issuer.mint(subject)

    def client(self, subject: str = OPERATOR, timeout: float = 30.0) -> Client:
        """Return a client of the origin for a subject."""
        return Client(self.url, self.token(subject), timeout=timeout)

    def load(self, scenario: Scenario) -> None:
        """Put a scenario in, as the operator."""
        asyncio.run(self._load(scenario))

    async def _load(self, scenario: Scenario) -> None:
        headers = {"authorization": f"Bearer {self.token(OPERATOR)}"}
        async with httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False) as client:
            await load(client, scenario, self.now())

    @abstractmethod
    def now(self) -> datetime:
        """Return the product's time."""

    def settled(self, limit_seconds: float = REST_SECONDS) -> None:
        """Return when all that follows from what happened has happened. Raises RuntimeError after the limit."""
        wait_until(self._rests, limit_seconds, lambda: f"not at rest: {self._restless(self.ends())}")

    def _rests(self) -> bool:
        try:
            return not self._restless(ends := self.ends()) and self.ends() == ends
        except Unreadable:
            return False

    def _restless(self, ends: Mapping[str, int]) -> list[str]:
        statuses = self.statuses()
        return [f"{name}: {statuses.get(name)}" for name in SERVICES if not _at_rest(statuses.get(name), ends)]

    def run(self, service: str, *arguments: str) -> str:
        """Run a command of a service, as `verify`, and return its output. Raises AssertionError where it fails."""
        command = [sys.executable, "-m", f"qm_{service}", *arguments]
        done = subprocess.run(
            command, env={**environ, **self.settings(service)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{service} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._statuses.close()
        at_once(partial(part.__exit__, kind, error, trace) for part in self.parts.values())
        shutil.rmtree(self.folder, ignore_errors=True)

    def _status(self, url: str) -> dict[str, Any]:
        try:
            services: dict[str, Any] = self._statuses.get(f"{url}/readyz").json()["services"]
        except (httpx.TransportError, ValueError):
            return {}
        return services


def _at_rest(status: Mapping[str, Any] | None, ends: Mapping[str, int]) -> bool:
    if not status or not status["leader"] or not status["at_rest"]:
        return False
    return all(read >= ends[topic] for topic, read in status["read"].items())


def at_once(calls: Iterable[Callable[[], Any]]) -> None:
    """Make several calls that wait, and return when all are done."""
    with ThreadPoolExecutor() as pool:
        for call in [pool.submit(call) for call in calls]:
            call.result()
