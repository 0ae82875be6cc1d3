"""What every service model has to stand, whatever its steps. A new model is picked up from its line in the table."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from qm_events import provisioner as facts
from qm_events.specs import Probe
from qm_provisioner.environment import Phase
from qm_provisioner.mint import bearer_token
from qm_provisioner.models import MODELS
from qm_provisioner.ports import SHOWN, BackendError, Check, Ref, Site
from qm_provisioner.steps import LOGIN, Model, Step, cleaned, each, held, issued, once, revoked
from tests.support.provisioning import ORDER, Awaits, Desk, assert_no_leak, order_of, script

SLURM = Model(
    name="slurm",
    steps=(
        Step("devices", each(held), undo=cleaned),
        Step("partition", once(lambda site: {"nodes": [unit.node for unit in site.units]}), proof="wiped"),
        Step("access", once(lambda _: {SHOWN: {"host": "login"}}), do=issued, undo=revoked, proof="revoked"),
    ),
    checks=(Check("reachable", ("partition",)), LOGIN, Check("accelerator_visible", ("devices",), of_cards=True)),
    mint=bearer_token,
)
"""A fifth model costs this table, and passes all below."""

ALL = [*MODELS.values(), SLURM]
STEPS = [pytest.param(model, step, id=f"{model.name}-{step.name}") for model in ALL for step in model.steps]
every_model = pytest.mark.parametrize("model", ALL, ids=lambda model: model.name)
every_step = pytest.mark.parametrize(("model", "step"), STEPS)


async def built(desk: Desk, count: int = 1) -> None:
    await desk.begin(count)
    await desk.settle()
    assert desk.env.phase is Phase.READY, desk.env


async def gone(desk: Desk) -> None:
    """All is back: nothing at the cloud, no credential, one receipt."""
    await desk.settle()
    assert desk.env.phase is Phase.RELEASED, desk.env
    assert await desk.things() == []
    assert desk.vault.live == {}
    assert len(desk.said(facts.EnvironmentReleased)) == 1
    assert len(desk.said(facts.EnvironmentValidated, facts.EnvironmentQuarantined)) == 1
    assert_no_leak(desk)


def names(model: Model, count: int) -> list[str]:
    """What an order of `count` units makes of a model: the same that its steps say they want."""
    begin = order_of(model.name, count)
    site = Site(ORDER, begin.request, begin.units)
    return sorted(Ref(ORDER, step.name, unit).name for step in model.steps for unit in step.wants(site))


# ---- the tables


@every_model
def test_a_table_keeps_the_laws(model: Model) -> None:
    steps = model.steps
    assert [step.proof for step in steps].count("revoked") == 1
    assert [step.proof for step in steps].count("wiped") == 1
    assert steps[-1].proof == "revoked", "access is built last, so that it ends first"
    assert steps[0].undo is cleaned, "the cards are let go of last, and validated"
    assert len({step.name for step in steps}) == len(steps) <= 8
    assert LOGIN in model.checks


@every_step
def test_every_step_is_exercised_by_a_check(model: Model, step: Step) -> None:
    assert any(step.name in check.through for check in model.checks)


# ---- there and back


@every_model
@pytest.mark.parametrize("count", [1, 3])
async def test_an_order_is_built_proven_and_taken_back(model: Model, count: int) -> None:
    async with Desk(model) as desk:
        await built(desk, count)
        assert sorted(thing.ref.name for thing in await desk.things()) == names(model, count)
        assert desk.env.ready_at == desk.env.started_at, "nothing waits where nothing takes time"
        assert desk.env.endpoint
        assert [probe.name for probe in desk.env.probes] == [check.name for check in model.checks]
        await desk.end()
        await gone(desk)
        assert desk.undone() == [step.name for step in reversed(model.steps)]
        order = [type(fact) for fact in desk.journal.facts]
        assert order.index(facts.EnvironmentRevoked) < order.index(facts.EnvironmentWiped)
        assert order[-2:] == [facts.EnvironmentValidated, facts.EnvironmentReleased]
        assert desk.env.lines[0].step == "access"
        assert all(line.confirmed for line in desk.env.lines)


@every_model
async def test_each_step_and_each_undo_twice_gives_the_same_end(model: Model) -> None:
    doubled = replace(
        model,
        steps=tuple(
            replace(step, do=_twice(step.do), verify=_twice(step.verify), undo=_twice(step.undo))
            for step in model.steps
        ),
    )
    ends = []
    for each_model in (model, doubled):
        async with Desk(each_model) as desk:
            await built(desk, 2)
            things = sorted(thing.ref.name for thing in await desk.things())
            await desk.end()
            await gone(desk)
            ends.append((things, [type(fact) for fact in desk.journal.facts], [line.step for line in desk.env.lines]))
    assert ends[0] == ends[1]


def _twice(effect: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    async def both(call: Any) -> Any:
        await effect(call)
        return await effect(call)

    return both


# ---- failures


@every_step
async def test_a_failure_at_a_step_unwinds_in_reverse_and_reaches_its_undo(model: Model, step: Step) -> None:
    async with Desk(model) as desk:
        script(desk, {step.name: {"fail_for_good": True}})
        await desk.begin()
        await gone(desk)
        (failed,) = desk.said(facts.EnvironmentFailed)
        assert failed.step == step.name
        until = [one.name for one in model.steps[: model.steps.index(step) + 1]]
        assert desk.undone() == until[::-1]
        assert not desk.said(facts.EnvironmentReady)
        assert desk.env.quarantined_at is None


@every_step
@pytest.mark.parametrize("fault", ["fail_times", "lose_answers"])
async def test_a_step_that_fails_once_is_tried_again(model: Model, step: Step, fault: str) -> None:
    async with Desk(model) as desk:
        script(desk, {step.name: {fault: 1}, f"undo:{step.name}": {fault: 1}})
        await built(desk)
        assert sorted(thing.ref.name for thing in await desk.things()) == names(model, 1)
        assert (desk.env.ran("do")[step.name].attempt, desk.env.probes[0].passed) == (2, True)
        await desk.end()
        await gone(desk)
        assert desk.env.ran("undo")[step.name].attempt == 2


@every_step
async def test_what_is_made_twice_is_found_and_removed(model: Model, step: Step) -> None:
    async with Desk(model) as desk:
        script(desk, {step.name: {"answer_twice": True}})
        await built(desk, 2)
        assert sorted(thing.ref.name for thing in await desk.things()) == names(model, 2)
        await desk.end()
        await gone(desk)


@every_step
async def test_a_step_that_hangs_fails_at_its_deadline(model: Model, step: Step) -> None:
    async with Desk(model) as desk:
        script(desk, {step.name: {"hang": True}})
        await desk.begin()
        await desk.settle(patient=False)
        assert desk.env.running
        assert desk.env.running.step == step.name
        await gone(desk)
        assert f"not done within {step.deadline_seconds} seconds" in desk.env.error


@every_step
async def test_an_undo_that_fails_for_good_quarantines_and_the_rest_is_undone(model: Model, step: Step) -> None:
    async with Desk(model) as desk:
        script(desk, {f"undo:{step.name}": {"fail_for_good": True}})
        await built(desk)
        await desk.end()
        await desk.settle()
        (quarantined,) = desk.said(facts.EnvironmentQuarantined)
        assert (quarantined.step, quarantined.cards) == (step.name, desk.env.cards)
        assert desk.undone() == [one.name for one in reversed(model.steps)]
        assert not desk.said(facts.EnvironmentValidated)
        (released,) = desk.said(facts.EnvironmentReleased)
        assert released.outcome == "quarantined"
        assert {line.step for line in released.lines if not line.confirmed} == {step.name, "validate"}
        assert {thing.ref.step for thing in await desk.things()} == {step.name}
        before_wipe = [one.name for one in reversed(model.steps)]
        wipe = next(one.name for one in model.steps if one.proof == "wiped")
        assert bool(desk.said(facts.EnvironmentWiped)) == (before_wipe.index(step.name) > before_wipe.index(wipe))
        assert bool(desk.said(facts.EnvironmentRevoked)) == (step.proof != "revoked")


# ---- lies


@every_step
async def test_a_cloud_that_lies_about_a_step_never_makes_an_environment_ready(model: Model, step: Step) -> None:
    async with Desk(model) as desk:
        script(desk, {step.name: {"lie_about_ready": True}})
        await desk.begin()
        await gone(desk)
        assert not desk.said(facts.EnvironmentReady)
        (failed,) = desk.said(facts.EnvironmentFailed)
        assert failed.step == "verify"
        (validated,) = desk.said(facts.EnvironmentValidated)
        assert bool(validated.suspect) == (step is model.steps[0]), "only what holds the cards speaks against them"


@every_step
async def test_a_cloud_that_lies_about_an_undo_is_not_believed(model: Model, step: Step) -> None:
    async with Desk(model) as desk:
        script(desk, {f"undo:{step.name}": {"lie_about_ready": True}})
        await built(desk)
        await desk.end()
        await desk.settle()
        assert desk.env.quarantined_at
        assert desk.env.ran("undo")[step.name].state != "done"
        assert bool(desk.said(facts.EnvironmentRevoked)) == (step.proof != "revoked")


class Undead:
    """A backend where a deleted credential is gone from every list and still lets its owner in."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def probe(self, check: Check, site: Any, secret: Any) -> Probe:
        """Let everybody in."""
        return Probe(name=check.name, passed=True)


