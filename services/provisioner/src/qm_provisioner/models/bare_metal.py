"""Bare metal: the nodes of the placement themselves, with the user's image, entered over SSH."""

from typing import Any

from qm_provisioner.mint import ssh_key
from qm_provisioner.ports import SHOWN, Check, Site
from qm_provisioner.steps import LOGIN, Model, Step, cleaned, each, held, issued, once, revoked

BARE_METAL = Model(
    name="bare_metal",
    steps=(
        Step("hardware", each(held), undo=cleaned, deadline_seconds=1_800),
        Step("image", each(lambda site, unit: {"node": unit.node, "image": site.request.image}), proof="wiped"),
        Step("network", each(lambda _, unit: {"node": unit.node}), deadline_seconds=300),
        Step("storage", once(lambda _: {"mount": "/data"}), deadline_seconds=300),
        Step("agents", each(lambda _, unit: {"node": unit.node, "agents": ["driver", "monitoring"]})),
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
)


def _logins(site: Site) -> dict[str, Any]:
    hosts = [unit.node for unit in site.units]
    return {"ssh_keys": list(site.request.ssh_keys), SHOWN: {"user": "qm", "hosts": hosts, "port": 22}}
