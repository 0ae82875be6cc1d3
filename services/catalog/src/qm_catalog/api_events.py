"""The two feeds of facts: as JSON pages, and as server-sent events for who asks for `text/event-stream`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from qm_catalog import feed
from qm_catalog.domain import RECORDS
from qm_catalog.lookup import readable
from qm_catalog.request_record import Record
from qm_events.registry import TOPICS
from qm_service.caller import Access
from qm_service.database import DatabaseUnavailable
from qm_service.log import LogUnavailable, PositionLost
from qm_service.page import CURSOR_MAX_CHARS, LIMIT_DEFAULT, LIMIT_MAX, Window, not_a_cursor, window
from qm_service.problem import ValidationFailed, problems
from qm_service.runtime import Runtime

_POLL_SECONDS = 0.5
_QUIET_SECONDS = 15.0
"""A line is sent at least this often, so that nobody between closes the connection."""
_STREAM_SECONDS = 300.0
"""A stream ends after this long and the reader comes back with its cursor: so a role that was revoked ends it."""

Next = Callable[[feed.Cursor], Awaitable[feed.Slice]]
_PLACES = sum(topic.partitions for topic in TOPICS.values())


class FactsPage(BaseModel):
    """Facts as CloudEvents. A fact may come twice, under the same `id`."""

    items: list[dict[str, Any]]
    next: str | None
    """For `after`, while there is more at once."""
    cursor: str
    """For `after`, to read on whenever it suits."""


After = Annotated[
    str | None, Query(max_length=CURSOR_MAX_CHARS, description="A cursor, or `end` for what comes from now on")
]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
LastEventId = Annotated[str | None, Header(max_length=CURSOR_MAX_CHARS)]
Accept = Annotated[str, Header()]


def routes(runtime: Runtime) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.get("/events", responses=problems(), response_model=FactsPage)
    async def list_events(
        access: Access,
        after: After = None,
        limit: Limit = LIMIT_DEFAULT,
        last_event_id: LastEventId = None,
        accept: Accept = "*/*",
    ) -> Response:
        """Return the facts of all topics, of the projects in which the caller has a role."""
        given = last_event_id or after
        part = _part(access.bound.action, given, limit)
        start = _cursor(part, _PLACES)
        if given == "end":
            start = feed.cursor_of(await runtime.log.ends(TOPICS))

        async def following(cursor: feed.Cursor) -> feed.Slice:
            return await feed.facts_of_log(runtime.log, access.caller, cursor, limit)

        return await _reply(accept, part, start, following)

    @router.get("/orders/{order}/events", responses=problems(), response_model=FactsPage)
    async def list_order_events(
        order: str,
        access: Access,
        after: After = None,
        limit: Limit = LIMIT_DEFAULT,
        last_event_id: LastEventId = None,
        accept: Accept = "*/*",
    ) -> Response:
        """Return the facts of all topics about one order, by time."""
        record = await readable(runtime, access, order)
        given = last_event_id or after
        part = _part(access.bound.action, given, limit)
        start = feed.versions(record) if given == "end" else _cursor(part, len(feed.ORDER_TOPICS))

        async def following(cursor: feed.Cursor) -> feed.Slice:
            now: Record | None = await runtime.docs.get(RECORDS, order)
            # The record says whether there is anything new, at the price of one row.
            if now is None or feed.versions(now) == cursor:
                return feed.Slice(cursor)
            return await feed.facts_of_order(runtime.docs, order, cursor, limit)

        return await _reply(accept, part, start, following)

    return router


def _part(action: str, after: str | None, limit: int) -> Window:
    return window(action, None if after == "end" else after, limit)


def _cursor(part: Window, length: int) -> feed.Cursor:
    """Return where to read on: the beginning, or the cursor of the request if it is one of this release."""
    found: feed.Cursor = part.start(*[int] * length) or (0,) * length
    if min(found) < 0:
        raise not_a_cursor()
    return found


async def _reply(accept: str, part: Window, start: feed.Cursor, following: Next) -> Response:
    if "text/event-stream" in accept:
        return StreamingResponse(_stream(part, start, following), media_type="text/event-stream")
    try:
        found = await following(start)
    except PositionLost as error:
        raise ValidationFailed("`after` is beyond the end of the log.", field="after") from error
    body = {
        "items": [fact for fact, _ in found.facts],
        "next": part.cursor(found.cursor) if found.more else None,
        "cursor": part.cursor(found.cursor),
    }
    return Response(orjson.dumps(body), media_type="application/json")


async def _stream(part: Window, cursor: feed.Cursor, following: Next) -> AsyncIterator[bytes]:
    end, said = monotonic() + _STREAM_SECONDS, monotonic()
    yield b": connected\n\n"
    while monotonic() < end:
        try:
            found = await following(cursor)
        except (LogUnavailable, DatabaseUnavailable, PositionLost):
            return
        for fact, place in found.facts:
            yield b"id: %b\nevent: %b\ndata: %b\n\n" % (
                part.cursor(place).encode(),
                fact["type"].encode(),
                orjson.dumps(fact),
            )
        cursor = found.cursor
        if found.facts:
            said = monotonic()
        elif monotonic() - said > _QUIET_SECONDS:
            said = monotonic()
            yield b": quiet\n\n"
        if not found.more:
            await asyncio.sleep(_POLL_SECONDS)
