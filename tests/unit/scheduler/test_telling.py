"""A change that concerns a long queue: told in steps, between which others go, and gone on with after a restart."""

import pytest

from qm_events.specs import WaitCode
from qm_scheduler.board import Board
from qm_scheduler.consumers import SCHEDULER
from qm_scheduler.domain import Explain
from qm_scheduler.inventory import Cordon, Uncordon
from qm_scheduler.telling import TOLD_MAX
from qm_service.model import Act
from tests.unit.scheduler.yard import Yard, request

MANY = 3 * TOLD_MAX
AHEAD, SICK = WaitCode.HIGHER_PRIORITY_AHEAD, WaitCode.HEALTHY_CAPACITY_INSUFFICIENT


@pytest.fixture
def yard() -> Yard:
    """One full node, for which many wait."""
    yard = Yard()
    yard.node("n", {"h100": 1})
    for n in range(MANY + 1):
        yard.order(f"o{n:04}", request(project=f"p{n % 7}"), settle=n == 0)
    yard.settle()
    return yard


def step(yard: Yard, board: Board | None = None) -> list[str]:
    """Settle once; return who is told something."""
    acts = SCHEDULER.settle(yard.context(board))
    assert all(isinstance(act.command, Explain) for act in acts)
    for act in acts:
        yard.act(act)
    return [act.command.order for act in acts]


def waiting(yard: Yard) -> list[str]:
    return [seq[1] for _, seq in yard.board.queue.listed()]


def test_a_step_tells_some_and_the_steps_together_tell_each_once(yard: Yard) -> None:
    yard.ask("node/n", Cordon("kernel"), settle=False)
    told: list[str] = []
    while some := step(yard):
        assert len(some) <= TOLD_MAX + 2
        told += some
    assert sorted(told) == waiting(yard)
    assert {yard.told(order)[-1] for order in told} == {SICK}


def test_a_restart_in_the_midst_of_it_goes_on_with_those_who_were_not_told(yard: Yard) -> None:
    yard.ask("node/n", Cordon("kernel"), settle=False)
    told = step(yard)
    fresh = yard.fresh_board()
    left = step(yard, fresh)
    assert set(told).isdisjoint(left)
    yard.settle()
    assert {yard.told(order)[-1] for order in waiting(yard)} == {SICK}


def test_a_change_that_is_taken_back_meanwhile_is_told_to_nobody_else(yard: Yard) -> None:
    yard.ask("node/n", Cordon("kernel"), settle=False)
    told = step(yard)
    yard.ask("node/n", Uncordon(), settle=False)
    yard.settle()
    assert sum(yard.told(order)[-2:] == [SICK, AHEAD] for order in told) >= len(told) - 1
    assert sum(SICK in yard.told(order) for order in waiting(yard)) == len(told)


def test_the_places_of_very_many_are_found_at_once_and_are_those_that_each_would_be_told(yard: Yard) -> None:
    yard.ask("node/n", Cordon("kernel"))
    yard.ask("node/n", Uncordon(), settle=False)
    step(yard)
    assert yard.board.places
    known = dict(yard.board.places)
    assert known == {order: yard.board.queue.ahead(order) for order in waiting(yard)}
    yard.settle()
    assert not yard.board.places
    figures = {order: yard.doc(order).reasons[0].figures for order in waiting(yard)}
    assert all(told["count"] == known[order][0] for order, told in figures.items() if "count" in told)


def test_whoever_comes_in_between_is_placed_before_the_rest_is_told(yard: Yard) -> None:
    yard.node("other", {"a100": 1})
    yard.ask("node/n", Cordon("kernel"), settle=False)
    step(yard)
    yard.order("quick", request(("a100",)), settle=False)
    acts: list[Act] = list(SCHEDULER.settle(yard.context()))
    assert acts[0].stream == "allocation/quick"
