"""The table of what Ironic's states mean."""

import pytest

from qm_provisioner.adapters.ironic_states import MEANINGS, Back, Node, ailment, meaning, told
from qm_provisioner.ports import ThingState

FREE = Node("1", "n1", "available", power="power off")


def node(state: str, **more: object) -> Node:
    return Node("1", "n1", state, power="power on", **more)  # type: ignore[arg-type]  # fields of the node


def test_each_row_is_the_first_that_fits_somebody() -> None:
    for row in MEANINGS:
        shown = node(row.state, maintenance=bool(row.maintenance), fault=row.fault)
        assert meaning(shown) is row, row


@pytest.mark.parametrize(
    ("state", "meanwhile"),
    [
        ("deploy failed", ThingState.BUILDING),
        ("clean failed", ThingState.DELETING),
        ("error", ThingState.DELETING),
    ],
)
def test_a_failure_has_happened_when_the_lock_is_free_and_not_before(state: str, meanwhile: ThingState) -> None:
    assert meaning(node(state, locked=True)).thing is meanwhile
    assert meaning(node(state, locked=True, maintenance=True)).thing is meanwhile
    assert meaning(node(state)).thing is ThingState.ERROR


@pytest.mark.parametrize("state", ["inspecting", "servicing", "adopting", "a state of a later release"])
def test_a_state_that_is_not_in_the_table_is_an_operators(state: str) -> None:
    assert (meaning(node(state)).thing, meaning(node(state)).back) == (ThingState.ERROR, Back.REFUSE)


def test_nothing_that_was_not_wiped_counts_as_gone() -> None:
    gone = {row.state for row in MEANINGS if row.thing is None}
    assert gone == {"available", "enroll", "verifying", "manageable"}


def test_only_a_free_node_that_answers_may_be_given_to_somebody() -> None:
    assert ailment(FREE) == ""
    sick = [
        Node("1", "n1", "available", maintenance=True, power="power off"),
        Node("1", "n1", "available", power=None),
        Node("1", "n1", "available", power="power off", instance="i"),
        node("clean failed", error="sector 7"),
    ]
    assert all(map(ailment, sick))
    assert "sector 7" in told(sick[-1])
