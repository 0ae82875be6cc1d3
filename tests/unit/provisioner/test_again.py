"""One order, several environments in sequence, each on cards of its own."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from qm_events import provisioner as facts
from qm_events.scheduler import AllocationPreempted
from qm_events.specs import EndCause, PlacedUnit, Probe
from qm_provisioner.behaviour import Behaviour
from qm_provisioner.commands import Checked, Disclose, NoteEnd
from qm_provisioner.domain import decide
from qm_provisioner.environment import Phase
from qm_provisioner.models import MODELS
from qm_service.model import Context, Rejected
from tests.support.provisioning import ORDER, START, Desk
from tests.unit.provisioner.stage import Stage
from tests.unit.provisioner.test_domain import BEGIN, END, PASSED, Case


def cards_of(number: int) -> tuple[PlacedUnit, ...]:
    return (PlacedUnit(node=f"n{number}", accelerator="h100", cards=(f"n{number}-c0", f"n{number}-c1")),)


def given_up(number: int) -> NoteEnd:
    return NoteEnd(ORDER, EndCause.PREEMPTED, START, allocation=f"a{number}")


AGAIN = replace(BEGIN, allocation="a2", units=cards_of(2))


def gone(case: Case) -> Case:
    """Let everything in flight be done."""
    while case.env.running:
        case.done()
    return case


def test_an_order_that_gives_its_cards_up_gets_a_fresh_environment_on_its_next() -> None:
    case = Case().ready()
    assert case.when(given_up(1)) == ["end_noted", "release_started", "step_intended"]
    gone(case)
    assert (case.env.phase, case.env.over) == (Phase.RELEASED, None)
    assert case.when(AGAIN) == ["started", "step_intended"]
    (past,) = case.env.earlier
    assert (past.allocation, past.cause, past.units) == ("a1", EndCause.PREEMPTED, BEGIN.units)
    assert past.digest
    assert case.env.ready_at is None


def test_nothing_of_a_later_environment_is_called_as_in_an_earlier_one() -> None:
    case = Case().ready()
    case.when(given_up(1))
    gone(case).when(AGAIN)
    gone(case)
    intents = [fact for fact in case.said if isinstance(fact, facts.EnvironmentStepIntended)]
    names = [fact.external_name for fact in intents if fact.direction == "do"]
    assert len(set(names)) == len(names) == 4


def test_what_was_said_of_an_earlier_allocation_is_known() -> None:
    case = Case().ready()
    case.when(given_up(1))
    gone(case).when(AGAIN)
    assert case.when(given_up(1)) == case.when(BEGIN) == case.when(AGAIN) == case.when(given_up(3)) == []


def test_the_end_of_the_order_ends_it_whatever_its_cards_are_doing() -> None:
    case = Case().ready()
    case.when(given_up(1))
    assert case.when(END) == ["end_noted"]
    gone(case)
    assert case.when(AGAIN) == ["release_started", "validated", "released"]
    released = [fact for fact in case.said if isinstance(fact, facts.EnvironmentReleased)]
    assert [fact.cause for fact in released] == [EndCause.PREEMPTED, EndCause.RELEASED]
    assert [fact.clean for fact in case.said if isinstance(fact, facts.EnvironmentValidated)][1] == cards_of(2)[0].cards


def test_an_order_that_is_over_does_not_give_its_cards_up_for_another_reason() -> None:
    case = Case().ready()
    case.when(END)
    assert case.when(given_up(1)) == []
    assert case.env.cause is EndCause.RELEASED


def test_there_are_no_credentials_between_two_environments_and_none_after_the_end() -> None:
    def asked(case: Case) -> str:
        answer = decide(case.env, Disclose(), Context(START, None))  # type: ignore[arg-type]  # no document is read
        assert isinstance(answer, Rejected)
        return answer.code

    case = Case().ready()
    case.when(given_up(1))
    assert asked(case) == "environment-not-ready"
    case.when(END)
    assert asked(case) == "credentials-revoked"


def test_cards_that_a_probe_speaks_against_are_left_twice_and_then_the_order_fails() -> None:
    case = Case()
    for number in (1, 2, 3):
        case.when(replace(BEGIN, allocation=f"a{number}", units=cards_of(number)))
        gone(case).when(Checked((Probe(name="kernel", passed=False, detail="no answer", suspect=(f"n{number}-c0",)),)))
        gone(case)
    failed = [fact.elsewhere for fact in case.said if isinstance(fact, facts.EnvironmentFailed)]
    assert failed == [True, True, None]
    assert (case.env.over, case.env.moves) == (EndCause.FAILED, 2)
    suspect = [fact.suspect for fact in case.said if isinstance(fact, facts.EnvironmentValidated)]
    assert suspect == [("n1-c0",), ("n2-c0",), ("n3-c0",)]


TOPICS = st.lists(st.sampled_from(["allocations", "orders", "work", "broken", "again"]), max_size=60)


@given(TOPICS)
def test_in_whatever_order_the_topics_come_each_allocation_ends_once_and_the_order_for_good(moves: list[str]) -> None:
    case, said = Case(), Scheduler()
    for move in moves:
        MOVES[move](case, said)
    case.when(END)
    MOVES["allocations"](case, said)
    for _ in range(40):
        MOVES["work"](case, said)
    ends = [fact.allocation for fact in case.said if isinstance(fact, facts.EnvironmentReleased)]
    begun = {*ends, *(fact.allocation for fact in case.said if isinstance(fact, facts.EnvironmentStarted))}
    assert sorted(ends) == sorted(begun)
    assert case.env.phase is (Phase.RELEASED if begun else Phase.ABSENT)
    names: dict[str, str] = {}
    for fact in case.said:
        if isinstance(fact, facts.EnvironmentStarted):
            allocation = fact.allocation
        if isinstance(fact, facts.EnvironmentStepIntended):
            assert names.setdefault(fact.external_name, allocation) == allocation


class Scheduler:
    """What it says in turn: cards are given, given up, and given again once those before are back."""

    def __init__(self) -> None:
        self.told = 0


def _allocations(case: Case, said: Scheduler) -> None:
    number = said.told // 2 + 1
    if said.told % 2:
        case.when(given_up(number))
    elif said.told == 0 or case.env.phase is Phase.RELEASED:
        case.when(replace(BEGIN, allocation=f"a{number}", units=cards_of(number)))
    else:
        return
    said.told += 1


def _work(case: Case, _: Scheduler) -> None:
    if case.env.running:
        case.done()
    elif case.env.phase is Phase.VERIFYING:
        case.when(PASSED)


def _broken(case: Case, _: Scheduler) -> None:
    if case.env.running:
        case.broke(final=case.env.running.attempt > 1)


def _again(case: Case, said: Scheduler) -> None:
    for number in range(1, said.told // 2 + 1):
        assert case.when(given_up(number)) == []
        assert case.when(replace(BEGIN, allocation=f"a{number}")) == []


MOVES: dict[str, Callable[[Case, Scheduler], None]] = {
    "allocations": _allocations,
    "orders": lambda case, _: case.when(END) and None,
    "work": _work,
    "broken": _broken,
    "again": _again,
}


async def test_the_second_environment_has_new_credentials_and_leaves_no_thing_of_the_first() -> None:
    async with Desk(MODELS["vm"]) as desk:
        await desk.begin()
        await desk.settle()
        first = desk.vault.live[desk.env.site]
        await desk.command(given_up(1))
        await desk.settle()
        assert await desk.things() == []
        steps = tuple(step.name for step in desk.model.steps)
        await desk.command(replace(AGAIN, steps=steps, request=desk.env.request))
        await desk.settle()
        assert desk.env.phase is Phase.READY
        assert {thing.ref.order for thing in await desk.things()} == {f"{ORDER}-2"}
        assert desk.vault.live.keys() == {f"{ORDER}-2"}
        assert desk.vault.live[f"{ORDER}-2"].values != first.values


async def test_giving_up_the_cards_breaks_off_what_is_being_built() -> None:
    async with Desk(MODELS["vm"]) as desk:
        desk.clouds.script("vm", {"server": Behaviour(hang=True)})
        await desk.begin()
        await desk.settle(patient=False)
        await desk.command(given_up(1))
        await desk.settle()
        assert (desk.env.phase, desk.env.cause) == (Phase.RELEASED, EndCause.PREEMPTED)
        assert not desk.said(facts.EnvironmentFailed)


async def test_the_receipts_of_all_environments_of_an_order_can_be_read(stage: Stage) -> None:
    await stage.allocate("o1")
    at = stage.world.clock.now()
    fact = AllocationPreempted(
        order="o1", allocation="a1", cause="reclaimed", why="its owner wants it", preempted_at=at
    )
    await stage.publish("allocation/o1", fact)
    await stage.world.settle()
    await stage.allocate("o1", allocation="a2")
    shown = await stage.done("GET", "/environments/o1")
    assert (shown["phase"], shown["allocation"]) == ("ready", "a2")
    (past,) = shown["earlier"]
    assert (past["allocation"], past["cause"], past["receipt"]["outcome"]) == ("a1", "preempted", "clean")
    await stage.done("GET", "/orders/o1/credentials")
    await stage.release("o1")
    assert (await stage.done("GET", "/environments/o1"))["receipt"]["outcome"] == "clean"
