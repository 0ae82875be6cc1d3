"""Traces: one W3C `traceparent` goes from the HTTP call into the facts, and on to what they cause.

Ids are handed on always; spans are made only inside `recording`, so that who exports nothing pays nothing.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from qm_events import Event
from qm_service.clock import new_id

TRACEPARENT = "qm.traceparent"
"""Where the ASGI scope holds the traceparent of the call."""
LINK_AFTER = timedelta(minutes=1)
"""A consumer so late starts a trace of its own and links to the cause: nobody reads a span of a week."""

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NOTHING = nullcontext()
_tracer: Tracer | None = None


def parse(traceparent: str | None) -> SpanContext | None:
    """Return the context that a header names; None where it names none, as the standard wants."""
    match = _FORM.fullmatch(traceparent or "")
    if match is None:
        return None
    return SpanContext(int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=TraceFlags(int(match[3], 16)))


def render(context: SpanContext) -> str:
    """Return the header of a context."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"


def child(traceparent: str | None = None) -> str:
    """Return a new span id in the trace of `traceparent`, or in a new trace."""
    parent = parse(traceparent)
    trace_id = parent.trace_id if parent else int(new_id().replace("-", ""), 16)
    # The last 64 bits of an id are its random ones.
    span_id = int(new_id().replace("-", "")[16:], 16)
    return render(SpanContext(trace_id, span_id, False, parent.trace_flags if parent else _SAMPLED))


@contextmanager
def span(
    name: str,
    traceparent: str | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    late: bool = False,
    attributes: Mapping[str, str | int] | None = None,
) -> Iterator[str]:
    """Open a span under `traceparent` (`late`: beside it, with a link); yields the traceparent for what is inside."""
    if _tracer is None:
        yield child(None if late else traceparent)
        return
    cause = parse(traceparent)
    # A context of its own, always: only the traceparent says what belongs to what, not the task that happens to run.
    context = set_span_in_context(NonRecordingSpan(cause), Context()) if cause and not late else Context()
    links = [Link(cause)] if cause and late else None
    with _tracer.start_as_current_span(name, context, kind, attributes, links) as current:
        yield render(current.get_span_context())


def consumed(service: str, event: Event[Any], now: datetime) -> AbstractContextManager[object]:
    """Open the span of what a service does because of a fact. What it leads to carries the trace of the fact all the
    same: facts do not depend on whether somebody records."""
    if _tracer is None:
        return _NOTHING
    late = now - event.time > LINK_AFTER
    attributes: dict[str, str | int] = {"stream": event.subject, "version": event.version}
    kind = SpanKind.CONSUMER
    return span(f"{service} {event.type}", event.traceparent, kind=kind, late=late, attributes=attributes)


@contextmanager
def recording(service: str, path: Path | None) -> Iterator[None]:
    """Append all spans that are made inside to a file, as JSON lines; with path None make none."""
    global _tracer
    if path is None:
        yield
        return
    provider = TracerProvider(resource=Resource.create({"service.name": f"quartermaster-{service}"}))
    with path.open("a", encoding="utf-8") as file:
        exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
        provider.add_span_processor(BatchSpanProcessor(exporter))
        _tracer = provider.get_tracer("quartermaster")
        try:
            yield
        finally:
            _tracer = None
            provider.shutdown()
