"""Facts of the provisioner: the topic `environments`, streams `environment/<order>`. No secret is ever in one."""

from typing import Any, Literal

from pydantic import Field

from qm_events.audit import AccessAudited
from qm_events.envelope import EventData, UtcTime
from qm_events.registry import ENVIRONMENTS, event
from qm_events.specs import EndCause, FaultReport, OrderRequest, PlacedUnit, Probe, Value

Direction = Literal["do", "undo"]


@event("environment.started", version=1, topic=ENVIRONMENTS)
class EnvironmentStarted(EventData):
    """The build begins: which steps, for which allocation."""

    order: str
    allocation: str
    request: OrderRequest
    units: tuple[PlacedUnit, ...]
    steps: tuple[str, ...]
    started_at: UtcTime


@event("environment.step_intended", version=1, topic=ENVIRONMENTS)
class EnvironmentStepIntended(EventData):
    """Written before the call, with the name that the thing has at the backend: a crash in between is recoverable."""

    order: str
    step: str
    direction: Direction
    attempt: int = Field(ge=1)
    external_name: str
    intended_at: UtcTime


@event("environment.step_done", version=1, topic=ENVIRONMENTS)
class EnvironmentStepDone(EventData):
    """The effect was observed. `outputs` is what the record shows of it."""

    order: str
    step: str
    direction: Direction
    attempt: int
    outputs: dict[str, Any] = Field(default_factory=dict)
    done_at: UtcTime


@event("environment.step_failed", version=1, topic=ENVIRONMENTS)
class EnvironmentStepFailed(EventData):
    """An attempt failed; `final` when no other follows."""

    order: str
    step: str
    direction: Direction
    attempt: int
    error: str
    final: bool
    failed_at: UtcTime


@event("environment.verified", version=1, topic=ENVIRONMENTS)
class EnvironmentVerified(EventData):
    """What the probes saw, run as the user. Ready follows only if there are some and all passed."""

    order: str
    probes: tuple[Probe, ...]
    verified_at: UtcTime


@event("environment.ready", version=1, topic=ENVIRONMENTS)
class EnvironmentReady(EventData):
    """Usable, proven. Billing starts at `ready_at`; a duration counts from it."""

    order: str
    allocation: str
    endpoint: dict[str, Any]
    ready_at: UtcTime


@event("environment.failed", version=1, topic=ENVIRONMENTS)
class EnvironmentFailed(EventData):
    """Cannot be built, or broke in use. Billing stops at `failed_at`; release follows by itself."""

    order: str
    allocation: str
    step: str
    error: str
    elsewhere: bool | None = None
    """Only these cards are at fault: the order lives on and is to have others."""
    failed_at: UtcTime


@event("environment.end_noted", version=1, topic=ENVIRONMENTS)
class EnvironmentEndNoted(EventData):
    """The end of the order arrived; may be the first fact of its stream. With an allocation (preempted): that of this
    environment alone, and the order lives on."""

    order: str
    allocation: str | None = None
    cause: EndCause
    ended_at: UtcTime
    fault: FaultReport | None = None


@event("environment.release_started", version=1, topic=ENVIRONMENTS)
class EnvironmentReleaseStarted(EventData):
    """The way back begins, credentials first."""

    order: str
    allocation: str
    cause: EndCause
    started_at: UtcTime


@event("environment.revoked", version=1, topic=ENVIRONMENTS)
class EnvironmentRevoked(EventData):
    """The credentials were seen to be refused."""

    order: str
    revoked_at: UtcTime


@event("environment.wiped", version=1, topic=ENVIRONMENTS)
class EnvironmentWiped(EventData):
    """Tenant data is gone, seen to be."""

    order: str
    wiped_at: UtcTime


@event("environment.validated", version=1, topic=ENVIRONMENTS)
class EnvironmentValidated(EventData):
    """These cards are clean and checked: the scheduler may pool them. `suspect` ones are to be isolated."""

    order: str
    allocation: str
    clean: tuple[str, ...]
    suspect: tuple[str, ...] = ()
    validated_at: UtcTime


@event("environment.quarantined", version=1, topic=ENVIRONMENTS)
class EnvironmentQuarantined(EventData):
    """A release step failed for good: the cards are isolated, the bill stops, the quota of an order that is over is
    free."""

    order: str
    allocation: str
    cards: tuple[str, ...]
    step: str
    error: str
    lives_on: bool | None = None
    """The order gave these cards up and is not over."""
    quarantined_at: UtcTime


class ReceiptLine(Value):
    """One step of the release, confirmed by observation or not."""

    step: str
    confirmed: bool
    at: UtcTime
    detail: str = ""


@event("environment.released", version=1, topic=ENVIRONMENTS)
class EnvironmentReleased(EventData):
    """The receipt: every step of the release; `digest` is the SHA-256 of its lines."""

    order: str
    allocation: str
    cause: EndCause
    outcome: Literal["clean", "quarantined"]
    lines: tuple[ReceiptLine, ...]
    digest: str
    released_at: UtcTime


@event("environments.access_audited", version=1, topic=ENVIRONMENTS)
class EnvironmentsAccessAudited(AccessAudited):
    """A mutating call on the provisioner, or a secret handed out; stream `audit-provisioner/<tenant>`."""
