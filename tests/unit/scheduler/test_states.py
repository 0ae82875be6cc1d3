"""States drawn from a seed, judged by brute force; `make soak` judges ten thousand."""

import pytest

from tests.unit.scheduler.states import walks

STATES = 480


@pytest.mark.parametrize("seed", [1, 20_260_601, 4_711])
def test_brute_force_agrees_on_who_is_placed_who_waits_and_why(seed: int) -> None:
    assert walks(STATES, seed) == STATES
