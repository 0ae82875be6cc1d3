"""Reading JSON that strangers send: what two readers could understand differently is refused.

Refused are NaN, infinite numbers, integers beyond 64 bits, repeated names, lone surrogates, invalid UTF-8, NUL (which
PostgreSQL cannot store) and nesting that would exhaust a recursive reader later.
"""

import json
from typing import Any

import orjson

DEPTH_MAX = 32


class NotStrict(ValueError):
    """The bytes are no JSON text, or not one that every reader understands alike."""


def check(body: bytes) -> None:
    """Raise NotStrict where `body` is not strict JSON."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotStrict(str(error)) from error
    _walk(value, DEPTH_MAX)
    # The first reader is quick and strict but keeps the last of two equal names, and makes a float of a long integer.
    json.loads(body, object_pairs_hook=_unique, parse_int=_integer)


def _walk(value: Any, depth: int) -> None:
    if isinstance(value, str):
        if "\0" in value:
            raise NotStrict("a string contains a NUL character")
    elif isinstance(value, dict | list):
        if depth == 0:
            raise NotStrict(f"it is nested more than {DEPTH_MAX} levels deep")
        for item in value if isinstance(value, list) else [*value, *value.values()]:
            _walk(item, depth - 1)


def _integer(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise NotStrict("an integer does not fit into 64 bits")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise NotStrict("a name occurs twice in one object")
    return members
