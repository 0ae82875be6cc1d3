"""What may be asked of an environment: by the facts of others (begin, end), by the runner (reports), by a caller."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from qm_events.provisioner import Direction
from qm_events.specs import EndCause, FaultReport, OrderRequest, PlacedUnit, Probe

Proof = Literal["revoked", "wiped"]
"""What the undo of a step can show beyond its own absence."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Build an environment on these cards, by these steps."""

    order: str
    allocation: str
    request: OrderRequest
    units: tuple[PlacedUnit, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoteEnd:
    """The order ended, or (with an allocation) gives these cards up and lives on."""

    order: str
    cause: EndCause
    ended_at: datetime
    fault: FaultReport | None = None
    allocation: str | None = None


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The effect of an attempt was observed; `proof` is what its undo has proven beyond that."""

    step: str
    direction: Direction
    attempt: int
    outputs: dict[str, Any] = field(default_factory=dict)
    proof: Proof | None = None


@dataclass(frozen=True, slots=True)
class StepBroke:
    """An attempt failed; `final` when no other is to follow."""

    step: str
    direction: Direction
    attempt: int
    error: str
    final: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """The probes were run as the user."""

    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class Disclose:
    """Someone entitled wants the credential."""


@dataclass(frozen=True, slots=True)
class Script:
    """A simulated cloud was told how to behave: nothing here changes, but the call is audited."""
