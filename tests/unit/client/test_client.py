"""The SDK and the small parts of the command line, without a server."""

from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from rich.console import Console

from qm_client import session
from qm_client.embedded.clock import StoredClock
from qm_client.logs import causal_tree
from qm_client.quotas import quantities
from qm_client.sdk import ApiError, Client


def client(answers: list[httpx.Response], seen: list[httpx.Request] | None = None) -> Client:
    def answer(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        return answers.pop(0)

    return Client("http://127.0.0.1:1", "token", transport=httpx.MockTransport(answer))


def test_a_problem_is_raised_with_its_code_and_kept_whole() -> None:
    problem = {"code": "quota-exceeded", "detail": "No room.", "remedy": "Release something."}
    with (
        client([httpx.Response(409, json=problem)]) as api,
        pytest.raises(ApiError, match="quota-exceeded: No room") as e,
    ):
        api.submit({})
    assert (e.value.status, e.value.problem["remedy"]) == (409, "Release something.")


def test_an_answer_that_is_no_problem_document_is_still_an_error() -> None:
    with client([httpx.Response(502, text="bad gateway")]) as api, pytest.raises(ApiError, match="502"):
        api.order("x")


def test_pages_are_followed_to_the_end() -> None:
    seen: list[httpx.Request] = []
    pages = [
        httpx.Response(200, json={"items": [1, 2], "next": "c"}),
        httpx.Response(200, json={"items": [3], "next": None}),
    ]
    with client(pages, seen) as api:
        assert list(api.pages("/orders", phase="active")) == [1, 2, 3]
    assert [dict(request.url.params) for request in seen] == [{"phase": "active"}, {"phase": "active", "after": "c"}]


def test_an_idempotency_key_is_sent_where_it_is_given() -> None:
    seen: list[httpx.Request] = []
    with client([httpx.Response(202, json={}), httpx.Response(202, json={})], seen) as api:
        api.submit({}, idempotency_key="k")
        api.submit({})
    assert [request.headers.get("idempotency-key") for request in seen] == ["k", None]


def test_watch_shows_each_change_once_and_ends_when_the_order_is_usable() -> None:
    phases = ["queued", "queued", "provisioning", "active", "never asked for"]
    answers = [httpx.Response(200, json={"phase": phase, "reason": None}) for phase in phases]
    with client(answers) as api:
        shown = [record["phase"] for record in api.watch("o", limit_seconds=30, every_seconds=0)]
    assert shown == ["queued", "provisioning", "active"]


def test_a_session_is_readable_by_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QM_SESSION", str(tmp_path / "deep" / "session.json"))
    for _ in range(2):
        path = session.save_session("http://127.0.0.1:1", "secret")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_manual_clock_survives_a_restart_and_never_loses_what_is_due(tmp_path: Path) -> None:
    clock = StoredClock(tmp_path / "clock")
    clock.advance(timedelta(hours=5))
    assert StoredClock(tmp_path / "clock").now() == clock.now() == datetime(2026, 1, 1, 5, tzinfo=UTC)
    assert clock.next_due() is None


def fact(name: str, subject: str, version: int, minute: int, causation: str | None = None) -> dict[str, Any]:
    return {
        "id": f"{subject}@{version}",
        "type": name,
        "subject": subject,
        "version": version,
        "time": f"2026-06-01T08:{minute:02}:00Z",
        "source": "/quartermaster/catalog",
        "causation": causation,
    }


def test_the_tree_of_an_order_hangs_each_fact_under_its_cause() -> None:
    facts = [
        fact("allocation.allocated.v1", "allocation/o", 2, 2),
        fact("order.submitted.v1", "order/o", 1, 0),
        fact("allocation.queued.v1", "allocation/o", 1, 1, causation="order/o@1"),
    ]
    console = Console(width=200, record=True, file=StringIO())
    console.print(causal_tree("o", facts))
    lines = [line.split("v1")[0].rstrip(".") for line in console.export_text().splitlines()]
    assert [line.index(line.strip("│├└─ ")) for line in lines[1:]] == [4, 8, 12]


def test_a_cause_stands_above_its_effect_where_the_clock_stands() -> None:
    facts = [
        fact("quota.claimed.v1", "admission/o", 1, 0, causation="order/o@1"),
        fact("order.submitted.v1", "order/o", 1, 0),
    ]
    (submitted,) = causal_tree("o", facts).children
    assert "order.submitted.v1" in str(submitted.label)
    assert "quota.claimed.v1" in str(submitted.children[0].label)


def test_quantities_are_whole_numbers_by_dimension() -> None:
    assert quantities(["cards=8", "cards/a100=4"]) == {"cards": 8, "cards/a100": 4}
    with pytest.raises(typer.BadParameter, match="without a unit"):
        quantities(["memory_mib=64GiB"])
