"""Bytes to facts and back. Strict at write, tolerant at read: unknown envelope attributes are ignored, an old version
is brought up by one upcaster a hop, and a type that this release does not know is named, never guessed."""

from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from qm_events.envelope import Event, EventData
from qm_events.registry import fact

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

_UPCASTERS: dict[str, tuple[str, Upcast]] = {}


class UnknownEventType(Exception):
    """The wire type is not in this release. Projections skip it; the owner of the stream must not."""


class UndecodableEvent(Exception):
    """The bytes are not a fact of the type that they claim."""


def upcaster(old: str, new: str) -> Callable[[Upcast], Upcast]:
    """Register how the data of `old` becomes the data of `new`. It may rename and derive, never invent."""

    def register(function: Upcast) -> Upcast:
        if old in _UPCASTERS:
            raise ValueError(f"{old} has two upcasters")
        _UPCASTERS[old] = (new, function)
        _check_chain(old)
        return function

    return register


def _check_chain(start: str) -> None:
    seen, wire = {start}, start
    while wire in _UPCASTERS:
        wire = _UPCASTERS[wire][0]
        if wire in seen:
            raise ValueError(f"the upcasters of {start} run in a circle at {wire}")
        seen.add(wire)


def check_upcasters() -> None:
    """Raise ValueError where a chain ends at a type that is not current."""
    for old in _UPCASTERS:
        if fact(current(old)) is None:
            raise ValueError(f"the upcasters of {old} end at {current(old)}, which is no fact")


def current(wire: str) -> str:
    """Return the wire type that facts of type `wire` are read as: itself, or where its upcasters lead."""
    while wire in _UPCASTERS:
        wire = _UPCASTERS[wire][0]
    return wire


@cache
def _model(cls: type[EventData]) -> type[Event[Any]]:
    return Event[cls]  # type: ignore[valid-type]  # the class is chosen at run time, from the wire name


def encode(event: Event[Any]) -> bytes:
    """Return the structured JSON of a fact; None attributes are left out."""
    return event.__pydantic_serializer__.to_json(event, exclude_none=True, serialize_as_any=True)


def decode(raw: bytes, wire: str | None = None) -> Event[Any]:
    """Return the fact in `raw`; `wire` is its type where a header told it, which saves a parse.

    Raises UnknownEventType or UndecodableEvent.
    """
    try:
        if wire is None:
            wire = str(from_json(raw)["type"])
        cls = fact(wire)
        if cls is not None and wire not in _UPCASTERS:
            return _model(cls).model_validate_json(raw, extra="ignore")
        return _decode_old(raw, wire)
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise UndecodableEvent(f"{wire}: {error}") from error


def _decode_old(raw: bytes, wire: str) -> Event[Any]:
    body = from_json(raw)
    while wire in _UPCASTERS:
        wire, upcast = _UPCASTERS[wire]
        body["data"] = upcast(body["data"])
    cls = fact(wire)
    if cls is None:
        raise UnknownEventType(wire)
    # The type on the wire stays as it was written: the id and the bytes of the log are the truth.
    return _model(cls).model_validate(body, extra="ignore")
