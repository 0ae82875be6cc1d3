"""Partitions, shares and headers: what all logs do alike."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm_service.log import Message, Position, PositionLost, murmur2
from qm_service.log_rules import headers_of, shares, target_of

POSITIONS = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 11)), st.integers(0, 50), min_size=1)
GROWTH = st.lists(st.integers(0, 50), min_size=12, max_size=12)


@pytest.mark.parametrize(
    ("data", "value"),
    # From Kafka's own test of its clients.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(data: bytes, value: int) -> None:
    assert murmur2(data) == value & 0xFFFFFFFF


@given(POSITIONS, GROWTH, st.integers(1, 40), st.integers(0, 1_000))
@settings(derandomize=True)
def test_shares_fill_the_limit_and_never_pass_what_is_there(
    position: Position, growth: list[int], limit: int, turn: int
) -> None:
    ends = {at: offset + growth[at[1]] for at, offset in position.items()}
    taken = shares(position, ends, limit, turn)
    available = sum(ends[at] - offset for at, offset in position.items())
    assert sum(taken.values()) <= min(limit, available)
    assert bool(taken) == bool(available)
    assert all(0 < count <= ends[at] - position[at] for at, count in taken.items())
    if len(taken) == sum(ends[at] > offset for at, offset in position.items()):
        assert sum(taken.values()) == min(limit, available)


@given(st.integers(1, 5))
@settings(derandomize=True)
def test_no_partition_starves_where_the_limit_is_below_their_number(limit: int) -> None:
    position: Position = {("t", i): 0 for i in range(12)}
    ends: Position = {("t", i): 1_000 * (i + 1) for i in range(12)}
    assert {at for turn in range(12) for at in shares(position, ends, limit, turn)} == set(position)


def test_an_even_backlog_is_shared_evenly() -> None:
    position: Position = {("t", i): 0 for i in range(3)}
    assert shares(position, {("t", 0): 2, ("t", 1): 90, ("t", 2): 90}, 30, 0) == {
        ("t", 0): 2,
        ("t", 1): 14,
        ("t", 2): 14,
    }


def test_a_position_that_the_log_does_not_cover_is_lost() -> None:
    with pytest.raises(PositionLost, match=r"t/0: position 6 is not within 0\.\.5"):
        shares({("t", 0): 6}, {("t", 0): 5}, 10, 0)
    with pytest.raises(PositionLost, match="t/12"):
        shares({("t", 12): 0}, {("t", 0): 5}, 10, 0)


def test_the_key_decides_unless_a_log_is_restored() -> None:
    message = Message("t", "foobar", "x.v1", "id", "thing/foobar", 1, "2026-01-01T00:00:00Z", b"")
    assert target_of(message, 12) == (-790332482 & 0x7FFFFFFF) % 12
    restored = Message("t", "foobar", "x.v1", "id", "thing/foobar", 1, "2026-01-01T00:00:00Z", b"", partition=5)
    assert target_of(restored, 12) == 5


def test_headers_leave_out_a_trace_that_is_not_there() -> None:
    message = Message("t", "k", "x.v1", "id", "thing/k", 3, "2026-01-01T00:00:00Z", b"", traceparent="00-a-b-01")
    assert headers_of(message)["traceparent"] == "00-a-b-01"
    assert headers_of(message)["ce_version"] == "3"
    assert "traceparent" not in headers_of(Message("t", "k", "x.v1", "id", "thing/k", 3, "", b""))
