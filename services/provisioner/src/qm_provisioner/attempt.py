"""One attempt at what an environment calls for: the call, its limits, and the report of what came of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from qm_events.specs import Probe
from qm_provisioner.alarms import Alarms
from qm_provisioner.commands import Checked, StepBroke, StepFinished
from qm_provisioner.environment import Environment, StepRun
from qm_provisioner.ports import BackendError, BackendRefused, Site, Vault
from qm_provisioner.slots import Limited
from qm_provisioner.steps import Call, Model, run_checks
from qm_service.database import DatabaseUnavailable

Report = StepFinished | StepBroke | Checked

ENDED = "abandoned: it is needed no more"
_BACK_OFF_MAX_SECONDS = 60
_ERROR_MAX_CHARS = 500


class Scope:
    """Where a flow is in a call that may be broken off."""

    __slots__ = ("_timeout", "breaking", "reason")

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self.breaking = False
        """It was abandoned, and has not noticed yet."""
        self.reason = ""

    def abandon(self, reason: str) -> None:
        """Let the call at hand, if there is one, end with a TimeoutError."""
        if self._timeout is not None and not self._timeout.expired():
            self.reason, self.breaking = reason, True
            self._timeout.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Let what is inside be abandoned; raises TimeoutError when it was."""
        self.reason = ""
        try:
            async with asyncio.timeout(None) as self._timeout:
                yield
        finally:
            self._timeout, self.breaking = None, False


@dataclass(frozen=True, slots=True)
class Outside:
    """All that is acted upon."""

    models: Mapping[str, Model]
    backends: Mapping[str, Limited]
    """By service model."""
    vault: Vault
    alarms: Alarms


async def perform(outside: Outside, scope: Scope, env: Environment) -> Report | None:
    """Do what `env` calls for and return the report; None where its end made that needless.

    Raises DatabaseUnavailable: then nothing can be said, and the same is to be done again.
    """
    if env.request is None:
        return None
    site, model, run = (
        Site(env.site, env.request, env.units),
        outside.models.get(env.request.service_model),
        env.running,
    )
    if run is None:
        return Checked(()) if model is None else await _check(outside, scope, site, model)
    step = None if model is None else model.step(run.step)
    if model is None or step is None:
        return _broke(run, f"this release has no step {run.step} for {env.request.service_model}", final=True)
    if run.direction == "do" and env.cause is not None:
        return _broke(run, ENDED, final=True)
    call = Call(step, site, model, outside.backends[model.name], outside.vault)
    return await _attempt(outside.alarms, scope, call, run)


async def _attempt(alarms: Alarms, scope: Scope, call: Call, run: StepRun) -> Report:
    step, final = call.step, run.attempt >= call.step.attempts
    try:
        async with scope.open():
            await _back_off(alarms, run)
            async with _deadline(alarms, scope, step.deadline_seconds):
                outputs = await _effect(call, run)
    except TimeoutError:
        return _broke(run, scope.reason or "the backend timed out", final=final)
    except BackendError as error:
        return _broke(run, str(error), final=final or isinstance(error, BackendRefused))
    except DatabaseUnavailable:
        raise
    except Exception as error:
        # What an unforeseen error says may hold anything, a credential too: only its kind is told.
        return _broke(run, f"unforeseen {type(error).__name__}", final=final)
    proof = step.proof if run.direction == "undo" else None
    return StepFinished(run.step, run.direction, run.attempt, outputs, proof)


async def _effect(call: Call, run: StepRun) -> dict[str, Any]:
    if run.direction == "undo":
        return await call.step.undo(call)
    await call.step.do(call)
    return await call.step.verify(call)


async def _check(outside: Outside, scope: Scope, site: Site, model: Model) -> Checked | None:
    backend = outside.backends[model.name]
    try:
        async with scope.open(), _deadline(outside.alarms, scope, model.checks_deadline_seconds):
            return Checked(await run_checks(model, site, backend, outside.vault))
    except TimeoutError:
        if scope.reason == ENDED:
            return None
        return Checked((Probe(name="checks", passed=False, detail=scope.reason or "the backend timed out"),))
    except DatabaseUnavailable:
        raise
    except Exception as error:
        return Checked((Probe(name="checks", passed=False, detail=f"unforeseen {type(error).__name__}"),))


async def _back_off(alarms: Alarms, run: StepRun) -> None:
    if run.attempt > 1 and run.ended_at is not None:
        seconds = min(2 ** (run.attempt - 2), _BACK_OFF_MAX_SECONDS)
        await alarms.until(run.ended_at + timedelta(seconds=seconds))


@asynccontextmanager
async def _deadline(alarms: Alarms, scope: Scope, seconds: int) -> AsyncIterator[None]:
    late = alarms.now() + timedelta(seconds=seconds)
    alarm = alarms.set(late, lambda: scope.abandon(f"not done within {seconds} seconds"))
    try:
        yield
    finally:
        alarms.cancel(alarm)


def _broke(run: StepRun, error: str, *, final: bool) -> StepBroke:
    return StepBroke(run.step, run.direction, run.attempt, error[:_ERROR_MAX_CHARS], final)
