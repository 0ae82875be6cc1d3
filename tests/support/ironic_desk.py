"""The desk of `tests.support.provisioning` with bare metal on a real Ironic instead of the twin."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import monotonic
from typing import Any

from qm_events.specs import PlacedUnit
from qm_provisioner.adapters.ironic import IronicBackend, Options
from qm_provisioner.adapters.ironic_api import IronicApi
from qm_provisioner.adapters.ironic_checks import Checks
from qm_provisioner.adapters.reach import SshReach
from qm_provisioner.alarms import Alarms
from qm_provisioner.attempt import Outside
from qm_provisioner.models.bare_metal import BARE_METAL
from qm_provisioner.runner import Runner
from qm_provisioner.slots import Limited
from qm_provisioner.steps import Model
from tests.support.ironic import Ironic
from tests.support.machines import Machines
from tests.support.provisioning import Around, Desk, DeskRuntime, order_of

CARDS = 2
IMAGES = {"ubuntu": {"image_source": "http://images/ubuntu", "image_checksum": "sha256:0"}}
POLL_SECONDS = 0.05
REST_SECONDS = 60.0


@dataclass
class IronicDesk(Desk):
    """A provisioner over the journal that reaches Ironic at `url`; its nodes are its own, and scrapped at the end."""

    model: Model = BARE_METAL
    ironic: Ironic = field(kw_only=True)
    machines: Machines = field(kw_only=True)
    url: str = field(kw_only=True)
    nodes: tuple[str, ...] = field(kw_only=True)

    def _boot(self) -> None:
        self.alarms = Alarms(self.clock)
        checks = Checks(SshReach(), self.machines.port, "localhost", POLL_SECONDS)
        api = IronicApi(f"ironic+{self.url}", threads=4)
        self.bare_metal = IronicBackend(api, Options(IMAGES, "#!/bin/sh\n", POLL_SECONDS), checks)
        around: Any = Around(self.wrap(self.bare_metal), self.awaits)
        self.slots = Limited(around, 64)
        vault: Any = Around(self.vault, self.awaits)
        self.runtime: Any = DeskRuntime(self.journal, self.awaits)
        outside = Outside({self.model.name: self.model}, {self.model.name: self.slots}, vault, self.alarms)
        self.runner = Runner(self.runtime, outside)

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self.bare_metal.stop()

    async def restart(self) -> None:
        """See `Desk.restart`."""
        await self.bare_metal.stop()
        await super().restart()

    async def begin(self, count: int = 1) -> None:
        """See `Desk.begin`: on the nodes of this desk."""
        units = tuple(
            PlacedUnit(node=node, accelerator="h100", cards=tuple(f"{node}-c{card}" for card in range(CARDS)))
            for node in self.nodes[:count]
        )
        steps = tuple(step.name for step in self.model.steps)
        await self.command(replace(order_of(self.model.name, count), units=units, steps=steps))

    async def settle(self, *, patient: bool = True) -> None:
        """See `Desk.settle`: Ironic takes its time, so the clock moves only when all else rests."""
        until = monotonic() + REST_SECONDS
        while monotonic() < until:
            if self.awaits.dead:
                return
            if not self.runner.idle():
                await asyncio.sleep(0.01)
            elif not self.open or not patient:
                return
            else:
                self.clock.advance(timedelta(seconds=30))
                await asyncio.sleep(0)
        raise AssertionError(f"still busy: {self.env}")

    async def things(self) -> Any:
        """Return all that exists at Ironic."""
        return await self.bare_metal.list_all()
