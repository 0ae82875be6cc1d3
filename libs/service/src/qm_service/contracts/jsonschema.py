"""JSON Schema of a fact, as it lies on its topic: the structured CloudEvent, envelope and data."""

from collections.abc import Callable, Mapping
from typing import Any

from qm_events import Event, EventData
from qm_events.registry import TOPICS

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_MAPS = ("properties", "patternProperties", "$defs")
_SINGLE = ("items", "propertyNames", "additionalProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


def fact_schema(cls: type[EventData]) -> Schema:
    """Return the schema of one fact. A reader must ignore members that it does not know: later releases add some."""
    schema = published(Event[cls].model_json_schema(mode="serialization"))  # type: ignore[valid-type]  # by wire name
    properties = schema["properties"]
    properties["specversion"] = {"const": "1.0"}
    properties["type"] = {"const": cls.wire_type}
    properties["source"] = {"const": f"/quartermaster/{TOPICS[cls.topic].owner}"}
    head = {"$schema": DIALECT, "$id": f"{cls.wire_type}.schema.json", "title": cls.wire_type}
    required = sorted({*schema["required"], "specversion", "datacontenttype"})
    return {**head, "description": _summary(cls), **schema, "required": required}


def published(schema: Schema) -> Schema:
    """Return what a schema of pydantic says on the wire.

    A member that may be None is left out instead, so none may be null; titles only repeat the names; objects are open.
    """
    return _walk(schema, _on_the_wire)


def _walk(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    walked = dict(schema)
    for key in _MAPS:
        if key in walked:
            walked[key] = {name: _walk(part, change) for name, part in sorted(walked[key].items())}
    for key in _SINGLE:
        if isinstance(walked.get(key), dict):
            walked[key] = _walk(walked[key], change)
    for key in _LISTS:
        if key in walked:
            walked[key] = [_walk(part, change) for part in walked[key]]
    return change(walked)


def _on_the_wire(schema: Schema) -> Schema:
    told = {key: value for key, value in schema.items() if key != "title"}
    if told.get("additionalProperties") is False:
        del told["additionalProperties"]
    if "description" in told:
        told["description"] = " ".join(told["description"].split())
    if "required" in told:
        told["required"] = sorted(told["required"])
    if told.get("default", ...) is None:
        del told["default"]
    some = [option for option in told.pop("anyOf", ()) if option != {"type": "null"}]
    if len(some) == 1:
        return {**some[0], **told}
    return {**told, "anyOf": some} if some else told


def _summary(cls: type[EventData]) -> str:
    return " ".join((cls.__doc__ or "").split())


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a `$ref` into `root` stands for; another schema is returned as it is."""
    while "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = {**root["$defs"][name], **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema
