"""What breaks a released fact and what does not, by example."""

import copy
from functools import reduce
from typing import Any

import pytest

from qm_service.contracts.compat import diff_schemas

GONE = object()
RELEASED: dict[str, Any] = {
    "type": "object",
    "required": ["count", "kind", "name", "units"],
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "count": {"type": "integer", "minimum": 1, "maximum": 10},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "units": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Unit"}},
        "note": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {},
    },
    "$defs": {"Unit": {"type": "object", "properties": {"node": {"type": "string"}}, "required": ["node"]}},
}


def changed(*changes: tuple[str, Any]) -> list[str]:
    """Return what breaks when the things at these paths are what they are here."""
    new = copy.deepcopy(RELEASED)
    for path, value in changes:
        *way, last = path.split("/")
        place = reduce(lambda node, step: node[step], way, new)
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    return [str(change) for change in diff_schemas({"x.v1": RELEASED}, {"x.v1": new})]


def test_the_same_fact_breaks_nothing():
    assert changed() == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("properties/extra", {"type": "string"}),
        ("properties/name/maxLength", 20),
        ("properties/name/maxLength", GONE),
        ("properties/count/minimum", 0),
        ("properties/count/maximum", 11),
        ("properties/count/type", "number"),
        ("properties/kind/enum", ["a", "b", "c"]),
        ("properties/kind/enum", GONE),
        ("properties/units/minItems", GONE),
        ("properties/note", {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ("properties/labels/additionalProperties", {}),
        ("$defs/Unit/properties/rack", {"type": "string"}),
    ],
)
def test_what_only_adds_or_widens_is_lawful(path, value):
    assert changed((path, value)) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("properties/note", GONE, "x.v1 .note: the field is gone or has another name"),
        ("required", ["count", "kind", "name", "note", "units"], "x.v1 .note: is required: old records lack it"),
        ("required", ["count", "kind", "name"], "x.v1 .units: is no longer always there"),
        ("properties/name/maxLength", 9, "x.v1 .name: maxLength is 9, was 10"),
        ("properties/name/minLength", 1, "x.v1 .name: minLength is 1, was free"),
        ("properties/name/pattern", "^a", "x.v1 .name: pattern is ^a, was free"),
        ("properties/name/enum", ["a"], "x.v1 .name: no longer takes everything else"),
        ("properties/count/minimum", 2, "x.v1 .count: minimum is 2, was 1"),
        ("properties/count/maximum", 9, "x.v1 .count: maximum is 9, was 10"),
        ("properties/count/type", "string", "x.v1 .count: was integer, is string"),
        ("properties/kind/enum", ["b", "c"], "x.v1 .kind: no longer takes a"),
        ("properties/units/minItems", 2, "x.v1 .units: minItems is 2, was 1"),
        ("properties/units/type", "object", "x.v1 .units: was array, is object"),
        ("$defs/Unit/properties/node/const", "n-1", "x.v1 .units[].node: const is n-1, was free"),
        ("$defs/Unit/properties/node", GONE, "x.v1 .units[].node: the field is gone or has another name"),
        ("properties/labels/additionalProperties/type", "string", "x.v1 .labels{}: was integer, is string"),
        ("properties/labels/patternProperties", {"^a": {}}, "x.v1 .labels: names must match ^a"),
        ("properties/free/type", "integer", "x.v1 .free: was anything, is integer"),
    ],
)
def test_what_narrows_or_takes_away_is_named(path, value, said):
    assert changed((path, value)) == [said]


def test_a_new_field_that_is_required_is_named():
    extra = ("properties/extra", {"type": "string"})
    required = ("required", [*RELEASED["required"], "extra"])
    assert changed(extra, required) == ["x.v1 .extra: is required: old records lack it"]


def test_a_fact_that_is_gone_is_named():
    assert [str(it) for it in diff_schemas({"x.v1": RELEASED}, {})] == ["x.v1 .: the fact is gone"]


def test_a_new_fact_breaks_nothing():
    assert diff_schemas({}, {"x.v1": RELEASED}) == []


def test_a_choice_that_lost_an_option_is_named():
    old, new = {"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"type": "string"}
    assert [str(it) for it in diff_schemas({"x.v1": old}, {"x.v1": new})] == ["x.v1 .: no longer takes integer"]
    assert diff_schemas({"x.v1": new}, {"x.v1": old}) == []
