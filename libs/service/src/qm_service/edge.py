"""The outer skin of every app: what is done for each call before a route is looked for and after it has answered.

Gives the call its correlation id and trace, refuses bodies that are too large or no strict JSON, adds the security
headers, measures, and turns an exception that nobody expected into `internal-error`.
"""

import logging
import re
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qm_service import strict_json, trace
from qm_service.clock import new_id
from qm_service.faults import CORRELATION, response
from qm_service.problem import (
    InternalError,
    MalformedJson,
    PayloadTooLarge,
    ProblemError,
    UnsupportedMediaType,
    ValidationFailed,
)

BODY_MAX_BYTES = 1 << 20
_LENGTH_MAX_DIGITS = 18
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
_log = logging.getLogger(__name__)

Measure = Callable[[Scope, int, float], None]
"""Takes the scope of an answered call, the status and the seconds that it took."""


class _Gone(Exception):
    """The caller hung up before the whole body was here."""


class Edge:
    """The middleware."""

    def __init__(self, app: ASGIApp, measure: Measure) -> None:
        self._app = app
        self._measure = measure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        scope[CORRELATION] = given if _REQUEST_ID.fullmatch(given) else new_id()
        reply = _Reply(scope, send)
        started = time.perf_counter()
        with trace.span(scope["method"], headers.get("traceparent"), kind=SpanKind.SERVER) as inside:
            scope[trace.TRACEPARENT] = inside
            await self._serve(scope, headers, receive, reply)
        self._measure(scope, reply.status, time.perf_counter() - started)

    async def _serve(self, scope: Scope, headers: Headers, receive: Receive, reply: "_Reply") -> None:
        try:
            _check_target(scope)
            await self._app(scope, await _checked_body(headers, receive), reply)
        except _Gone:
            return
        except ProblemError as error:
            await response(scope, error)(scope, receive, reply)
        except Exception:
            _log.exception("%s %s failed, correlation id %s", scope["method"], scope["path"], scope[CORRELATION])
            if reply.status:
                raise  # the head is sent: only breaking off tells the caller that the rest is missing
            await response(scope, InternalError("A fault of the service, not of the request."))(scope, receive, reply)


class _Reply:
    """Sends, adding what every reply carries."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._scope[CORRELATION]
            headers.setdefault("Cache-Control", "no-store")
            headers.update(SECURITY_HEADERS)
        await self._send(message)


def _check_target(scope: Scope) -> None:
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise ValidationFailed("The path or the query contains a NUL character.")


async def _checked_body(headers: Headers, receive: Receive) -> Receive:
    """Return a `receive` that yields the whole body, once it is known to be small and strict JSON."""
    body = await _read(headers, receive)
    if body:
        if not _JSON.fullmatch(headers.get("content-type", "")):
            raise UnsupportedMediaType("The body is not declared as application/json.")
        try:
            strict_json.check(body)
        except strict_json.NotStrict as error:
            raise MalformedJson(f"The body is refused: {error}.") from error
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def _read(headers: Headers, receive: Receive) -> bytes:
    declared = headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > _LENGTH_MAX_DIGITS or int(declared) > BODY_MAX_BYTES:
        raise _too_large()
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if size > BODY_MAX_BYTES:
            raise _too_large()
    return b"".join(chunks)


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is longer than {BODY_MAX_BYTES} bytes.", limit_bytes=BODY_MAX_BYTES)
