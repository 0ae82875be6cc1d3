"""What may not change in a fact that was released: readers out there, and every old record on a log kept for ever.

Adding an optional field or a fact is lawful. Whatever is listed here needs a new version of the fact and an upcaster.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qm_service.contracts.jsonschema import resolved

Schema = Mapping[str, Any]

_AT_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_AT_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("const", "pattern", "format")


@dataclass(frozen=True, slots=True, order=True)
class Breaking:
    """One change that a reader of `wire`, or an old record of it, does not survive."""

    wire: str
    path: str
    what: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.wire} {self.path}: {self.what}"


@dataclass(frozen=True, slots=True)
class _Pair:
    wire: str
    path: str
    old: Schema
    new: Schema
    old_root: Schema
    new_root: Schema

    def at(self, step: str, old: Schema, new: Schema) -> "_Pair":
        old, new = resolved(old, self.old_root), resolved(new, self.new_root)
        return _Pair(self.wire, f"{self.path}{step}", old, new, self.old_root, self.new_root)

    def breaks(self, what: str, step: str = "") -> Breaking:
        return Breaking(self.wire, f"{self.path}{step}" or ".", what)


def diff_schemas(old: Mapping[str, Schema], new: Mapping[str, Schema]) -> list[Breaking]:
    """Return what breaks from the facts `old` to the facts `new`, both by wire name; empty = compatible."""
    gone = [Breaking(wire, ".", "the fact is gone") for wire in old if wire not in new]
    kept = (_Pair(wire, "", old[wire], new[wire], old[wire], new[wire]) for wire in old if wire in new)
    return sorted({*gone, *(change for pair in kept for change in _compare(pair))})


def _compare(pair: _Pair) -> Iterator[Breaking]:
    if "anyOf" in pair.old or "anyOf" in pair.new:
        yield from _options(pair)
        return
    yield from _types(pair)
    yield from _values(pair)
    yield from _fields(pair)
    yield from _contents(pair)


def _options(pair: _Pair) -> Iterator[Breaking]:
    new = pair.new.get("anyOf", [pair.new])
    for option in pair.old.get("anyOf", [pair.old]):
        if all(any(_compare(pair.at("", option, other))) for other in new):
            yield pair.breaks(f"no longer takes {resolved(option, pair.old_root).get('type', 'what it took')}")


def _types(pair: _Pair) -> Iterator[Breaking]:
    old, new = pair.old.get("type"), pair.new.get("type")
    if new is not None and new != old and (old, new) != ("integer", "number"):
        yield pair.breaks(f"was {old or 'anything'}, is {new}")


def _values(pair: _Pair) -> Iterator[Breaking]:
    for key in _EXACT:
        if key in pair.new and pair.new[key] != pair.old.get(key):
            yield pair.breaks(f"{key} is {pair.new[key]}, was {pair.old.get(key, 'free')}")
    for key in (*_AT_LEAST, *_AT_MOST):
        if key in pair.new and _tighter(key, pair.old.get(key), pair.new[key]):
            yield pair.breaks(f"{key} is {pair.new[key]}, was {pair.old.get(key, 'free')}")
    if "enum" in pair.new:
        before = pair.old.get("enum", [pair.old["const"]] if "const" in pair.old else None)
        lost = ["everything else"] if before is None else [str(it) for it in before if it not in pair.new["enum"]]
        if lost:
            yield pair.breaks(f"no longer takes {', '.join(lost)}")


def _tighter(key: str, old: Any, new: Any) -> bool:
    if old is None:
        return True
    return bool(new > old if key in _AT_LEAST else new < old)


def _fields(pair: _Pair) -> Iterator[Breaking]:
    old, new = pair.old.get("properties", {}), pair.new.get("properties", {})
    was, now = set(pair.old.get("required", ())), set(pair.new.get("required", ()))
    for name in sorted(old.keys() - new.keys()):
        yield pair.breaks("the field is gone or has another name", f".{name}")
    for name in sorted(now - was):
        yield pair.breaks("is required: old records lack it", f".{name}")
    for name in sorted((was - now) & new.keys()):
        yield pair.breaks("is no longer always there", f".{name}")
    for name in sorted(old.keys() & new.keys()):
        yield from _compare(pair.at(f".{name}", old[name], new[name]))


def _contents(pair: _Pair) -> Iterator[Breaking]:
    for key, step in (("items", "[]"), ("propertyNames", "{name}"), ("additionalProperties", "{}")):
        old, new = _schema(pair.old.get(key)), _schema(pair.new.get(key))
        if new != {}:
            yield from _compare(pair.at(step, old, new))
    old_patterns, new_patterns = pair.old.get("patternProperties", {}), pair.new.get("patternProperties", {})
    for pattern, new in new_patterns.items():
        if pattern not in old_patterns:
            yield pair.breaks(f"names must match {pattern}")
        else:
            yield from _compare(pair.at("{}", old_patterns[pattern], new))


def _schema(value: Any) -> Schema:
    return value if isinstance(value, Mapping) else {}
