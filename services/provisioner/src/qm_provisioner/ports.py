"""What the steps need from outside. `adapters/` implements it; only `app` chooses which."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from qm_events.specs import OrderRequest, PlacedUnit, Probe
from qm_provisioner.behaviour import Behaviour
from qm_provisioner.environment import external_name

SHOWN = "shown"
"""The member of a specification that the outside may see of the thing: it goes into facts, so it holds no secret."""


class BackendError(Exception):
    """A call failed and may be tried again. The message goes into a fact: an adapter puts no secret into it."""


class BackendRefused(BackendError):
    """The backend will never do this, whoever asks again: no quota, no such image."""


class ThingState(StrEnum):
    """Where a thing at a backend stands, as the backend says."""

    BUILDING = "building"
    ACTIVE = "active"
    ERROR = "error"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Ref:
    """What a thing is for. Its name follows from that, so that whoever comes later finds it."""

    order: str
    step: str
    unit: int = 0

    @property
    def name(self) -> str:
        """Return the name at the backend."""
        return f"{external_name(self.order, self.step)}-{self.unit}"


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that exists at a backend and that we made. Names are not unique there: `id` is."""

    id: str
    ref: Ref
    state: ThingState
    shown: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """What an order gets, and where."""

    order: str
    """What its things go by (`Environment.site`), here and in all calls of a backend and of the vault."""
    request: OrderRequest
    units: tuple[PlacedUnit, ...]

    @property
    def cards(self) -> tuple[str, ...]:
        """Return all cards, unit by unit; one of which several slices are held is named once."""
        return tuple(dict.fromkeys(card for unit in self.units for card in unit.cards))


@dataclass(frozen=True, slots=True)
class Secret:
    """A credential. It is never logged, recorded or shown but to its owner, hence the bare `repr`."""

    kind: str
    proof: str
    """What the backend needs to know it by: a public key or a digest."""
    values: Mapping[str, str] = field(repr=False)

    def redact(self, text: str) -> str:
        """Return `text` without the values of this credential.

        Line by line: a key with line breaks is quoted with escapes, or in part.
        """
        for line in (line for value in self.values.values() for line in value.splitlines()):
            text = text.replace(line, "[redacted]")
        return text


@dataclass(frozen=True, slots=True)
class Check:
    """A probe of an environment, and the steps whose work it exercises."""

    name: str
    through: tuple[str, ...] = ()
    of_cards: bool = False
    """Whether its failure speaks against cards; the backend names them."""


class Backend(Protocol):
    """One cloud: things with names. A call either answers or raises BackendError; how long it may take is the caller's.

    Any call may be cancelled at any moment: an adapter that has sent a request waits for the answer first (shield), so
    that nothing comes to be after its owner has looked for it in vain.
    """

    async def find(self, order: str, step: str) -> Sequence[Thing]:
        """Return the things of a step, the oldest first. Whatever a `create` before made is in it."""

    async def create(self, ref: Ref, spec: Mapping[str, Any]) -> None:
        """Ask for a thing; it may still be building on return. Never looks for one that exists."""

    async def delete(self, thing: Thing) -> None:
        """Ask for the end of a thing; one that is gone is no error. What the answer says proves nothing."""

    async def changed(self, order: str, step: str) -> None:
        """Return when the things of a step may have changed, or after a while."""

    async def probe(self, check: Check, site: Site, secret: Secret | None) -> Probe:
        """Check something as the user who holds `secret`, or (None) as the platform. A check that could not be made
        raises BackendError; `passed=False` says that it was made and what it saw."""

    async def list_all(self) -> Sequence[Thing]:
        """Return everything that bears our mark: what a sweep compares with the log."""


class Vault(Protocol):
    """Where credentials live."""

    async def get(self, order: str) -> Secret | None:
        """Return the credential of an order, None where there is none or it was revoked."""

    async def put(self, order: str, secret: Secret) -> None:
        """Keep a new credential; durable on return."""

    async def revoke(self, order: str) -> None:
        """Forget the credential of an order; that there was none is no error."""


class Scriptable(Protocol):
    """A simulated twin whose faults can be set."""

    def script(self, service_model: str, steps: Mapping[str, Behaviour]) -> None:
        """Replace the behaviour of a service model: by step, `undo:<step>` or `probe:<check>`."""

    def break_card(self, card: str, broken: bool) -> None:
        """Let a card fail, or mend it."""
