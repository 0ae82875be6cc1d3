"""Ironic as a real server: all in one process, on PostgreSQL, with fake hardware that fails as it is told.

    with Ironic(postgres) as ironic:
        ironic.enrol("n0"); ironic.chaos("n0", deploy={"fail": "no such image"}); ironic.kill9(); ironic.restart()

Ironic and its libraries are installed once, into an environment of their own in the user's cache.
"""

import fcntl
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers import CACHE, HOST, Postgres, Server, free_port, run, wait_until

PLUG_IN = Path(__file__).parent / "ironic_chaos"
UVS = (shutil.which("uv"), Path.home() / ".local/share/quartermaster/uv/bin/uv")
LIMIT_SECONDS = 30.0
NEWEST = {"X-OpenStack-Ironic-API-Version": "1.82"}
"""The microversion of the calls of the tests: https://docs.openstack.org/ironic/latest/contributor/webapi-version-history.html."""


class Ironic(Server):
    """The conductor with its API. Power is looked at every second, so a mute BMC is noticed within a few."""

    def __init__(self, postgres: Postgres, database: str = "ironic") -> None:
        self._bin = installed() / "bin"
        folder, port = Path(tempfile.mkdtemp(prefix="qm-ironic-")), free_port()
        (folder / "machines").mkdir()
        settings = folder / "ironic.conf"
        database_url = postgres.database(database).replace("asyncpg", "psycopg2")
        settings.write_text(ironic_settings(folder, port, database_url))
        run([self._bin / "ironic-dbsync", "--config-file", settings])
        super().__init__([str(self._bin / "ironic"), "--config-file", str(settings)], port, folder)
        self.url = f"http://{HOST}:{port}"
        self._http = httpx.Client(base_url=f"{self.url}/v1", headers=NEWEST, timeout=30, trust_env=False)

    def _answers(self) -> bool:
        try:
            return super()._answers() and self._http.get("/conductors").json()["conductors"][0]["alive"] is True
        except (httpx.TransportError, LookupError):
            return False

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make a call and return the answer. Raises AssertionError where it is refused."""
        answer = self._http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def node(self, name: str) -> dict[str, Any]:
        """Return a node as it is."""
        node: dict[str, Any] = self.call("GET", f"/nodes/{name}")
        return node

    def enrol(self, name: str, address: str = HOST, *, until: str = "available") -> None:
        """Bring in a node whose deployed machine answers at `address`."""
        machine = str(self.folder / "machines" / f"{name}.json")
        body = {
            "name": name,
            "driver": "fake-hardware",
            "resource_class": "baremetal",
            "driver_info": {"machine": machine, "chaos": {}},
            "extra": {"address": address},
            "properties": {"cpu_arch": "x86_64"},
        }
        interfaces = {f"{kind}_interface": "chaos" for kind in ("deploy", "power", "network")}
        self.call("POST", "/nodes", body | interfaces)
        if until != "enroll":
            self.provision(name, "manage", "manageable")
        if until == "available":
            self.provision(name, "provide", "available")

    def provision(self, name: str, target: str, until: str) -> None:
        """Move a node to another state, and wait until it is there."""
        self.call("PUT", f"/nodes/{name}/states/provision", {"target": target})
        self.reaches(name, until)

    def reaches(self, name: str, *states: str) -> None:
        """Wait until a node is in one of these states, and free."""
        wait_until(lambda: self._rests_in(name, states), LIMIT_SECONDS, lambda: str(self.node(name)))

    def _rests_in(self, name: str, states: tuple[str, ...]) -> bool:
        node = self.node(name)
        return node["provision_state"] in states and node["reservation"] is None

    def chaos(self, name: str, **points: Mapping[str, Any]) -> None:
        """Set how a node misbehaves, instead of all that was set before."""
        self.call("PATCH", f"/nodes/{name}", [{"op": "add", "path": "/driver_info/chaos", "value": points}])

    def left(self, *names: str) -> list[Any]:
        """Return what bears the mark of an order: allocations, and notes and states of these nodes."""
        nodes = [self.node(name) for name in names]
        notes = [
            (node["name"], node["provision_state"], node["instance_uuid"], node["extra"], node["instance_info"])
            for node in nodes
            if node["provision_state"] != "available"
            or node["instance_uuid"]
            or node["instance_info"]
            or set(node["extra"]) != {"address"}
        ]
        vifs = [vif for name in names for vif in self.call("GET", f"/nodes/{name}/vifs")["vifs"]]
        return [*self.call("GET", "/allocations")["allocations"], *notes, *vifs]


def installed() -> Path:
    """Return the environment with Ironic; made where there is none. Who comes meanwhile waits."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(PLUG_IN.glob("*.*")))).hexdigest()[:12]
    place = CACHE / f"ironic-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "ironic.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            shutil.rmtree(place, ignore_errors=True)
            uv = next((str(uv) for uv in UVS if uv and Path(uv).exists()), None)
            if uv is None:
                raise RuntimeError("uv is needed: make setup installs it")
            run([uv, "venv", "--quiet", "--python", sys.executable, place])
            run([uv, "pip", "install", "--quiet", "--python", place / "bin" / "python", PLUG_IN])
            (place / "whole").touch()
    return place


INTERFACES = {
    "bios": "no-bios",
    "boot": "fake",
    "console": "no-console",
    "deploy": "fake,chaos",
    "firmware": "no-firmware",
    "inspect": "no-inspect",
    "management": "fake",
    "network": "noop,chaos",
    "power": "fake,chaos",
    "raid": "no-raid",
    "rescue": "no-rescue",
    "storage": "noop",
    "vendor": "no-vendor",
}


def ironic_settings(folder: Path, port: int, database_url: str) -> str:
    """Return the settings of an Ironic without message bus, identity service or network service."""
    enabled = "\n".join(f"enabled_{kind}_interfaces = {names}" for kind, names in INTERFACES.items())
    return f"""
[DEFAULT]
auth_strategy = noauth
rpc_transport = none
host = localhost.localdomain
my_ip = {HOST}
state_path = {folder}
tempdir = {folder}
enabled_hardware_types = fake-hardware
{enabled}
default_network_interface = noop
[api]
host_ip = {HOST}
port = {port}
[conductor]
automated_clean = true
heartbeat_interval = 1
sync_power_state_interval = 2
power_state_sync_max_retries = 1
[database]
connection = {database_url}
[service_catalog]
auth_type = none
endpoint_override = http://{HOST}:{port}
[oslo_messaging_notifications]
driver = noop
"""
