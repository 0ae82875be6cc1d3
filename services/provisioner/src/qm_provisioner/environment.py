"""An environment as its facts tell it: the state of the stream `environment/<order>`, and its document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeVar

from qm_events import EventData
from qm_events import provisioner as facts
from qm_events.specs import EndCause, FaultReport, OrderRequest, PlacedUnit, Probe


class Phase(StrEnum):
    """Where an environment stands."""

    ABSENT = "absent"
    BUILDING = "building"
    VERIFYING = "verifying"
    READY = "ready"
    RELEASING = "releasing"
    RELEASED = "released"


@dataclass(frozen=True)
class StepRun:
    """A step in one direction: its last attempt, and how it ended."""

    step: str
    direction: facts.Direction
    attempt: int
    external_name: str
    state: Literal["intended", "done", "failed"]
    intended_at: datetime
    """Of the first attempt."""
    ended_at: datetime | None = None
    """Of the last attempt that ended, whether or not another follows."""
    error: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Earlier:
    """An environment that the order had before: which cards it was on, why it ended, and its receipt."""

    allocation: str
    units: tuple[PlacedUnit, ...]
    cause: EndCause | None
    error: str
    probes: tuple[Probe, ...]
    started_at: datetime | None
    ready_at: datetime | None
    failed_at: datetime | None
    quarantined_at: datetime | None
    released_at: datetime | None
    lines: tuple[facts.ReceiptLine, ...]
    digest: str


@dataclass(frozen=True)
class Environment:
    """What the facts of the stream say; also the document of the projection `environments`.

    An order may have several, one after the other, each on an allocation of its own: this is the last one.
    """

    order: str = ""
    allocation: str = ""
    request: OrderRequest | None = None
    """None where the end overtook the beginning."""
    units: tuple[PlacedUnit, ...] = ()
    steps: tuple[str, ...] = ()
    phase: Phase = Phase.ABSENT
    runs: tuple[StepRun, ...] = ()
    """In the order of their first intent; only the last can be in flight."""
    probes: tuple[Probe, ...] = ()
    endpoint: dict[str, Any] | None = None
    cause: EndCause | None = None
    """Why this environment ends; None while it shall live."""
    over: EndCause | None = None
    """Why the order ended; None while another environment may follow."""
    earlier: tuple[Earlier, ...] = ()
    fault: FaultReport | None = None
    error: str = ""
    started_at: datetime | None = None
    ready_at: datetime | None = None
    failed_at: datetime | None = None
    revoked_at: datetime | None = None
    wiped_at: datetime | None = None
    validated_at: datetime | None = None
    quarantined_at: datetime | None = None
    released_at: datetime | None = None
    lines: tuple[facts.ReceiptLine, ...] = ()
    digest: str = ""

    @property
    def running(self) -> StepRun | None:
        """Return the step that was intended and not yet reported."""
        return self.runs[-1] if self.runs and self.runs[-1].state == "intended" else None

    @property
    def moves(self) -> int:
        """Return how often cards were at fault and the order went on to others."""
        return sum(past.failed_at is not None for past in self.earlier)

    @property
    def site(self) -> str:
        """Return what the things of this environment go by: none is ever mistaken for one of an earlier environment."""
        return f"{self.order}-{len(self.earlier) + 1}" if self.earlier else self.order

    @property
    def cards(self) -> tuple[str, ...]:
        """Return all cards, unit by unit; one of which several slices are held is named once."""
        return tuple(dict.fromkeys(card for unit in self.units for card in unit.cards))

    def ran(self, direction: facts.Direction) -> dict[str, StepRun]:
        """Return the runs in one direction, by step."""
        return {run.step: run for run in self.runs if run.direction == direction}


NOTHING = Environment()


def external_name(site: str, step: str) -> str:
    """Return what the things of a step are called at the backend: the same on every attempt and after every crash."""
    return f"qm-{site}-{step}"


class UnlawfulFact(Exception):
    """A fact that no decision can have led to: the stream is broken, and stops."""


T = TypeVar("T", Environment, StepRun)


def _with(old: T, **changes: Any) -> T:
    # `dataclasses.replace` looks at each field, and this runs several times for every fact of every order.
    new = object.__new__(type(old))
    new.__dict__.update(old.__dict__, **changes)
    return new


def evolve(env: Environment, fact: Any) -> Environment:
    """Return the environment after one more of its facts. Raises UnlawfulFact."""
    return EVOLVE[type(fact)](env, fact)


_EARLIER = tuple(each.name for each in fields(Earlier))


def afresh(env: Environment) -> Environment:
    """Return what the order has when its last environment is gone: nothing yet, and what was before."""
    if env.phase is not Phase.RELEASED:
        return env
    past = Earlier(**{name: getattr(env, name) for name in _EARLIER})
    return _with(NOTHING, order=env.order, over=env.over, cause=env.over, earlier=(*env.earlier, past))


def _started(env: Environment, fact: facts.EnvironmentStarted) -> Environment:
    env = afresh(env)
    if env.phase is not Phase.ABSENT or env.over is not None:
        raise UnlawfulFact(f"environment {fact.order} starts twice, or after its end")
    return _with(
        env,
        order=fact.order,
        allocation=fact.allocation,
        request=fact.request,
        units=fact.units,
        steps=fact.steps,
        phase=Phase.BUILDING if fact.steps else Phase.VERIFYING,
        started_at=fact.started_at,
    )


def _intended(env: Environment, fact: facts.EnvironmentStepIntended) -> Environment:
    running = env.running
    if running is None:
        run = StepRun(fact.step, fact.direction, fact.attempt, fact.external_name, "intended", fact.intended_at)
        return _with(env, runs=(*env.runs, run))
    if (running.step, running.direction) != (fact.step, fact.direction):
        raise UnlawfulFact(f"environment {fact.order}: {fact.step} is intended while {running.step} is in flight")
    return _with_last(env, _with(running, attempt=fact.attempt))


def _with_last(env: Environment, run: StepRun) -> Environment:
    return _with(env, runs=(*env.runs[:-1], run))


def _running(env: Environment, fact: facts.EnvironmentStepDone | facts.EnvironmentStepFailed) -> StepRun:
    run = env.running
    if run is None or (run.step, run.direction) != (fact.step, fact.direction):
        raise UnlawfulFact(f"environment {fact.order}: {fact.step} ends without an intent")
    return run


def _done(env: Environment, fact: facts.EnvironmentStepDone) -> Environment:
    run = _with(_running(env, fact), state="done", ended_at=fact.done_at, outputs=fact.outputs, error="")
    built = fact.direction == "do" and fact.step == env.steps[-1]
    return _with(_with_last(env, run), phase=Phase.VERIFYING if built else env.phase)


def _step_failed(env: Environment, fact: facts.EnvironmentStepFailed) -> Environment:
    run = _with(_running(env, fact), ended_at=fact.failed_at, error=fact.error)
    return _with_last(env, _with(run, state="failed") if fact.final else run)


def _verified(env: Environment, fact: facts.EnvironmentVerified) -> Environment:
    return _with(env, probes=fact.probes)


def _ready(env: Environment, fact: facts.EnvironmentReady) -> Environment:
    return _with(env, phase=Phase.READY, endpoint=fact.endpoint, ready_at=fact.ready_at)


def _failed(env: Environment, fact: facts.EnvironmentFailed) -> Environment:
    cause, over = (EndCause.PREEMPTED, env.over) if fact.elsewhere else (EndCause.FAILED, env.over or EndCause.FAILED)
    return _with(env, cause=env.cause or cause, over=over, error=fact.error, failed_at=fact.failed_at)


def _end_noted(env: Environment, fact: facts.EnvironmentEndNoted) -> Environment:
    over = env.over if fact.allocation else env.over or fact.cause
    return _with(env, order=fact.order, cause=env.cause or fact.cause, over=over, fault=env.fault or fact.fault)


def _release_started(env: Environment, fact: facts.EnvironmentReleaseStarted) -> Environment:
    env = afresh(env)
    return _with(env, phase=Phase.RELEASING, allocation=fact.allocation)


def _revoked(env: Environment, fact: facts.EnvironmentRevoked) -> Environment:
    return _with(env, revoked_at=fact.revoked_at)


def _wiped(env: Environment, fact: facts.EnvironmentWiped) -> Environment:
    return _with(env, wiped_at=fact.wiped_at)


def _validated(env: Environment, fact: facts.EnvironmentValidated) -> Environment:
    return _with(env, validated_at=fact.validated_at)


def _quarantined(env: Environment, fact: facts.EnvironmentQuarantined) -> Environment:
    return _with(env, quarantined_at=fact.quarantined_at, error=fact.error)


def _released(env: Environment, fact: facts.EnvironmentReleased) -> Environment:
    return _with(env, phase=Phase.RELEASED, released_at=fact.released_at, lines=fact.lines, digest=fact.digest)


EVOLVE: Mapping[type[EventData], Callable[[Environment, Any], Environment]] = {
    facts.EnvironmentStarted: _started,
    facts.EnvironmentStepIntended: _intended,
    facts.EnvironmentStepDone: _done,
    facts.EnvironmentStepFailed: _step_failed,
    facts.EnvironmentVerified: _verified,
    facts.EnvironmentReady: _ready,
    facts.EnvironmentFailed: _failed,
    facts.EnvironmentEndNoted: _end_noted,
    facts.EnvironmentReleaseStarted: _release_started,
    facts.EnvironmentRevoked: _revoked,
    facts.EnvironmentWiped: _wiped,
    facts.EnvironmentValidated: _validated,
    facts.EnvironmentQuarantined: _quarantined,
    facts.EnvironmentReleased: _released,
}
"""One line for each fact of the topic."""
