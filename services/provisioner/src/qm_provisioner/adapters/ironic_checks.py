"""The checks of bare metal: a command on each machine as the user, and the platform's look at a node."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from qm_events.specs import PlacedUnit, Probe
from qm_provisioner.adapters.reach import Reach, Refused, Unreachable
from qm_provisioner.models.bare_metal import USER
from qm_provisioner.ports import BackendError, Check, Secret, Site

REACHABLE = "reachable"
COMMANDS: Mapping[str, str] = {
    REACHABLE: "true",
    "credential_works": f'test "$(id -un)" = {USER}',
    "dns": "getent ahosts {name}",
    "storage_rw": 'f=$(mktemp /data/.qm-XXXXXX) && echo whole >"$f" && grep -qx whole "$f"; s=$?; rm -f "$f"; exit $s',
    "accelerator_visible": "n=$(nvidia-smi -L | wc -l); echo $n of {cards} cards; test $n -eq {cards}",
    "kernel": "/opt/quartermaster/check-kernel",
    "runtime": "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
}
"""By check; exit 0 = passed. `{cards}` is the count of a unit, `{name}` a name that has to resolve. The settings may
give others: what counts cards and runs a kernel depends on who made them."""


@dataclass(frozen=True, slots=True)
class Checks:
    """How machines are checked."""

    reach: Reach
    port: int
    name: str
    """That a machine must be able to resolve."""
    poll_seconds: float
    own: Mapping[str, str] = field(default_factory=dict)
    """Commands of the operator, by check."""

    async def run(self, check: Check, site: Site, secret: Secret, addresses: Mapping[int, str]) -> Probe:
        """Run a check on all machines at once. Raises BackendError for one that could not be made."""
        command = self.own.get(check.name) or COMMANDS.get(check.name)
        if command is None:
            return Probe(name=check.name, passed=False, detail=f"no command checks {check.name} on bare metal")
        faults = await asyncio.gather(
            *(self._fault(check, unit, addresses[number], secret, command) for number, unit in enumerate(site.units))
        )
        broken = [unit for unit, fault in zip(site.units, faults, strict=True) if fault]
        suspect = tuple(card for unit in broken for card in unit.cards) if check.of_cards else ()
        detail = "; ".join(fault for fault in faults if fault)
        return Probe(name=check.name, passed=not broken, detail=detail, suspect=suspect)

    async def _fault(self, check: Check, unit: PlacedUnit, host: str, secret: Secret, command: str) -> str:
        asked = command.replace("{cards}", str(len(unit.cards))).replace("{name}", self.name)
        while True:
            try:
                ran = await self.reach.run(host, self.port, USER, secret, asked)
            except Refused as error:
                return str(error)
            except Unreachable as error:
                # It is still booting, as long as the deadline of the checks says so.
                if check.name != REACHABLE:
                    return str(error)
                await asyncio.sleep(self.poll_seconds)
            except BackendError as error:
                return f"{unit.node}: {error}"
            else:
                return f"{unit.node}: {ran.output or 'no output'} (exit {ran.status})" if ran.status else ""
