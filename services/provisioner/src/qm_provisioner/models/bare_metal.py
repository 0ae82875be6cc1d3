"""Bare metal: the nodes of the placement themselves, with the user's image, entered over SSH."""

from typing import Any

from qm_events.specs import PlacedUnit
from qm_provisioner.mint import ssh_key
from qm_provisioner.ports import SHOWN, Check, Site
from qm_provisioner.steps import LOGIN, Model, Step, cleaned, each, forgotten, held, issued, keyed, once, revoked

USER = "qm"
"""Who enters."""
_MOUNT = "/data"
_AGENTS = ["driver", "monitoring"]

BARE_METAL = Model(
    name="bare_metal",
    steps=(
        Step("hardware", each(held), undo=cleaned, deadline_seconds=1_800),
        # A deploy, or the wiping of large disks, takes its time.
        Step(
            "image",
            each(lambda site, unit: _image(site, unit)),
            keyed,
            forgotten,
            deadline_seconds=7_200,
            proof="wiped",
        ),
        Step("network", each(lambda _, unit: {"node": unit.node}), deadline_seconds=300),
        Step("storage", once(lambda _: {"mount": _MOUNT}), deadline_seconds=300),
        Step("agents", each(lambda _, unit: {"node": unit.node, "agents": _AGENTS})),
        Step("access", once(lambda site: _logins(site)), do=issued, undo=revoked, proof="revoked"),
    ),
    checks=(
        Check("reachable", ("network", "image")),
        LOGIN,
        Check("dns", ("network",)),
        Check("storage_rw", ("storage",)),
        Check("accelerator_visible", ("hardware",), of_cards=True),
        Check("kernel", ("hardware", "agents"), of_cards=True),
        Check("runtime", ("agents",)),
    ),
    mint=ssh_key,
    # They wait for the machine to boot.
    checks_deadline_seconds=1_800,
)


def _image(site: Site, unit: PlacedUnit) -> dict[str, Any]:
    """All that the machine has to know at its first boot: nobody can enter it before."""
    known = {"user": USER, "keys": list(site.request.ssh_keys), "mount": _MOUNT, "agents": _AGENTS}
    return {"node": unit.node, "image": site.request.image, **known}


def _logins(site: Site) -> dict[str, Any]:
    hosts = [unit.node for unit in site.units]
    return {"ssh_keys": list(site.request.ssh_keys), SHOWN: {"user": USER, "hosts": hosts, "port": 22}}
