"""A trace goes on through what a call causes, and a late consumer starts its own."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from qm_service import trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOW = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)


def trace_id(traceparent: str) -> str:
    """Return the trace of a header."""
    return traceparent.split("-")[1]


def test_a_header_is_read_and_written_alike() -> None:
    context = trace.parse(PARENT)
    assert context is not None
    assert trace.render(context) == PARENT


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
    ],
)
def test_a_header_that_names_nothing_starts_a_new_trace(header: str | None) -> None:
    assert trace.parse(header) is None
    assert trace.parse(trace.child(header)) is not None


def test_a_version_of_the_future_is_read_as_far_as_we_know_it() -> None:
    assert trace.parse("01" + PARENT[2:] + "-more") is not None


def test_a_span_stays_in_its_trace_under_an_id_of_its_own() -> None:
    with trace.span("work", PARENT) as inside:
        assert trace_id(inside) == trace_id(PARENT)
        assert inside != PARENT


@pytest.mark.parametrize(("late", "same"), [(timedelta(seconds=60), True), (timedelta(seconds=61), False)])
def test_a_consumer_that_is_late_starts_a_trace_of_its_own(late: timedelta, same: bool) -> None:
    with trace.consumed("work", PARENT, NOW - late, NOW) as inside:
        assert (trace_id(inside) == trace_id(PARENT)) is same


def test_recorded_spans_name_their_parent_or_link_to_their_cause(tmp_path: Path) -> None:
    spans, long_ago = tmp_path / "spans.jsonl", NOW - timedelta(hours=1)
    with (
        trace.recording("test", spans),
        trace.span("call", PARENT) as inside,
        trace.consumed("late", inside, long_ago, NOW) as late,
    ):
        assert trace_id(inside) == trace_id(PARENT) != trace_id(late)
    named = {span["name"]: span for span in map(json.loads, spans.read_text().splitlines())}
    assert named["call"]["parent_id"] == "0xb7ad6b7169203331"
    assert named["late"]["parent_id"] is None
    assert named["late"]["links"][0]["context"]["trace_id"] == f"0x{trace_id(PARENT)}"