@every_model
async def test_a_revocation_that_is_not_seen_to_work_is_none(model: Model) -> None:
    async with Desk(model, wrap=Undead) as desk:
        await built(desk)
        await desk.end()
        await desk.settle()
        (quarantined,) = desk.said(facts.EnvironmentQuarantined)
        assert (quarantined.step, "still works" in quarantined.error) == (model.steps[-1].name, True)
        assert not desk.said(facts.EnvironmentRevoked)


@every_model
async def test_no_check_is_a_failure(model: Model) -> None:
    async with Desk(replace(model, checks=())) as desk:
        await desk.begin()
        await gone(desk)
        assert not desk.said(facts.EnvironmentReady)
        assert "nothing to check" in desk.env.error


@every_model
async def test_a_broken_card_fails_the_environment_and_is_told(model: Model) -> None:
    async with Desk(model) as desk:
        desk.clouds.break_card("n1-c1", True)
        await desk.begin(2)
        await gone(desk)
        (validated,) = desk.said(facts.EnvironmentValidated)
        assert validated.suspect == ("n1-c1",)
        assert validated.clean == ("n0-c0", "n0-c1", "n1-c0")


# ---- ends at any moment


@every_model
async def test_an_end_at_every_await_releases_all(model: Model) -> None:
    for at in range(1, 500):
        desk = Desk(model)
        desk.awaits.at, desk.awaits.act = at, desk.end
        async with desk:
            await desk.begin()
            await desk.settle()
            if desk.awaits.passed < at:
                assert desk.env.phase is Phase.READY
                return
            await gone(desk)
            assert not desk.said(facts.EnvironmentFailed)
    raise AssertionError("the flow has no end")


