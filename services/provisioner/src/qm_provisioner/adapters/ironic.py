"""Bare metal on Ironic (`Backend`): the scheduler's node is Ironic's node.

  hardware   an allocation for that very node, with an id made of our name: the claim that exists once
  image      the deploy, with a config drive: user, keys, data folder, bootstrap
  network    a VIF with an id made of our name
  storage, agents   the first boot does them; what is there is our note that they are wanted, the checks prove them
  access     power: the machine with the key in it is on. Its end is power off, which no tenant's root can undo

Notes: `extra.quartermaster` of the allocation says whose claim it is, that of the node which steps stand on it. The
node's outlives the undeploy, so that its cleaning can still be told to be ours, and goes when the hardware is let go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from qm_events.specs import Probe
from qm_provisioner.adapters.ironic_api import IronicApi, Locked, Seen
from qm_provisioner.adapters.ironic_checks import Checks
from qm_provisioner.adapters.ironic_drive import config_drive
from qm_provisioner.adapters.ironic_states import (
    MARK,
    POWER_OFF,
    POWER_ON,
    Back,
    Node,
    ailment,
    meaning,
    told,
)
from qm_provisioner.models.bare_metal import USER
from qm_provisioner.ports import BackendError, BackendRefused, Check, Ref, Secret, Site, Thing, ThingState

_IDS = UUID("6f0c6a3c-3c53-5f6e-9d0e-6a2f3a3f7d10")
"""The name space of all ids that are made of names. Another one would forget every claim there is."""
_CLAIMS = {"allocating": ThingState.BUILDING, "active": ThingState.ACTIVE}
_BRINGS_IN = {"enroll": "manage", "manageable": "provide"}


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator decides."""

    images: Mapping[str, Mapping[str, str]]
    """By the catalogue's name: entries of `instance_info`, as `image_source` and its checksum."""
    bootstrap: str
    poll_seconds: float


def id_of(ref: Ref) -> str:
    """Return the id at Ironic of what has this name: the same on every attempt and after every crash."""
    return str(uuid5(_IDS, ref.name))


