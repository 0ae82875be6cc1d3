"""The feeds: everything once, in the order of each stream, nothing of others, and a cursor that outlives a rebuild."""

import asyncio
import json
from typing import Any

from qm_catalog import api_events
from qm_events.admission import OrderRejected
from qm_events.catalog import OrderReleaseRequested
from tests.unit.catalog import walk
from tests.unit.catalog.stage import OPERATOR, Stage


async def read(stage: Stage, path: str, limit: int, by: str = "dora") -> list[dict[str, Any]]:
    """Read a feed page by page to its end."""
    items, query = [], f"?limit={limit}"
    while True:
        body = await stage.done("GET", f"{path}{query}", by=by)
        items += body["items"]
        if body["next"] is None:
            return items
        query = f"?limit={limit}&after={body['next']}"


async def told(stage: Stage) -> str:
    """Play the story of a served order and return its id."""
    order = (await stage.order(duration="PT8H"))["id"]
    for event in walk.in_order(walk.STORIES["served"]):
        if event.data.topic != "orders":
            await stage.tell(event.data.model_copy(update={"order": order}))
        elif isinstance(event.data, OrderReleaseRequested):
            await stage.done("POST", f"/orders/{order}/release")
    return str(order)


async def test_the_feed_of_an_order_tells_every_topic_once_and_streams_in_order(stage: Stage) -> None:
    order = await told(stage)
    await stage.order()
    everything = await read(stage, f"/orders/{order}/events", 100)
    assert await read(stage, f"/orders/{order}/events", 3) == everything
    assert len(everything) == sum(len(told) for told in walk.STORIES["served"].values())
    assert {event["correlation"] for event in everything} == {order}
    for stream in {event["subject"] for event in everything}:
        versions = [event["version"] for event in everything if event["subject"] == stream]
        assert versions == list(range(1, len(versions) + 1))


async def test_a_fact_is_shown_without_the_bookkeeping_of_the_call(stage: Stage) -> None:
    order = await stage.done("POST", "/orders", {"project": "vision", "specification": "gpu-2x", "service_model": "vm"})
    (fact,) = await read(stage, f"/orders/{order['id']}/events", 10)
    assert (fact["specversion"], fact["type"], fact["actor"]) == ("1.0", "order.submitted.v1", "dora")
    assert not {"token", "idempotency", "request"} & fact.keys()


async def test_a_cursor_reads_on_where_it_stopped(stage: Stage) -> None:
    order = (await stage.order())["id"]
    first = await stage.done("GET", f"/orders/{order}/events")
    assert first["next"] is None
    assert (await stage.done("GET", f"/orders/{order}/events?after={first['cursor']}"))["items"] == []
    await stage.tell(OrderRejected(order=order, code="never-fits", remedy="Order less.", rejected_at=walk.at(1)))
    later = await stage.done("GET", f"/orders/{order}/events?after={first['cursor']}")
    assert [fact["type"] for fact in later["items"]] == ["order.rejected.v1"]
    assert (await stage.done("GET", f"/orders/{order}/events?after=end"))["items"] == []


async def test_the_feed_of_everything_shows_each_caller_what_is_his(stage: Stage) -> None:
    order = await told(stage)
    seen = {fact["id"]: fact for fact in await read(stage, "/events", 7)}
    assert {fact["subject"] for fact in seen.values() if fact.get("correlation") == order} >= {
        f"order/{order}",
        f"admission/{order}",
        f"environment/{order}",
    }
    assert {fact["tenant"] for fact in seen.values()} == {"acme"}
    assert not [fact for fact in seen.values() if "access_audited" in fact["type"]]
    assert not [fact for fact in await read(stage, "/events", 100, by="bert") if fact.get("correlation") == order]
    audited = [fact for fact in await read(stage, "/events", 100, by="anna") if "access_audited" in fact["type"]]
    assert {fact["data"]["actor"] for fact in audited} == {"dora", OPERATOR}


async def test_the_feed_of_everything_repeats_nothing_behind_a_cursor(stage: Stage) -> None:
    await stage.order()
    await stage.world.settle()
    first = await stage.done("GET", "/events?limit=500", by="anna")
    assert (await stage.done("GET", f"/events?after={first['cursor']}", by="anna"))["items"] == []
    order = (await stage.order())["id"]
    await stage.world.settle()
    later = await stage.done("GET", f"/events?after={first['cursor']}", by="dora")
    assert [fact["subject"] for fact in later["items"]] == [f"order/{order}"]


async def test_a_cursor_of_another_list_is_refused(stage: Stage) -> None:
    order = (await stage.order())["id"]
    cursor = (await stage.done("GET", f"/orders/{order}/events"))["cursor"]
    for after in (cursor, "nonsense"):
        reply = await stage.call("GET", f"/events?after={after}")
        assert (reply.status_code, reply.json()["field"]) == (422, "after")


async def test_a_stranger_reads_no_feed_of_an_order(stage: Stage) -> None:
    order = (await stage.order())["id"]
    assert (await stage.call("GET", f"/orders/{order}/events", by="bert")).status_code == 404


async def test_a_stream_goes_on_after_the_last_event_id(stage: Stage, monkeypatch: Any) -> None:
    monkeypatch.setattr(api_events, "_STREAM_SECONDS", 0.2)
    monkeypatch.setattr(api_events, "_POLL_SECONDS", 0.01)
    order = (await stage.order())["id"]
    path = f"/orders/{order}/events"
    first = await stage.call("GET", path, Accept="text/event-stream")
    assert first.headers["content-type"].startswith("text/event-stream")
    (event,) = parsed(first.text)
    assert event["event"] == "order.submitted.v1"
    assert json.loads(event["data"])["subject"] == f"order/{order}"
    waiting = asyncio.create_task(stage.call("GET", path, Accept="text/event-stream", Last_Event_ID=event["id"]))
    await stage.done("POST", f"/orders/{order}/cancel")
    assert [event["event"] for event in parsed((await waiting).text)] == ["order.cancel_requested.v1"]


def parsed(text: str) -> list[dict[str, str]]:
    """Return the events of a stream; comments are left out."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
