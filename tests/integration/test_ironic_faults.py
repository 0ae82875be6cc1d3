"""What bare metal does when Ironic, a node or the way to them fails; and on it what every backend has to stand."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from qm_events import provisioner as facts
from qm_provisioner.environment import Phase
from qm_provisioner.models.bare_metal import BARE_METAL
from qm_provisioner.ports import BackendError, Ref, ThingState
from tests.contract.test_every_service_model import names
from tests.support.ironic import LIMIT_SECONDS, Ironic
from tests.support.ironic_desk import CARDS, IronicDesk
from tests.support.lossy import Fate, Lossy
from tests.support.machines import Machines
from tests.support.provisioning import ORDER, Awaits, assert_no_leak
from tests.support.servers import wait_until

pytestmark = [
    pytest.mark.integration,
    # openstacksdk warns of what it does itself.
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]

STEPS = [step.name for step in BARE_METAL.steps]
BAD = 400
_tails = itertools.count(100)


class Yard:
    """Nodes of one test, the way to Ironic, and the desk."""

    def __init__(self, ironic: Ironic, machines: Machines, proxy: Lossy) -> None:
        self.ironic, self.machines, self.proxy = ironic, machines, proxy
        tail = next(_tails)
        self.nodes = (f"desk{tail}-1", f"desk{tail}-2")
        for number, node in enumerate(self.nodes, 1):
            machines.listen(node, f"127.0.{tail}.{number}")
            machines.cards[node] = CARDS
            ironic.enrol(node, f"127.0.{tail}.{number}")

    def desk(self, awaits: Awaits | None = None, **more: Any) -> IronicDesk:
        """Return a provisioner on these nodes."""
        places = {"ironic": self.ironic, "machines": self.machines, "url": self.proxy.url, "nodes": self.nodes}
        return IronicDesk(awaits=awaits or Awaits(), **places, **more)

    def left(self) -> list[Any]:
        """Return what is left of an order."""
        return self.ironic.left(*self.nodes)


@pytest.fixture
def yard(ironic: Ironic, machines: Machines) -> Iterator[Yard]:
    """A yard for one test."""
    with Lossy(ironic.port) as proxy:
        one = Yard(ironic, machines, proxy)
        yield one
        for node in one.nodes:
            ironic.scrap(node)


async def built(desk: IronicDesk, count: int = 1) -> None:
    await desk.begin(count)
    await desk.settle()
    assert desk.env.phase is Phase.READY, desk.env


async def gone(desk: IronicDesk, yard: Yard) -> None:
    """All is back: nothing at Ironic, no credential, one receipt."""
    await desk.settle()
    assert desk.env.phase is Phase.RELEASED, desk.env
    assert (desk.env.quarantined_at, await desk.things(), yard.left(), desk.vault.live) == (None, [], [], {})
    assert len(desk.said(facts.EnvironmentReleased)) == len(desk.said(facts.EnvironmentValidated)) == 1
    assert_no_leak(desk)


def errors(desk: IronicDesk) -> str:
    return " | ".join(fact.error for fact in desk.said(facts.EnvironmentStepFailed))


# ---- what every backend stands


@pytest.mark.parametrize("count", [1, 2])
async def test_an_order_is_built_proven_and_taken_back(yard: Yard, count: int) -> None:
    async with yard.desk() as desk:
        await built(desk, count)
        assert sorted(thing.ref.name for thing in await desk.things()) == names(BARE_METAL, count)
        assert desk.env.endpoint == {
            "user": "qm",
            "hosts": [yard.ironic.node(node)["extra"]["address"] for node in yard.nodes[:count]],
            "port": yard.machines.port,
        }
        assert [probe.name for probe in desk.env.probes] == [check.name for check in BARE_METAL.checks]
        await desk.end()
        await gone(desk, yard)
        assert desk.undone() == STEPS[::-1]
        assert all(line.confirmed for line in desk.env.lines)


async def test_each_step_and_each_undo_twice_gives_the_same_end(yard: Yard) -> None:
    def twice(effect: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def both(call: Any) -> Any:
            await effect(call)
            return await effect(call)

        return both

    doubled = [
        replace(step, do=twice(step.do), verify=twice(step.verify), undo=twice(step.undo)) for step in BARE_METAL.steps
    ]
    async with yard.desk(model=replace(BARE_METAL, steps=tuple(doubled))) as desk:
        await built(desk, 2)
        assert sorted(thing.ref.name for thing in await desk.things()) == names(BARE_METAL, 2)
        await desk.end()
        await gone(desk, yard)


@pytest.mark.parametrize("awaits", [19, 20, 21])  # the checks alone cross 18
async def test_a_provisioner_that_dies_every_few_awaits_makes_one_of_each_and_leaves_nothing(
    yard: Yard, awaits: int
) -> None:
    deploys: list[str] = []
    yard.proxy.after = lambda request, status: deploys.append(request) if '"active"' in request else None
    async with yard.desk(Awaits(awaits)) as desk:
        await desk.begin()
        await lived(desk, awaits, lambda: desk.env.phase is Phase.READY)
        assert sorted(thing.ref.name for thing in await desk.things()) == names(BARE_METAL, 1)
        assert len(deploys) == len(yard.ironic.call("GET", "/allocations")["allocations"]) == 1
        await desk.end()
        await lived(desk, awaits, lambda: desk.env.phase is Phase.RELEASED)
        await gone(desk, yard)


async def lived(desk: IronicDesk, awaits: int, done: Callable[[], bool]) -> None:
    """Let one process after the other live for so many awaits, until it is done. The last one lives on."""
    while True:
        await desk.settle()
        if done():
            break
        await desk.restart()
        desk.awaits.at = awaits
    if desk.awaits.dead:
        await desk.restart()
    desk.awaits.at = None


# ---- lost answers, locks, time


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED])
async def test_no_lost_request_and_no_lost_answer_makes_a_thing_twice_or_leaves_one(fate: Fate, yard: Yard) -> None:
    told: set[str] = set()

    def lose(request: str) -> Fate:
        what = request.partition("{")[0] if "allocations" in request else request
        if request.startswith("GET") or what in told:
            return Fate.PASSES
        told.add(what)
        return fate

    yard.proxy.decide = lose
    async with yard.desk() as desk:
        await built(desk)
        assert sorted(thing.ref.name for thing in await desk.things()) == names(BARE_METAL, 1)
        assert len(yard.ironic.call("GET", "/allocations")["allocations"]) == 1
        await desk.end()
        await gone(desk, yard)
    assert "did not answer" in errors(desk)


async def test_a_locked_node_is_waited_for(yard: Yard) -> None:
    node = yard.nodes[0]
    yard.ironic.chaos(node, power_set={"sleep": 3})
    yard.ironic.call("PUT", f"/nodes/{node}/states/power", {"target": "power on"})
    async with yard.desk() as desk:
        await built(desk)
        await desk.end()
        await gone(desk, yard)
    assert errors(desk) == ""


async def test_a_deploy_that_nothing_ends_fails_at_its_deadline_and_is_waited_for_on_the_way_back(yard: Yard) -> None:
    yard.ironic.chaos(yard.nodes[0], deploy={"sleep": 4})
    once = replace(BARE_METAL.steps[1], attempts=1)
    model = replace(BARE_METAL, steps=(BARE_METAL.steps[0], once, *BARE_METAL.steps[2:]))
    async with yard.desk(model=model) as desk:
        await desk.begin()
        wait = desk.bare_metal.changed
        passed = 0

        async def late(order: str, step: str) -> None:
            nonlocal passed
            passed += 1
            if passed == 1:
                desk.clock.advance(timedelta(seconds=once.deadline_seconds + 1))
            await wait(order, step)

        desk.bare_metal.changed = late  # type: ignore[method-assign]  # the clock is moved in the middle of the wait
        await gone(desk, yard)
    assert f"not done within {once.deadline_seconds} seconds" in desk.env.error


async def test_an_agent_that_never_calls_back_is_undeployed(yard: Yard) -> None:
    yard.ironic.chaos(yard.nodes[0], deploy={"wait": True})
    async with yard.desk() as desk:
        await desk.begin()
        await asyncio.to_thread(yard.ironic.reaches, yard.nodes[0], "wait call-back")
        await desk.end("cancelled")
        await gone(desk, yard)


# ---- nodes that fail


async def test_a_deploy_that_fails_once_is_cleaned_and_tried_again(yard: Yard) -> None:
    node = yard.nodes[0]
    yard.ironic.chaos(node, deploy={"fail": "no such image"})

    def mend(request: str, _: int) -> None:
        if '"deleted"' in request:
            yard.ironic.reaches(node, "available")
            yard.ironic.chaos(node)

    yard.proxy.after = mend
    async with yard.desk() as desk:
        await built(desk)
        assert "no such image" in errors(desk)
        assert desk.env.ran("do")["image"].attempt == 2
        await desk.end()
        await gone(desk, yard)


async def test_a_deploy_that_always_fails_ends_the_order_with_its_reason_and_gives_the_node_back(yard: Yard) -> None:
    yard.ironic.chaos(yard.nodes[1], deploy={"fail": "no such image"})
    async with yard.desk() as desk:
        await desk.begin(2)
        await gone(desk, yard)
        (failed,) = desk.said(facts.EnvironmentFailed)
        assert (failed.step, "no such image" in failed.error) == ("image", True)


async def test_a_failed_cleaning_quarantines_the_cards_and_names_the_reason(yard: Yard) -> None:
    node = yard.nodes[0]
    yard.ironic.chaos(node, erase={"fail": "sector 7 cannot be erased"})
    async with yard.desk() as desk:
        await built(desk)
        await desk.end()
        await desk.settle()
        (quarantined,) = desk.said(facts.EnvironmentQuarantined)
        assert (quarantined.step, quarantined.cards) == ("image", desk.env.cards)
        assert "sector 7" in quarantined.error
        assert not desk.said(facts.EnvironmentWiped)
        (released,) = desk.said(facts.EnvironmentReleased)
        assert {line.step for line in released.lines if not line.confirmed} == {"image", "hardware", "validate"}
        assert yard.ironic.node(node)["maintenance"] is True


async def test_a_tear_down_that_fails_once_is_asked_for_again(yard: Yard) -> None:
    node = yard.nodes[0]
    yard.ironic.chaos(node, tear_down={"fail": "the switch does not answer"})

    def mend(request: str, _: int) -> None:
        if '"deleted"' in request:
            yard.ironic.reaches(node, "error", "available")
            yard.ironic.chaos(node)

    async with yard.desk() as desk:
        await built(desk)
        yard.proxy.after = mend
        await desk.end()
        await gone(desk, yard)
    assert "still error" in errors(desk)


async def test_a_node_in_maintenance_is_not_used_and_its_cards_are_suspect(yard: Yard) -> None:
    yard.ironic.call("PUT", f"/nodes/{yard.nodes[0]}/maintenance", {"reason": "a fan"})
    async with yard.desk() as desk:
        await desk.begin()
        await desk.settle()
        assert desk.env.phase is Phase.RELEASED
        assert "in maintenance" in desk.env.error
        (validated,) = desk.said(facts.EnvironmentValidated)
        assert (validated.clean, validated.suspect) == ((), desk.env.cards)


async def test_a_mute_bmc_leaves_the_credential_unproven_and_the_cards_in_quarantine(yard: Yard) -> None:
    node = yard.nodes[0]
    async with yard.desk() as desk:
        await built(desk)
        yard.ironic.chaos(node, power_get={"fail": "BMC timeout"}, power_set={"fail": "BMC timeout"})
        wait_until(lambda: yard.ironic.node(node)["fault"] == "power failure", LIMIT_SECONDS)
        await desk.end()
        await desk.settle()
        (quarantined,) = desk.said(facts.EnvironmentQuarantined)
        assert (quarantined.step, quarantined.cards) == ("access", desk.env.cards)
        assert not desk.said(facts.EnvironmentRevoked)
        assert desk.env.phase is Phase.RELEASED
        assert desk.env.lines[0].confirmed is False


async def test_a_card_that_a_machine_does_not_show_fails_the_order_and_is_suspect(yard: Yard) -> None:
    yard.machines.cards[yard.nodes[1]] = CARDS - 1
    async with yard.desk() as desk:
        await desk.begin(2)
        await gone(desk, yard)
        assert "1 of 2 cards" in desk.env.error
        (validated,) = desk.said(facts.EnvironmentValidated)
        assert {card.rpartition("-")[0] for card in validated.suspect} == {yard.nodes[1]}


async def test_a_node_that_somebody_else_claimed_is_refused_and_left_alone(yard: Yard) -> None:
    node = yard.nodes[0]
    claim = {"name": "another", "resource_class": "baremetal", "candidate_nodes": [node]}
    yard.ironic.call("POST", "/allocations", claim)
    wait_until(lambda: yard.ironic.node(node)["instance_uuid"] is not None, LIMIT_SECONDS)
    async with yard.desk() as desk:
        await desk.begin()
        await desk.settle()
        assert "claimed by somebody else" in desk.env.error
        assert yard.ironic.node(node)["instance_uuid"] is not None
        assert desk.said(facts.EnvironmentValidated)[0].suspect == desk.env.cards
    yard.ironic.call("DELETE", "/allocations/another")


async def test_a_conductor_that_dies_in_the_middle_of_a_deploy_costs_an_attempt(yard: Yard) -> None:
    node = yard.nodes[0]
    yard.ironic.chaos(node, deploy={"sleep": 20})
    killed: list[str] = []

    def die(request: str, _: int) -> None:
        if '"active"' in request and not killed:
            killed.append(request)
            yard.ironic.restart()
            yard.ironic.reaches(node, "deploy failed")
            yard.ironic.chaos(node)

    yard.proxy.after = die
    async with yard.desk() as desk:
        await built(desk)
        assert desk.env.ran("do")["image"].attempt == 2
        await desk.end()
        await gone(desk, yard)


async def test_a_call_that_is_broken_off_is_found_by_whoever_looks_next(yard: Yard) -> None:
    async with yard.desk() as desk:
        backend = desk.bare_metal
        ref = Ref(ORDER, "hardware")
        await backend.create(ref, {"node": yard.nodes[0]})
        (claim,) = await backend.find(ORDER, "hardware")
        assert (claim.ref, claim.state) == (ref, ThingState.ACTIVE)
        with pytest.raises(BackendError, match="no node bears the note"):
            await backend.create(Ref(ORDER, "network"), {"node": yard.nodes[0]})
        await backend.delete(claim)
        await backend.delete(claim)
        assert (await backend.list_all(), yard.left()) == ([], [])
