"""Ironic over openstacksdk: each call once, in a thread, to its end; errors as the port knows them.

The sdk by itself repeats what Ironic refuses with 409, for 15 s: an `active` that is repeated so starts a second deploy
once the first has failed. Hence no repetition here, and none of its waiting either.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit

from keystoneauth1.exceptions import ClientException
from openstack.connection import Connection
from openstack.exceptions import HttpException, SDKException

from qm_provisioner.adapters.ironic_states import MARK, Node
from qm_provisioner.ports import BackendError, BackendRefused
from qm_provisioner.together import Together

SCHEME = "ironic+"
_ONCE: dict[str, Any] = {"baremetal_status_code_retries": 0, "baremetal_connect_retries": 0, "api_timeout": 30}
_FIELDS = ["uuid", "name", "provision_state", "maintenance", "fault", "power_state", "reservation", "instance_uuid"]
_FIELDS += ["last_error", "resource_class", "extra"]
_LOCKED = ("is locked by host", "state transition is in progress")
"""How a 409 reads that only says: not now."""
_FOR_GOOD = (401, 403, 404)
_SAID_MAX_CHARS = 300
T = TypeVar("T")
Patch = Sequence[Mapping[str, Any]]


class Locked(BackendError):
    """Not now: something else is at work on the node. Nothing was done."""


class Conflict(BackendError):
    """It contradicts what is there. Nothing was done."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An allocation of ours."""

    id: str
    name: str
    state: str
    error: str
    node: str
    """Id of the node, or of the one that was asked for."""
    mark: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """All that bears our mark."""

    claims: Sequence[Claim]
    nodes: Sequence[Node]


