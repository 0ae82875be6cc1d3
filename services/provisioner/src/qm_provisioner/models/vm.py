"""Virtual machines: one server a unit with its cards passed through, entered over SSH."""

from typing import Any

from qm_events.specs import PlacedUnit
from qm_provisioner.mint import ssh_key
from qm_provisioner.ports import SHOWN, Check, Ref, Site
from qm_provisioner.steps import LOGIN, Model, Step, cleaned, cut, each, held, issued, once, revoked

VM = Model(
    name="vm",
    steps=(
        Step("devices", each(held), undo=cleaned),
        Step("volume", each(lambda site, _: {"image": site.request.image}), proof="wiped"),
        Step("port", each(lambda _, __: {"security": "ssh"}), deadline_seconds=300),
        Step("server", each(lambda site, unit: _server(site, unit)), deadline_seconds=1_200),
        Step("access", once(lambda site: _logins(site)), do=issued, undo=revoked, proof="revoked"),
    ),
    checks=(
        Check("reachable", ("port", "server")),
        LOGIN,
        Check("dns", ("port",)),
        Check("storage_rw", ("volume",)),
        Check("accelerator_visible", ("devices", "server"), of_cards=True),
        Check("kernel", ("devices",), of_cards=True),
        Check("runtime", ("server",)),
    ),
    mint=ssh_key,
)


def _server(site: Site, unit: PlacedUnit) -> dict[str, Any]:
    wanted = site.request.specification
    return {
        "host": unit.node,
        "devices": list(unit.cards),
        **cut(unit),
        "cpu_milli": wanted.cpu_milli,
        "memory_mib": wanted.memory_mib,
    }


def _logins(site: Site) -> dict[str, Any]:
    hosts = [Ref(site.order, "server", number).name for number in range(len(site.units))]
    return {"ssh_keys": list(site.request.ssh_keys), SHOWN: {"user": "qm", "hosts": hosts, "port": 22}}
