"""The rating of places for parts of cards: the tables against the definition, and what it gains on a fleet."""

from math import exp, floor
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.openb_trace import Node
from bench.sharing import MIX, Request, feed, load, rates, workload
from qm_events.scheduler import ExpectedUnits
from qm_scheduler.fragments import Fragments

shapes = st.builds(
    lambda cards, milli, cpu, units, types: ExpectedUnits(
        accelerators=types, cards=cards, share_milli=milli if cards == 1 else None, cpu_milli=cpu, units=units
    ),
    st.sampled_from([1, 1, 1, 2, 4]),
    st.sampled_from([None, 100, 250, 500, 700]),
    st.sampled_from([0, 2_000, 8_000]),
    st.integers(1, 9),
    st.sampled_from([("h100",), ("a100",), ("a100", "h100")]),
)


def unusable(cpu: int, left: list[int], asked: list[ExpectedUnits]) -> int:
    """As it is defined: for each shape all that is left if it cannot run, else what is left on cards too full."""
    total = 0
    for each in asked:
        size = each.share_milli or 1_000
        runs = "h100" in each.accelerators and cpu >= each.cpu_milli and sum(one >= size for one in left) >= each.cards
        total += each.units * sum(one for one in left if not runs or one < size)
    return total


def level(gain: int, weight: int) -> int:
    return min(floor(round(100 / (1 + exp(-gain / weight / 1_000)), 6)), 99)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    st.lists(shapes, min_size=1, max_size=6),
    st.integers(0, 4),
    st.lists(st.sampled_from([0, 100, 250, 400, 500, 900]), max_size=4),
    st.sampled_from([(9_000, 9_000), (9_000, 2_000), (4_000, 0)]),
    st.sampled_from([100, 250, 500, 1_000, 2_000]),
)
def test_the_tables_rate_as_the_definition_does(
    asked: list[ExpectedUnits], untouched: int, rest: list[int], cpu: tuple[int, int], take: int
) -> None:
    left = [1_000] * untouched + rest
    ways = []
    if take >= 1_000 and untouched * 1_000 >= take:
        ways = [(1_000, [1_000] * (untouched - take // 1_000) + rest)]
    elif take < 1_000:
        for one in sorted(set(left)):
            if one >= take:
                after = list(left)
                after[after.index(one)] -= take
                ways.append((one, after))
    if not ways:
        return
    before, weight = unusable(cpu[0], left, asked), sum(each.units for each in asked)
    rated = [(level(before - unusable(cpu[1], after, asked), weight), one) for one, after in ways]
    best = max(each for each, _ in rated)
    chosen = next(one for each, one in rated if each == best)
    assert Fragments(asked).level("h100", cpu, untouched, rest, take) == (best, chosen)


FLEET = [Node(f"n{n}", 96_000, 786_432, 8, ("a100", "t4")[n % 2]) for n in range(26)]
TYPES = ("a100", "t4")


def test_a_part_goes_where_what_is_left_still_serves_what_is_asked_for() -> None:
    halves = Fragments([ExpectedUnits(accelerators=("a100",), cards=1, share_milli=500, cpu_milli=0, units=10)])
    assert halves.level("a100", (0, 0), 1, [500, 600], 100)[1] == 600
    assert halves.level("a100", (0, 0), 1, [500, 600], 500)[1] == 500
    assert halves.level("a100", (0, 0), 1, [550, 700], 50)[1] == 550


def test_a_fleet_that_is_shared_is_filled_and_the_same_each_time() -> None:
    requests = load(MIX, 8 * len(FLEET), seed=1)
    rated = feed(FLEET, requests, workload(MIX, TYPES), seed=0)
    assert rated.given >= 0.94 * 8 * len(FLEET) * 1_000
    assert feed(FLEET, requests, workload(MIX, TYPES), seed=0).places == rated.places


def test_parts_of_a_card_are_given_before_another_card_is_begun() -> None:
    half = Request(0, 0, 1, 500, ())
    outcome = feed(FLEET, [half] * 4, workload([half], TYPES), seed=0)
    assert outcome.given == 2_000
    assert len(set(outcome.places)) == 1


def test_a_list_is_read_fed_and_compared_with_what_was_published(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{n},96000,786432,8,A100\n" for n in range(4))
    )
    rows = [f"p{n},4000,8192,{n % 3 and 1},{(0, 1000, 460)[n % 3]},{('', 'A100')[n % 2]}\n" for n in range(30)]
    (tmp_path / "openb_pod_list_default.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(rows)
    )
    given, _ = rates(tmp_path, ["default"], [1, 2])
    assert given.budget == 95.19
    assert 80 < given.value <= 100
