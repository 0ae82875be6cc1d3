"""Five service processes on Apache Kafka and PostgreSQL behind nginx, for tests, benchmarks and crash runs."""

from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self

from qm_service.clock import FileClock, WallClock
from qm_service.local_issuer import LocalIssuer
from tests.support.parts import Origin, Program, keys_served
from tests.support.product import OPERATOR, SERVICES, Product, at_once
from tests.support.servers import HOST, Kafka, Postgres, free_port
from tests.support.topics import Fact, ends_of_kafka, facts_of_kafka


class Distributed(Product):
    """Five processes on Apache Kafka and PostgreSQL, behind nginx."""

    kind = "distributed"
    programs = SERVICES

    def __init__(self, *, manual: bool = True, lease_seconds: float = 2.0) -> None:
        super().__init__(manual=manual)
        self._stack = ExitStack()
        self.postgres, self.kafka = Postgres(), Kafka()
        self.clouds = self.folder / "clouds.sqlite"
        self.clock = FileClock(self.folder / "clock") if manual else WallClock()
        issuer = f"http://{HOST}:{free_port()}"
        self.issuer = LocalIssuer(self.folder / "issuer.pem", issuer)
        ports = {name: free_port() for name in SERVICES}
        self._settings = {
            "QM_LOG_URL": f"kafka://{self.kafka.servers}",
            "QM_CLOCK": f"manual:{self.folder / 'clock'}" if manual else "wall",
            "QM_ISSUER": issuer,
            "QM_JWKS_URL": self._stack.enter_context(keys_served(self.issuer.jwks())),
            "QM_LEASE_SECONDS": str(lease_seconds),
            "QM_BOOTSTRAP_OPERATOR": OPERATOR,
            "QM_ADMISSION_URL": f"http://{HOST}:{ports['admission']}",
            "QM_SCHEDULER_URL": f"http://{HOST}:{ports['scheduler']}",
            "QM_SIMULATED_CLOUDS": str(self.clouds),
            "QM_CREDENTIAL_KEYS_PATH": str(self.folder / "credential-keys"),
        }
        ours = {name: self.process(name, port=ports[name]) for name in SERVICES}
        self.origin = Origin(self.folder / "origin", {name: part.port for name, part in ours.items()})
        self.url = f"http://{HOST}:{self.origin.port}"
        self.parts = {"postgres": self.postgres, "kafka": self.kafka, **ours, "origin": self.origin}
        self._urls = {name: part.url for name, part in ours.items()}

    def process(self, service: str, folder: str | None = None, port: int | None = None) -> Program:
        """Return a process of a service, not started: a second one is a stand-by."""
        port = port or free_port()
        environment = self.settings(service) | {"QM_PORT": str(port)}
        return Program(self.folder / (folder or service), port, environment, f"qm_{service}", "serve")

    def start(self) -> Self:
        """See `Product.start`."""
        at_once([self.postgres.start, self.kafka.start])
        for service in SERVICES:
            self.postgres.database(service)
        at_once(self.parts[service].start for service in SERVICES)
        self.origin.start()
        return self

    def ends(self) -> dict[str, int]:
        """See `Product.ends`."""
        return ends_of_kafka(self.kafka.servers)

    def facts(self) -> list[Fact]:
        """See `Product.facts`."""
        return facts_of_kafka(self.kafka.servers)

    def settings(self, service: str) -> dict[str, str]:
        """See `Product.settings`."""
        return self._settings | {"QM_DATABASE_URL": f"{self.postgres.url}/{service}"}

    def statuses(self) -> dict[str, Any]:
        """See `Product.statuses`."""
        return {name: status for url in self._urls.values() for name, status in self._status(url).items()}

    def now(self) -> datetime:
        """See `Product.now`."""
        return self.clock.now()

    def advance(self, by: timedelta) -> None:
        """See `Product.advance`: all processes see the new time at once, not instant by instant."""
        assert isinstance(self.clock, FileClock)
        self.clock.advance(by)
        self.settled()

    def drop(self, *services: str) -> None:
        """See `Product.drop`: by the command `replay`."""
        at_once(partial(self._drop, service) for service in services)

    def _drop(self, service: str) -> None:
        self.parts[service].stop()
        self.postgres.drop(service)
        self.postgres.database(service)
        self.run(service, "replay")
        self.parts[service].start()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._stack.close()
