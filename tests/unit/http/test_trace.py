"""A trace goes on through what a call causes, and a late consumer starts its own."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from qm_events import Event, new_event
from qm_events.catalog import OrderCancelRequested
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


def fact(at: datetime) -> Event[Any]:
    """Return a fact of the trace of a call."""
    data = OrderCancelRequested(order="o1", requested_at=at)
    return new_event("order/o1", 2, at, "/quartermaster/catalog", data, traceparent=PARENT)


def test_who_records_nothing_makes_no_span_for_a_fact() -> None:
    with trace.consumed("catalog", fact(NOW), NOW) as inside:
        assert inside is None


@pytest.mark.parametrize(("late", "same"), [(timedelta(seconds=60), True), (timedelta(seconds=61), False)])
def test_a_consumer_that_is_late_starts_a_trace_of_its_own_and_links_to_the_cause(
    tmp_path: Path, late: timedelta, same: bool
) -> None:
    file = tmp_path / "spans.jsonl"
    with trace.recording("test", file), trace.consumed("catalog", fact(NOW - late), NOW):
        pass
    (made,) = map(json.loads, file.read_text().splitlines())
    assert (made["name"], made["kind"]) == ("catalog order.cancel_requested.v1", "SpanKind.CONSUMER")
    assert (made["context"]["trace_id"] == f"0x{trace_id(PARENT)}") is same
    assert (made["parent_id"] == "0xb7ad6b7169203331") is same
    assert [link["context"]["trace_id"] for link in made["links"]] == ([] if same else [f"0x{trace_id(PARENT)}"])


def test_a_recorded_span_names_its_parent(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    with trace.recording("test", file), trace.span("call", PARENT) as inside:
        assert trace_id(inside) == trace_id(PARENT)
    assert json.loads(file.read_text())["parent_id"] == "0xb7ad6b7169203331"