@every_step
async def test_an_end_breaks_off_a_step_that_hangs(model: Model, step: Step) -> None:
    async with Desk(model) as desk:
        script(desk, {step.name: {"hang": True}})
        await desk.begin()
        await desk.settle(patient=False)
        await desk.end("cancelled")
        await desk.settle(patient=False)
        await gone(desk)
        assert desk.env.released_at == desk.env.started_at, "nobody waits for a deadline"
        assert desk.env.cause == "cancelled"


# ---- crashes


@every_model
async def test_a_crash_at_every_await_of_the_build_leaves_one_of_each(model: Model) -> None:
    for at in range(1, 500):
        async with Desk(model, Awaits(at)) as desk:
            await desk.begin()
            await desk.settle()
            whole = not desk.awaits.dead
            if not whole:
                await desk.restart()
                await desk.settle()
            desk.awaits.at = None
            assert desk.env.phase is Phase.READY
            assert sorted(thing.ref.name for thing in await desk.things()) == names(model, 1)
            assert desk.made() == len(names(model, 1)), "what was there was found, not made again"
            assert list(desk.vault.live) == [ORDER]
            await desk.end()
            await gone(desk)
            if whole:
                return
    raise AssertionError("the flow has no end")


@every_model
async def test_a_crash_at_every_await_of_the_release_leaves_nothing(model: Model) -> None:
    for at in range(1, 500):
        async with Desk(model) as desk:
            await built(desk)
            desk.awaits.passed, desk.awaits.at = 0, at
            await desk.end()
            await desk.settle()
            whole = not desk.awaits.dead
            if not whole:
                await desk.restart()
            await gone(desk)
            assert desk.env.quarantined_at is None
            if whole:
                return
    raise AssertionError("the flow has no end")


@every_model
async def test_a_crash_at_every_await_of_a_failing_build_leaves_nothing(model: Model) -> None:
    for at in range(1, 500):
        async with Desk(model, Awaits(at)) as desk:
            script(desk, {model.steps[-1].name: {"lie_about_ready": True}})
            await desk.begin()
            await desk.settle()
            whole = not desk.awaits.dead
            if not whole:
                await desk.restart()
            await gone(desk)
            if whole:
                return
    raise AssertionError("the flow has no end")


# ---- secrets


class Chatty:
    """A backend that says all that it was told when it fails."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def probe(self, check: Check, site: Any, secret: Any) -> Any:
        """Fail with the credential in the message."""
        raise BackendError(f"{check.name} with {secret and dict(secret.values)} failed")


@every_model
async def test_no_fact_and_no_log_line_has_a_credential(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    async with Desk(model, wrap=Chatty) as desk:
        with caplog.at_level(logging.DEBUG):
            await desk.begin()
            await desk.settle()
        assert desk.vault.ever
        assert_no_leak(desk, caplog.text + repr(desk.vault.ever))