class IronicApi:
    """The calls. Each may be cancelled, and then still waits for the answer to what was sent."""

    def __init__(self, url: str, threads: int = 16) -> None:
        self._url = url
        self._threads = threads
        self._seen: Together[None, Seen] = Together(self._look)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, "ironic")

    @cached_property
    def _ironic(self) -> Any:
        return connection(self._url).baremetal

    def close(self) -> None:
        """Let go of the threads."""
        self._pool.shutdown(wait=False)

    async def seen(self) -> Seen:
        """Return all that bears our mark, looked up after this was called. Many who ask at once get one answer."""
        seen = await self._seen.ask("all", None)
        if seen is None:
            raise BackendError("Ironic was asked for everything and named nothing")
        return seen

    async def node(self, name: str) -> Node:
        """Return a node by id or name."""
        return _node(await self._call(lambda: self._ironic.get_node(name, fields=_FIELDS)))

    async def claim(self, id_: str, name: str, node: Node, mark: Mapping[str, Any]) -> None:
        """Ask for this very node. A claim with this id that exists already is as good."""
        wanted = {"resource_class": node.resource_class, "candidate_nodes": [node.id], "extra": {MARK: dict(mark)}}
        with contextlib.suppress(Conflict):
            await self._call(lambda: self._ironic.create_allocation(uuid=id_, name=name, **wanted))

    async def claimed(self, id_: str) -> tuple[str, str]:
        """Return state and error of a claim."""
        found = await self._call(lambda: self._ironic.get_allocation(id_))
        return str(found.state), str(found.last_error or "")

    async def unclaim(self, id_: str) -> None:
        """Give up a claim; one that is gone is no error."""
        await self._call(lambda: self._ironic.delete_allocation(id_, ignore_missing=True))

    async def patch(self, node: str, patch: Patch) -> None:
        """Change a node."""
        await self._call(lambda: self._ironic.patch_node(node, list(patch), retry_on_conflict=False))

    async def provision(self, node: str, verb: str, drive: Mapping[str, Any] | None = None) -> None:
        """Ask for another provision state."""
        config = None if drive is None else dict(drive)
        await self._call(lambda: self._ironic.set_node_provision_state(node, verb, config_drive=config))

    async def power(self, node: str, wanted: str) -> None:
        """Ask for power on or off."""
        await self._call(lambda: self._ironic.set_node_power_state(node, wanted))

    async def lacks(self, node: str) -> str:
        """Return what of its interfaces is not fit for a deploy, and why; empty where all is."""
        result = await self._call(lambda: self._ironic.validate_node(node, required=None))
        needed = {name: result[name] for name in ("boot", "deploy", "network", "power") if name in result}
        return "; ".join(f"{name}: {one.reason}" for name, one in needed.items() if one.result is False)

    async def attach(self, node: str, vif: str) -> None:
        """Attach a VIF; one that is attached already is as good."""
        try:
            await self._call(lambda: self._ironic.attach_vif_to_node(node, vif, retry_on_conflict=False))
        except Conflict:
            if vif not in await self._call(lambda: self._ironic.list_node_vifs(node)):
                raise

    async def detach(self, node: str, vif: str) -> None:
        """Detach a VIF; one that is not attached is no error."""
        await self._call(lambda: self._ironic.detach_vif_from_node(node, vif, ignore_missing=True))

    async def _look(self, _: Mapping[str, None]) -> Mapping[str, Seen]:
        return {"all": await self._call(self._list)}

    def _list(self) -> Seen:
        # Claims first: whoever is deployed meanwhile is seen at least once.
        claims = [_claim(found) for found in self._ironic.allocations()]
        nodes = [_node(found) for found in self._ironic.nodes(fields=_FIELDS)]
        return Seen([claim for claim in claims if claim.mark], [node for node in nodes if node.mark])

    async def _call(self, call: Callable[[], T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._pool, _answered, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # What was sent may take effect: nobody may look for it before that is decided.
            await asyncio.wait([running])
            running.cancelled() or running.exception()
            raise


def check_address(url: str) -> None:
    """Raise ValueError for what is no address of an Ironic, without showing it: it may hold a password."""
    parts = urlsplit(url.removeprefix(SCHEME))
    if not url.startswith(SCHEME) or parts.scheme not in ("http", "https", "cloud") or not parts.hostname:
        kinds = " or ".join(f"{SCHEME}{kind}" for kind in ("http(s)://[user:password@]host:port", "cloud://NAME"))
        raise ValueError(f"the address of Ironic reads {kinds}")


def connection(url: str) -> Connection:
    """Return a connection. `ironic+http(s)://[user:password@]host:port`: none or basic authentication;
    `ironic+cloud://NAME`: as `clouds.yaml` says of that cloud."""
    parts = urlsplit(url.removeprefix(SCHEME))
    if parts.scheme == "cloud":
        return Connection(cloud=parts.netloc, **_ONCE)
    endpoint = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if parts.username is None:
        return Connection(auth_type="none", baremetal_endpoint_override=endpoint, **_ONCE)
    auth = {"endpoint": endpoint, "username": parts.username, "password": parts.password}
    return Connection(auth_type="http_basic", auth=auth, baremetal_endpoint_override=endpoint, **_ONCE)


def _answered(call: Callable[[], T]) -> T:
    try:
        return call()
    except HttpException as error:
        raise _refusal(error) from None
    except (SDKException, ClientException) as error:
        raise BackendError(f"Ironic did not answer: {error}"[:_SAID_MAX_CHARS]) from None


def _refusal(error: HttpException) -> BackendError:
    said = f"Ironic: {error.details or error.message}"[:_SAID_MAX_CHARS]
    if error.status_code in _FOR_GOOD:
        return BackendRefused(said)
    if error.status_code == 409:
        return Locked(said) if any(words in said for words in _LOCKED) else Conflict(said)
    return BackendError(said)


def _node(found: Any) -> Node:
    return Node(
        id=found.id,
        name=found.name or "",
        state=found.provision_state or "",
        maintenance=bool(found.is_maintenance),
        fault=found.fault,
        power=found.power_state,
        locked=bool(found.reservation),
        instance=found.instance_id,
        error=found.last_error or "",
        resource_class=found.resource_class,
        extra=found.extra or {},
    )


def _claim(found: Any) -> Claim:
    node = found.node_id or next(iter(found.candidate_nodes or ()), "")
    mark = (found.extra or {}).get(MARK) or {}
    return Claim(found.id, found.name or "", found.state, found.last_error or "", node, mark)
