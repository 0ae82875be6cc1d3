"""The language of the tables in `models/`: a service model is one table of steps and one of checks.

A step wants things to exist at a backend: `do` asks for them, `verify` waits until they are seen, `undo` removes them
and waits until they are not. All three look before they act, so each may run again after any crash, and what a lost
answer made twice is found and removed. Undo runs from the last step to the first; the step that issues the credential
is last in every table, so that access ends before anything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from qm_events.specs import PlacedUnit, Probe
from qm_provisioner.commands import Proof
from qm_provisioner.ports import (
    Backend,
    BackendError,
    BackendRefused,
    Check,
    Ref,
    Secret,
    Site,
    Thing,
    ThingState,
    Vault,
)

Spec = Mapping[str, Any]
Outputs = dict[str, Any]

LOGIN = Check("credential_works", through=("access",))
"""Every table has it, and revocation is proven by its failure."""
HEALTHY = Check("healthy", of_cards=True)
"""The validation of cleaned cards, run by the platform when nobody holds a credential any more."""
_CHECK_TRIES = 3
_USABLE = (ThingState.BUILDING, ThingState.ACTIVE)


def once(spec: Callable[[Site], Spec]) -> Callable[[Site], Mapping[int, Spec]]:
    """One thing for the whole order."""
    return lambda site: {0: spec(site)}


def each(spec: Callable[[Site, PlacedUnit], Spec]) -> Callable[[Site], Mapping[int, Spec]]:
    """One thing for each unit."""
    return lambda site: {number: spec(site, unit) for number, unit in enumerate(site.units)}


def held(_: Site, unit: PlacedUnit) -> Spec:
    """The cards of a unit, or the slice of one, held for the order."""
    return {"node": unit.node, "accelerator": unit.accelerator, "cards": list(unit.cards), **cut(unit)}


def cut(unit: PlacedUnit) -> Spec:
    """The slice that a unit is given instead of its whole card, if it is."""
    return {"slice": unit.slice.model_dump(exclude_none=True)} if unit.slice else {}


async def present(call: Call) -> None:
    """Ask for what is wanted and not there; remove what is there twice or broken."""
    await _ask(call, call.step.wants(call.site))


async def _ask(call: Call, wants: Mapping[int, Spec]) -> None:
    there = await call.things()
    for unit, spec in wants.items():
        usable = await _the_one(call, there.get(unit, []))
        if usable is None:
            await call.backend.create(call.ref(unit), spec)


async def _the_one(call: Call, things: list[Thing]) -> Thing | None:
    """Return the oldest usable thing; delete all others."""
    usable = next((thing for thing in things if thing.state in _USABLE), None)
    for thing in things:
        if thing is not usable:
            await call.backend.delete(thing)
    return usable


async def active(call: Call) -> Outputs:
    """Wait until each wanted thing is seen active, once; return what the outside may see of them."""
    while True:
        there = await call.things()
        seen = [await _seen(call, unit, there.get(unit, [])) for unit in call.step.wants(call.site)]
        if all(thing.state is ThingState.ACTIVE for thing in seen):
            shown = [dict(thing.shown) for thing in seen]
            return shown[0] if len(shown) == 1 else {"units": shown} if any(shown) else {}
        await call.changed()


async def _seen(call: Call, unit: int, things: list[Thing]) -> Thing:
    for thing in things:
        if thing.state is ThingState.ERROR:
            raise BackendError(f"{thing.ref.name} is in error: {thing.error}")
    usable = await _the_one(call, things)
    if usable is None:
        raise BackendError(f"{call.ref(unit).name} is not there")
    return usable


async def absent(call: Call) -> Outputs:
    """Remove what is there and wait until it is seen to be gone."""
    for things in (await call.things()).values():
        for thing in things:
            await call.backend.delete(thing)
    while left := [thing for things in (await call.things()).values() for thing in things]:
        for thing in left:
            if thing.state is not ThingState.DELETING:
                raise BackendError(f"{thing.ref.name} is still {thing.state} after it was deleted")
        await call.changed()
    return {}


async def _minted(call: Call) -> Secret:
    """Return the credential of the order; it is kept before a backend knows it, so that no crash loses a live one."""
    secret = await call.vault.get(call.site.order)
    if secret is None:
        secret = call.model.mint(call.site)
        await call.vault.put(call.site.order, secret)
    return secret


async def keyed(call: Call) -> None:
    """Ask for things that know from the beginning what the user will enter with, beside `keys` of his own."""
    secret = await _minted(call)
    wants = call.step.wants(call.site)
    with redacted(secret):
        await _ask(call, {unit: {**spec, "keys": [*spec["keys"], secret.proof]} for unit, spec in wants.items()})


async def forgotten(call: Call) -> Outputs:
    """The undo of `keyed`: what knew the credential is gone, so it opens nothing any more."""
    outputs = await absent(call)
    await call.vault.revoke(call.site.order)
    return outputs


async def issued(call: Call) -> None:
    """Give the user access."""
    secret = await _minted(call)
    wants = {unit: {**spec, "proof": secret.proof} for unit, spec in call.step.wants(call.site).items()}
    with redacted(secret):
        await _ask(call, wants)


async def revoked(call: Call) -> Outputs:
    """End the user's access and prove it: the old credential is tried, and refused."""
    secret = await call.vault.get(call.site.order)
    with redacted(secret):
        await absent(call)
        # A credential that is not there any more was proven dead before it was forgotten.
        if secret is not None and (await call.backend.probe(LOGIN, call.site, secret)).passed:
            raise BackendError("the credential still works after its revocation")
    await call.vault.revoke(call.site.order)
    return {}


