"""The life of one environment, stream `environment/<order>`: pure.

Whoever performs a step only reports what came of it; `decide` answers with the facts of the report and with all that
follows by itself: the next intent, the way back, the receipt. So every decision of a flow is made here, in one
transaction with its cause, and the runner is a loop that does what `Environment.running` says.

  absent -> building -> verifying -> ready -> releasing -> released
  building, verifying -> releasing        a step or a probe failed for good, or the end of the order was noted
  ready -> releasing                      the end of the order was noted
  absent -> releasing -> released         the end overtook the beginning: nothing was built, the cards go straight back
  released -> building ...                the order gave its cards up, lives on, and has others now
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import Any

from qm_events import EventData
from qm_events import provisioner as facts
from qm_events.specs import EndCause, Probe
from qm_provisioner.commands import Begin, Checked, Disclose, NoteEnd, Proof, Script, StepBroke, StepFinished
from qm_provisioner.environment import NOTHING, Environment, Phase, UnlawfulFact, afresh, evolve, external_name
from qm_service.model import Context, Decider, Decision, Rejected

MOVES_MAX = 2
"""How often an order moves to other cards because of those that it had; then it fails."""


def decide(env: Environment, command: Any, ctx: Context) -> Decision:
    """Return the facts of a command and all that follows from them; what was decided before leads to nothing."""
    return DECIDE[type(command)](env, command, ctx.now)


def _begin(env: Environment, command: Begin, now: datetime) -> Decision:
    known = {env.allocation, *(past.allocation for past in env.earlier)}
    if env.phase not in (Phase.ABSENT, Phase.RELEASED) or command.allocation in known:
        return []
    env = afresh(env)
    if env.cause is not None:
        cards = replace(env, order=command.order, allocation=command.allocation, units=command.units)
        return _onward(cards, [_release(cards, now)], now)
    started = facts.EnvironmentStarted(
        order=command.order,
        allocation=command.allocation,
        request=command.request,
        units=command.units,
        steps=command.steps,
        started_at=now,
    )
    return _onward(env, [started], now)


def _note_end(env: Environment, command: NoteEnd, now: datetime) -> Decision:
    if command.allocation is not None:
        return _note_preempted(env, command, now)
    ended = env.over is not None
    if ended and (command.fault is None or env.fault is not None or _settled(env)):
        return []
    noted = facts.EnvironmentEndNoted(
        order=command.order, cause=env.over or command.cause, ended_at=command.ended_at, fault=command.fault
    )
    return _onward(env, [noted], now)


def _note_preempted(env: Environment, command: NoteEnd, now: datetime) -> Decision:
    if env.allocation != command.allocation or env.cause is not None:
        return []
    noted = facts.EnvironmentEndNoted(
        order=command.order, allocation=command.allocation, cause=command.cause, ended_at=command.ended_at
    )
    return _onward(env, [noted], now)


def _settled(env: Environment) -> bool:
    """Tell whether it is decided what becomes of the cards."""
    return env.validated_at is not None or env.quarantined_at is not None


def _step_finished(env: Environment, command: StepFinished, now: datetime) -> Decision:
    if _stale(env, command):
        return []
    done = facts.EnvironmentStepDone(
        order=env.order,
        step=command.step,
        direction=command.direction,
        attempt=command.attempt,
        outputs=command.outputs,
        done_at=now,
    )
    return _onward(env, [done, *_proof(env, command.proof, now)], now)


def _proof(env: Environment, proof: Proof | None, now: datetime) -> list[EventData]:
    if proof == "revoked":
        return [facts.EnvironmentRevoked(order=env.order, revoked_at=now)]
    # What a failed step left behind may hold tenant data: then nothing is wiped, whatever else is gone.
    if proof == "wiped" and env.quarantined_at is None:
        return [facts.EnvironmentWiped(order=env.order, wiped_at=now)]
    return []


def _step_broke(env: Environment, command: StepBroke, now: datetime) -> Decision:
    if _stale(env, command):
        return []
    abandoned = command.direction == "do" and env.cause is not None
    failed = facts.EnvironmentStepFailed(
        order=env.order,
        step=command.step,
        direction=command.direction,
        attempt=command.attempt,
        error=command.error,
        final=command.final or abandoned,
        failed_at=now,
    )
    if not failed.final:
        return [failed, _intent(env, command.step, command.direction, now, command.attempt + 1)]
    return _onward(env, [failed, *_consequence(env, failed, now)], now)


def _consequence(env: Environment, failed: facts.EnvironmentStepFailed, now: datetime) -> list[EventData]:
    if failed.direction == "undo":
        if env.quarantined_at is not None:
            return []
        return [
            facts.EnvironmentQuarantined(
                order=env.order,
                allocation=env.allocation,
                cards=env.cards,
                step=failed.step,
                error=failed.error,
                lives_on=True if env.over is None else None,
                quarantined_at=now,
            )
        ]
    return [] if env.cause is not None else [_failed(env, failed.step, failed.error, now)]


def _failed(env: Environment, step: str, error: str, now: datetime, *, elsewhere: bool | None = None) -> EventData:
    return facts.EnvironmentFailed(
        order=env.order, allocation=env.allocation, step=step, error=error, elsewhere=elsewhere, failed_at=now
    )


def _stale(env: Environment, report: StepFinished | StepBroke) -> bool:
    run = env.running
    return run is None or (run.step, run.direction, run.attempt) != (report.step, report.direction, report.attempt)


def _checked(env: Environment, command: Checked, now: datetime) -> Decision:
    if env.phase is not Phase.VERIFYING or env.cause is not None:
        return []
    verified = facts.EnvironmentVerified(order=env.order, probes=command.probes, verified_at=now)
    broken = [f"{probe.name}: {probe.detail}" for probe in command.probes if not probe.passed]
    if broken or not command.probes:
        error = "; ".join(broken) or "there was nothing to check it by"
        elsewhere = (_blames_cards(command.probes) and env.moves < MOVES_MAX) or None
        return _onward(env, [verified, _failed(env, "verify", error, now, elsewhere=elsewhere)], now)
    # The last step of every table hands over: what it shows is where the user enters.
    endpoint = env.runs[-1].outputs if env.runs else {}
    ready = facts.EnvironmentReady(order=env.order, allocation=env.allocation, endpoint=endpoint, ready_at=now)
    return [verified, ready]


def _blames_cards(probes: Sequence[Probe]) -> bool:
    """Whether all that failed speaks against cards: on others it may work."""
    broken = [probe for probe in probes if not probe.passed]
    return bool(broken) and all(probe.suspect for probe in broken)


def _disclose(env: Environment, _: Disclose, __: datetime) -> Decision:
    if env.phase is Phase.READY:
        return []
    if env.over is not None:
        return Rejected("credentials-revoked", "The order has ended, and its credentials with it.")
    if env.cause is not None:
        return Rejected("environment-not-ready", "The order gave its cards up; there are new credentials on its next.")
    return Rejected("environment-not-ready", f"The environment is {env.phase}; there are no credentials before ready.")


DECIDE: Mapping[type, Callable[[Environment, Any, datetime], Decision]] = {
    Begin: _begin,
    NoteEnd: _note_end,
    StepFinished: _step_finished,
    StepBroke: _step_broke,
    Checked: _checked,
    Disclose: _disclose,
    Script: lambda _, __, ___: [],
}


# ---- what follows by itself


def _onward(env: Environment, said: Sequence[EventData], now: datetime) -> list[EventData]:
    """Return `said` and the facts that follow from them."""
    said = list(said)
    env = reduce(evolve, said, env)
    while more := _next(env, now):
        said += more
        env = reduce(evolve, more, env)
    return said


def _next(env: Environment, now: datetime) -> list[EventData]:
    if env.running is not None:
        return []
    if env.phase is Phase.RELEASING:
        return _next_undo(env, now)
    if env.cause is not None and env.phase in (Phase.BUILDING, Phase.VERIFYING, Phase.READY):
        return [_release(env, now)]
    if env.phase is Phase.BUILDING:
        return [_intent(env, next(step for step in env.steps if step not in env.ran("do")), "do", now)]
    return []


def _next_undo(env: Environment, now: datetime) -> list[EventData]:
    # Also what failed or was abandoned is undone: nobody knows how far it came.
    built, undone = env.ran("do"), env.ran("undo")
    left = [step for step in reversed(env.steps) if step in built and step not in undone]
    return [_intent(env, left[0], "undo", now)] if left else _finish(env, now)


def _intent(env: Environment, step: str, direction: facts.Direction, now: datetime, attempt: int = 1) -> EventData:
    return facts.EnvironmentStepIntended(
        order=env.order,
        step=step,
        direction=direction,
        attempt=attempt,
        external_name=external_name(env.site, step),
        intended_at=now,
    )


def _release(env: Environment, now: datetime) -> EventData:
    return facts.EnvironmentReleaseStarted(
        order=env.order, allocation=env.allocation, cause=_cause(env), started_at=now
    )


def _cause(env: Environment) -> EndCause:
    if env.cause is None:
        raise UnlawfulFact(f"environment {env.order} is released without an end")
    return env.cause


def _finish(env: Environment, now: datetime) -> list[EventData]:
    clean = env.quarantined_at is None
    released = facts.EnvironmentReleased(
        order=env.order,
        allocation=env.allocation,
        cause=_cause(env),
        outcome="clean" if clean else "quarantined",
        lines=(lines := _lines(env, clean, now)),
        digest=receipt_digest(lines),
        released_at=now,
    )
    return [_validated(env, now), released] if clean else [released]


def _validated(env: Environment, now: datetime) -> EventData:
    suspect = _suspect(env)
    return facts.EnvironmentValidated(
        order=env.order,
        allocation=env.allocation,
        clean=tuple(card for card in env.cards if card not in suspect),
        suspect=tuple(card for card in env.cards if card in suspect),
        validated_at=now,
    )


def _suspect(env: Environment) -> frozenset[str]:
    """Return the cards that a failed probe, the validation or the tenant's fault report speaks against."""
    named = {card for probe in env.probes if not probe.passed for card in probe.suspect}
    named |= {card for run in env.ran("undo").values() for card in run.outputs.get("suspect", ())}
    if env.fault is not None:
        # A report that names none of these cards may mean any of them.
        named |= {env.fault.card} if env.fault.card in env.cards else set(env.cards)
    return frozenset(named)


def _lines(env: Environment, clean: bool, now: datetime) -> tuple[facts.ReceiptLine, ...]:
    undone = [
        facts.ReceiptLine(step=run.step, confirmed=run.state == "done", at=run.ended_at or now, detail=run.error)
        for run in env.ran("undo").values()
    ]
    return (*undone, facts.ReceiptLine(step="validate", confirmed=clean, at=now, detail="" if clean else env.error))


def receipt_digest(lines: Sequence[facts.ReceiptLine]) -> str:
    """Return the SHA-256 of the lines in canonical JSON: keys sorted, no blanks."""
    content = json.dumps([line.model_dump(mode="json") for line in lines], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


DECIDER = Decider(kind="environment", initial=NOTHING, decide=decide, evolve=evolve)
