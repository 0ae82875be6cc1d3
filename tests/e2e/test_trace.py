"""One trace leads from the call that placed an order to all that five services made of it."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from qm_service import trace
from qm_service.database import Database
from qm_service.replay import replay
from tests.support.inside import inside
from tests.support.topics import Fact, facts_of_sqlite

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALL = f"00-{TRACE}-b7ad6b7169203331-01"
LIFE = timedelta(hours=1)


def trace_of(fact: Fact) -> str:
    """Return the trace that a fact carries."""
    return str(fact.body.get("traceparent") or "--").split("-")[1]


def of_walk(fact: Fact, order: str) -> bool:
    """Tell whether a fact is of the walk of an order."""
    return fact.body.get("correlation") == order


def spans_of(file: Path) -> list[dict[str, Any]]:
    """Return what was recorded."""
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_an_order_is_one_trace_through_five_services_to_its_bill_and_a_replay_adds_no_span(
    tmp_path: Path,
) -> None:
    spans, replayed = tmp_path / "spans", tmp_path / "replayed"
    async with inside(tmp_path) as found:
        with trace.recording("test", spans):
            reply = await found.call(
                "alice",
                "POST",
                "/orders",
                {"project": "acme/vision", "specification": "a100-1", "service_model": "vm", "duration": "PT1H"},
                headers={"traceparent": CALL},
            )
            order = reply.json()["id"]
            await found.settle()
            await found.call("operator", "POST", "/sim/clock", {"advance": "PT2H"})
            await found.settle()
        facts = [f for f in facts_of_sqlite(tmp_path / "log.sqlite") if of_walk(f, order)]
        with trace.recording("test", replayed):
            for service in found.product.services:
                runtime = service.runtime
                fresh = Database("sqlite+aiosqlite://")
                await replay(runtime.definition, fresh, runtime.log)
                await fresh.close()
    types = {fact.type for fact in facts}
    assert {"environment.ready", "order.expired", "environment.released", "usage.recorded"} <= types
    assert {fact.body["source"].rpartition("/")[2] for fact in facts} == {
        "catalog",
        "admission",
        "scheduler",
        "provisioner",
        "metering",
    }
    assert {(fact.type, trace_of(fact)) for fact in facts} == {(type_, TRACE) for type_ in types}
    causes = {fact.body["id"]: fact for fact in facts}
    assert [fact.type for fact in facts if fact.body.get("causation") not in causes] == ["order.submitted"]
    recorded = spans_of(spans)
    served = [span for span in recorded if span["kind"] == "SpanKind.CONSUMER"]
    names = {span["name"].split(" ")[0] for span in served if span["context"]["trace_id"] == f"0x{TRACE}"}
    assert names == {"catalog", "admission", "scheduler", "provisioner", "metering"}
    late = [span for span in served if span["links"]]
    assert all(span["links"][0]["context"]["trace_id"] != span["context"]["trace_id"] for span in late)
    assert spans_of(replayed) == []