@contextmanager
def redacted(secret: Secret | None) -> Iterator[None]:
    """Keep the credential out of what a backend says when it fails: the message becomes a fact."""
    try:
        yield
    except BackendError as error:
        if secret is None:
            raise
        raise type(error)(secret.redact(str(error))) from None


async def cleaned(call: Call) -> Outputs:
    """Let go of the cards and validate them; `suspect` are those that must not be pooled."""
    await absent(call)
    probe = await call.backend.probe(HEALTHY, call.site, None)
    return {} if probe.passed else {"suspect": list(probe.suspect or call.site.cards)}


@dataclass(frozen=True, slots=True)
class Step:
    """One row: what it wants, how that is brought about and taken back, and how long and how often it is tried."""

    name: str
    wants: Callable[[Site], Mapping[int, Spec]]
    """Number of the unit -> specification; the things of a step that serve all units have the number 0."""
    do: Callable[[Call], Awaitable[None]] = present
    undo: Callable[[Call], Awaitable[Outputs]] = absent
    verify: Callable[[Call], Awaitable[Outputs]] = active
    deadline_seconds: int = 600
    """For one attempt, in either direction."""
    attempts: int = 3
    proof: Proof | None = None
    """What a successful undo has proven."""


@dataclass(frozen=True, slots=True)
class Model:
    """A service model: how it is built, how it is proven, what its users enter with."""

    name: str
    steps: tuple[Step, ...]
    checks: tuple[Check, ...]
    mint: Callable[[Site], Secret]
    """Make a new credential."""
    checks_deadline_seconds: int = 600

    def step(self, name: str) -> Step | None:
        """Return a step, None where this release has none of that name."""
        return next((step for step in self.steps if step.name == name), None)


@dataclass(frozen=True, slots=True)
class Call:
    """One step of one order on its backend."""

    step: Step
    site: Site
    model: Model
    backend: Backend
    vault: Vault

    async def things(self) -> Mapping[int, list[Thing]]:
        """Return what is there, by unit."""
        found: dict[int, list[Thing]] = {}
        for thing in await self.backend.find(self.site.order, self.step.name):
            found.setdefault(thing.ref.unit, []).append(thing)
        return found

    def ref(self, unit: int) -> Ref:
        """Return what the thing of a unit is called."""
        return Ref(self.site.order, self.step.name, unit)

    async def changed(self) -> None:
        """Wait until it is worth looking again."""
        await self.backend.changed(self.site.order, self.step.name)


async def run_checks(model: Model, site: Site, backend: Backend, vault: Vault) -> tuple[Probe, ...]:
    """Run every check as the user with the credential that was issued; what could not be checked did not pass."""
    secret = await vault.get(site.order)
    if secret is None:
        return (Probe(name=LOGIN.name, passed=False, detail="no credential was issued"),)
    return tuple([await _checked(check, site, backend, secret) for check in model.checks])


async def _checked(check: Check, site: Site, backend: Backend, secret: Secret) -> Probe:
    probe = await _probed(check, site, backend, secret)
    return probe.model_copy(update={"detail": secret.redact(probe.detail)})


async def _probed(check: Check, site: Site, backend: Backend, secret: Secret) -> Probe:
    """Ask until there is an answer, a few times: that a check could not be made says nothing of the environment."""
    last = ""
    for _ in range(_CHECK_TRIES):
        try:
            return await backend.probe(check, site, secret)
        except BackendRefused as error:
            return Probe(name=check.name, passed=False, detail=str(error))
        except BackendError as error:
            last = str(error)
    return Probe(name=check.name, passed=False, detail=last)
