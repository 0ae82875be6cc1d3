"""Interfaces of Ironic's fake hardware that fail as a node says, and keep what a real machine would keep.

`driver_info["chaos"]` of a node: `{"deploy": {"sleep": 2, "fail": "text", "wait": true}, "erase": …}`, by point. Its
machine is the file `driver_info["machine"]`: the power, and the config drive that was written to its disk.
The file outlives the conductor, as a BMC and a disk do. Runs in the Ironic of the tests, never in the product.
"""

import json
import time
from pathlib import Path
from typing import Any

from ironic.common import exception, states
from ironic.drivers import base
from ironic.drivers.modules import fake
from ironic.drivers.modules.network import noop


def act(task: Any, point: str) -> dict[str, Any]:
    """Do at a point what the node's rule says."""
    rule: dict[str, Any] = (task.node.driver_info.get("chaos") or {}).get(point) or {}
    time.sleep(float(rule.get("sleep", 0)))
    if rule.get("fail"):
        raise exception.InstanceDeployFailure(reason=rule["fail"])
    return rule


def machine(task: Any) -> dict[str, Any]:
    """Return what the machine keeps."""
    file = Path(task.node.driver_info["machine"])
    return json.loads(file.read_text()) if file.exists() else {"power": states.POWER_OFF, "drive": None}


def keep(task: Any, **changes: Any) -> None:
    """Change what the machine keeps."""
    file = Path(task.node.driver_info["machine"])
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(machine(task) | changes))
    draft.rename(file)


class ChaosPower(fake.FakePower):
    """A BMC that may be mute."""

    def get_power_state(self, task: Any) -> str:
        """Return the power of the machine."""
        act(task, "power_get")
        return machine(task)["power"]

    def set_power_state(self, task: Any, power_state: str, timeout: int | None = None) -> None:
        """Switch the machine."""
        act(task, "power_set")
        keep(task, power=states.POWER_OFF if "off" in power_state else states.POWER_ON)

    def reboot(self, task: Any, timeout: int | None = None) -> None:
        """Switch the machine on."""
        self.set_power_state(task, states.POWER_ON)


class ChaosDeploy(fake.FakeDeploy):
    """Writes the config drive to the machine, and erases it when it cleans."""

    def prepare(self, task: Any) -> None:
        """Fail where it is told to."""
        act(task, "prepare")

    @base.deploy_step(priority=100)
    def deploy(self, task: Any) -> str | None:
        """Write what the machine boots with, and switch it on."""
        if act(task, "deploy").get("wait"):
            return states.DEPLOYWAIT
        keep(task, power=states.POWER_ON, drive=task.node.instance_info["configdrive"])
        return None

    def tear_down(self, task: Any) -> str:
        """Switch the machine off."""
        act(task, "tear_down")
        keep(task, power=states.POWER_OFF)
        return states.DELETED

    def prepare_cleaning(self, task: Any) -> str | None:
        """Wait for ever where it is told to."""
        return states.CLEANWAIT if act(task, "prepare_cleaning").get("wait") else None

    def tear_down_cleaning(self, task: Any) -> None:
        """Nothing was set up."""

    @base.clean_step(priority=10)
    def erase_devices(self, task: Any) -> None:
        """Erase the disk."""
        act(task, "erase")
        keep(task, drive=None)


class ChaosNetwork(noop.NoopNetwork):
    """Remembers the VIF, as the interfaces of Neutron do."""

    def vif_attach(self, task: Any, vif_info: dict[str, Any]) -> None:
        """Attach one."""
        act(task, "vif_attach")
        if self.vif_list(task):
            raise exception.VifAlreadyAttached(vif=vif_info["id"], object_type="node", object_uuid=task.node.uuid)
        self._keep(task, vif_info["id"])

    def vif_detach(self, task: Any, vif_id: str) -> None:
        """Detach it."""
        act(task, "vif_detach")
        if not self.vif_list(task):
            raise exception.VifNotAttached(vif=vif_id, node=task.node.uuid)
        self._keep(task, None)

    def vif_list(self, task: Any) -> list[dict[str, Any]]:
        """Return what is attached."""
        vif = task.node.driver_internal_info.get("tenant_vif")
        return [{"id": vif}] if vif else []

    def unconfigure_tenant_networks(self, task: Any) -> None:
        """Detach what is attached: the tenant is leaving."""
        self._keep(task, None)

    def _keep(self, task: Any, vif: str | None) -> None:
        task.node.set_driver_internal_info("tenant_vif", vif)
        task.node.save()