class IronicBackend:
    """The cloud of bare metal."""

    def __init__(self, api: IronicApi, options: Options, checks: Checks) -> None:
        self._api = api
        self._options = options
        self._checks = checks

    async def start(self) -> None:
        """Nothing is asked before it is needed."""

    async def stop(self) -> None:
        """Let go of the threads."""
        self._api.close()

    def idle(self) -> bool:
        """Return True: what is under way is a call of somebody."""
        return True

    async def find(self, order: str, step: str) -> Sequence[Thing]:
        """See `Backend.find`."""
        return [thing for thing in self._things(await self._api.seen()) if _is(thing, order, step)]

    async def create(self, ref: Ref, spec: Mapping[str, Any]) -> None:
        """See `Backend.create`."""
        make = _MAKE.get(ref.step, IronicBackend._note)
        await self._patiently(lambda: make(self, ref, spec))

    async def delete(self, thing: Thing) -> None:
        """See `Backend.delete`."""
        end = _END.get(thing.ref.step, IronicBackend._unnote)
        await self._patiently(lambda: end(self, thing))

    async def changed(self, order: str, step: str) -> None:  # noqa: ARG002  # it is not told whose what changed is
        """See `Backend.changed`: by the wall clock, as Ironic works by it."""
        await asyncio.sleep(self._options.poll_seconds)

    async def probe(self, check: Check, site: Site, secret: Secret | None) -> Probe:
        """See `Backend.probe`."""
        nodes = await asyncio.gather(*(self._api.node(unit.node) for unit in site.units))
        if secret is None:
            ailments = {number: text for number, node in enumerate(nodes) if (text := ailment(node))}
            suspect = tuple(card for number in ailments for card in site.units[number].cards)
            return Probe(name=check.name, passed=not ailments, detail="; ".join(ailments.values()), suspect=suspect)
        return await self._checks.run(check, site, secret, {n: node.address for n, node in enumerate(nodes)})

    async def list_all(self) -> Sequence[Thing]:
        """See `Backend.list_all`."""
        return self._things(await self._api.seen())

    async def _patiently(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something anew, from its first look on, as long as the node is locked."""
        while True:
            try:
                return await work()
            except Locked:
                await asyncio.sleep(self._options.poll_seconds)

    # ---- what there is

    def _things(self, seen: Seen) -> list[Thing]:
        claims = {
            (claim.mark["order"], claim.mark["unit"]): Thing(
                claim.node,
                _ref(claim.mark, "hardware"),
                _CLAIMS.get(claim.state, ThingState.ERROR),
                error=claim.error,
            )
            for claim in seen.claims
        }
        for node in seen.nodes:
            # The claim ends with the undeploy, the way back does not.
            key = (node.mark["order"], node.mark["unit"])
            claims.setdefault(key, Thing(node.id, _ref(node.mark, "hardware"), ThingState.DELETING, error=told(node)))
        return [*claims.values(), *(thing for node in seen.nodes for thing in self._on(node, seen.nodes))]

    def _on(self, node: Node, nodes: Sequence[Node]) -> Iterable[Thing]:
        row = meaning(node)
        for step in node.mark["steps"]:
            ref = _ref(node.mark, step)
            if step == "access":
                yield self._access(ref, [other for other in nodes if other.mark["order"] == ref.order])
            elif row.thing is not None:
                yield Thing(node.id, ref, row.thing, error=told(node))
            elif step != "image":
                # Wiped without us: what stood on it is not there, but our note is still to be taken back.
                yield Thing(node.id, ref, ThingState.ERROR, error=told(node))

    def _access(self, ref: Ref, nodes: Sequence[Node]) -> Thing:
        nodes = sorted(nodes, key=lambda node: int(node.mark["unit"]))
        broken = [node for node in nodes if meaning(node).thing is not ThingState.ACTIVE]
        dark = [node for node in nodes if node.power != POWER_ON]
        state = ThingState.ERROR if broken else ThingState.BUILDING if dark else ThingState.ACTIVE
        shown = {"user": USER, "hosts": [node.address for node in nodes], "port": self._checks.port}
        return Thing(nodes[0].id, ref, state, shown, "; ".join(map(told, broken)))

    # ---- hardware and image

    async def _claim(self, ref: Ref, spec: Mapping[str, Any]) -> None:
        await self._claimed(ref, spec["node"])

    async def _claimed(self, ref: Ref, name: str) -> Node:
        """Bring a node in, claim it and return it, available and ours."""
        hardware = replace(ref, step="hardware")
        while True:
            node = await self._api.node(name)
            if node.state == "available" and node.instance == id_of(hardware):
                return node
            _check_free(node, id_of(hardware))
            if node.state == "available":
                await self._api.claim(id_of(hardware), hardware.name, node, _mark(hardware))
                state, error = await self._api.claimed(id_of(hardware))
                if state == "error":
                    raise BackendError(f"{node.name} cannot be claimed: {error}")
            elif verb := _BRINGS_IN.get(node.state):
                await self._api.provision(node.id, verb)
            await asyncio.sleep(self._options.poll_seconds)

    async def _deploy(self, ref: Ref, spec: Mapping[str, Any]) -> None:
        image = self._options.images.get(spec["image"])
        if image is None:
            raise BackendRefused(
                f"no image {spec['image']} is known for bare metal; there are {sorted(self._options.images)}"
            )
        node = await self._claimed(ref, spec["node"])
        values: dict[str, Any] = {f"/extra/{MARK}": {**_mark(ref), "steps": {ref.step: ref.name}}}
        values |= {f"/instance_info/{key}": value for key, value in image.items()}
        await self._api.patch(node.id, [{"op": "add", "path": path, "value": value} for path, value in values.items()])
        if lacks := await self._api.lacks(node.id):
            raise BackendRefused(f"{node.name} is not fit for a deploy: {lacks}")
        await self._api.provision(node.id, "active", config_drive(ref.order, node.name, spec, self._options.bootstrap))

    async def _undeploy(self, thing: Thing) -> None:
        node = await self._api.node(thing.id)
        row = meaning(node)
        if not _marked(node, thing.ref):
            return
        if row.back is Back.REFUSE or (row.back is Back.UNDEPLOY and node.instance not in (None, _claim_id(thing.ref))):
            raise BackendRefused(told(node))
        if row.back is Back.UNDEPLOY:
            await self._api.provision(node.id, row.back)
        elif row.thing is ThingState.BUILDING:
            raise Locked(told(node))

    async def _let_go(self, thing: Thing) -> None:
        await self._api.unclaim(_claim_id(thing.ref))
        node = await self._api.node(thing.id)
        if not _marked(node, thing.ref, step=False):
            return
        if meaning(node).thing is not None:
            raise BackendRefused(told(node))
        await self._api.patch(node.id, [{"op": "remove", "path": f"/extra/{MARK}"}])

    # ---- what stands on a deployed node

    async def _note(self, ref: Ref, _: Mapping[str, Any]) -> None:
        """Note that a step stands on the node of its unit."""
        node = (await self._nodes(ref))[ref.unit]
        patch = {"op": "add", "path": f"/extra/{MARK}/steps/{ref.step}", "value": ref.name}
        await self._api.patch(node.id, [patch])

    async def _unnote(self, thing: Thing) -> None:
        node = await self._api.node(thing.id)
        if _marked(node, thing.ref):
            await self._api.patch(node.id, [{"op": "remove", "path": f"/extra/{MARK}/steps/{thing.ref.step}"}])

    async def _attach(self, ref: Ref, spec: Mapping[str, Any]) -> None:
        node = (await self._nodes(ref))[ref.unit]
        await self._api.attach(node.id, id_of(ref))
        await self._note(ref, spec)

    async def _detach(self, thing: Thing) -> None:
        await self._api.detach(thing.id, id_of(thing.ref))
        await self._unnote(thing)

    async def _open(self, ref: Ref, spec: Mapping[str, Any]) -> None:
        await asyncio.gather(*(self._switch(node, POWER_ON) for node in (await self._nodes(ref)).values()))
        await self._note(ref, spec)

    async def _close(self, thing: Thing) -> None:
        nodes = (await self._nodes(thing.ref)).values()
        await asyncio.gather(*(self._switch(node, POWER_OFF) for node in nodes if node.instance is not None))
        await self._unnote(thing)

    async def _switch(self, node: Node, wanted: str) -> None:
        """Switch a machine, and see that it is."""
        if node.power != wanted:
            await self._api.power(node.id, wanted)
        node = await self._unlocked(node)
        if node.power != wanted:
            raise BackendError(f"{node.name} shows {node.power or 'no power state'}, not {wanted}; {node.error}")

    async def _unlocked(self, node: Node) -> Node:
        while True:
            node = await self._api.node(node.id)
            if not node.locked:
                return node
            await asyncio.sleep(self._options.poll_seconds)

    async def _nodes(self, ref: Ref) -> Mapping[int, Node]:
        """Return the nodes of an order by unit."""
        seen = await self._api.seen()
        found = {int(node.mark["unit"]): node for node in seen.nodes if node.mark["order"] == ref.order}
        if ref.unit not in found:
            raise BackendError(f"no node bears the note of {ref.name}")
        return found


_MAKE: Mapping[str, Callable[[IronicBackend, Ref, Mapping[str, Any]], Awaitable[None]]] = {
    "hardware": IronicBackend._claim,
    "image": IronicBackend._deploy,
    "network": IronicBackend._attach,
    "access": IronicBackend._open,
}
_END: Mapping[str, Callable[[IronicBackend, Thing], Awaitable[None]]] = {
    "hardware": IronicBackend._let_go,
    "image": IronicBackend._undeploy,
    "network": IronicBackend._detach,
    "access": IronicBackend._close,
}


def _check_free(node: Node, claim: str) -> None:
    """Raise BackendRefused where a node cannot become ours, however long one waits."""
    if node.instance not in (None, claim) and node.state != "deleting":
        raise BackendRefused(f"{told(node)}, claimed by somebody else")
    if node.maintenance or (node.state == "available" and node.power is None):
        raise BackendRefused(ailment(node))
    row = meaning(node)
    if row.thing is ThingState.BUILDING:
        raise BackendError(told(node))
    if row.back is not Back.WAIT and node.state not in ("available", *_BRINGS_IN):
        raise BackendRefused(told(node))


def _is(thing: Thing, order: str, step: str) -> bool:
    return (thing.ref.order, thing.ref.step) == (order, step)


def _mark(ref: Ref) -> dict[str, Any]:
    return {"order": ref.order, "unit": ref.unit}


def _ref(mark: Mapping[str, Any], step: str) -> Ref:
    return Ref(str(mark["order"]), step, int(mark["unit"]))


def _claim_id(ref: Ref) -> str:
    return id_of(replace(ref, step="hardware"))


def _marked(node: Node, ref: Ref, *, step: bool = True) -> bool:
    """Tell whether a node bears the note of an order, and of the step."""
    mark = node.mark
    ours = bool(mark) and (mark["order"], mark["unit"]) == (ref.order, ref.unit)
    return ours and (not step or ref.step in mark["steps"])
