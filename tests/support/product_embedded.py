"""`qm up` as a process, for tests, benchmarks and crash runs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import yaml

from qm_client.embedded.clock import StoredClock
from qm_client.embedded.scenario import Scenario
from qm_service.clock import WallClock
from qm_service.local_issuer import LocalIssuer
from tests.support.forked import Forked
from tests.support.parts import Program
from tests.support.product import Product
from tests.support.servers import free_port
from tests.support.topics import Fact, ends_of_sqlite, facts_of_sqlite

NOTHING = Scenario(tenants=(), users=())
"""A world with its first operator alone."""


class Up(Program):
    """`qm up` with its options, by name."""

    def __init__(self, folder: Path, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
        super().__init__(folder, options["port"], environment, "qm_client", "up", *flags)


class Embedded(Product):
    """`qm up`: one process."""

    kind = "embedded"
    programs = ("product",)

    def __init__(
        self,
        *,
        manual: bool = True,
        scenario: Scenario | None = None,
        data: Path | None = None,
        environment: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> None:
        super().__init__(manual=manual)
        self.data = data or self.folder / "data"
        self.data.mkdir(exist_ok=True)
        world = self.folder / "scenario.yaml"
        world.write_text(yaml.safe_dump((scenario or NOTHING).model_dump(mode="json", exclude_none=True)))
        options = {"data": self.data, "scenario": world, "clock": "manual" if manual else "wall", "port": free_port()}
        self.product = (Forked if forked else Up)(self.folder / "product", environment or {}, options)
        self.parts = {"product": self.product}
        self.url = self.product.url
        self.clouds = self.data / "clouds.sqlite"
        self.issuer = LocalIssuer(self.data / "issuer.pem", self.url)

    def start(self) -> Self:
        """See `Product.start`."""
        self.product.start()
        return self

    def ends(self) -> dict[str, int]:
        """See `Product.ends`."""
        return ends_of_sqlite(self.data / "log.sqlite")

    def facts(self) -> list[Fact]:
        """See `Product.facts`."""
        return facts_of_sqlite(self.data / "log.sqlite")

    def settings(self, service: str) -> dict[str, str]:
        """See `Product.settings`."""
        return {
            "QM_DATABASE_URL": f"sqlite+aiosqlite:///{self.data / service}.sqlite",
            "QM_LOG_URL": f"sqlite:///{self.data / 'log.sqlite'}",
        }

    def statuses(self) -> dict[str, Any]:
        """See `Product.statuses`."""
        return self._status(self.url)

    def now(self) -> datetime:
        """See `Product.now`."""
        return (StoredClock(self.data / "clock") if self.manual else WallClock()).now()

    def advance(self, by: timedelta) -> None:
        """See `Product.advance`."""
        with self.client() as operator:
            operator.call("POST", "/sim/clock", {"advance": f"PT{by.total_seconds():f}S"})

    def drop(self, *services: str) -> None:
        """See `Product.drop`: the product itself rebuilds a database that is missing."""
        self.product.stop()
        for file in [file for service in services for file in self.data.glob(f"{service}.sqlite*")]:
            file.unlink()
        self.product.start()
