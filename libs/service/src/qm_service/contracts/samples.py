"""One lawful sample of a fact with every field filled in, the same on every machine: a seed of the golden corpus."""

import re
from datetime import UTC, datetime
from typing import Any

from qm_events import Event, EventData, new_event
from qm_events.registry import TOPICS
from qm_service.contracts.jsonschema import Schema, resolved

AT = datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_TEXTS = ("example", "EUR", "1/7", "sealed:v1:bm9uY2U:Y2lwaGVydGV4dA", "2026-06")


def sample_event(cls: type[EventData]) -> Event[Any]:
    """Return the sample of a fact in an envelope with every attribute."""
    schema = cls.model_json_schema()
    attributes = {name: name for name, field in Event.model_fields.items() if field.default is None}
    owner = TOPICS[cls.topic].owner
    data = cls.model_validate(_sample(schema, schema))
    return new_event("example/example", 1, AT, f"/quartermaster/{owner}", data, **attributes)


def _sample(schema: Any, root: Schema) -> Any:
    schema = resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _sample(schema["anyOf"][0], root)
    match schema.get("type"):
        case "object":
            return _object(schema, root)
        case "array":
            return [_sample(schema["items"], root)] * max(1, schema.get("minItems", 1))
        case "string":
            return _text(schema)
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
    return "example"


def _object(schema: Any, root: Schema) -> dict[str, Any]:
    values = (*schema.get("patternProperties", {}).values(), schema.get("additionalProperties"))
    free = next((value for value in values if isinstance(value, dict)), None)
    named = {name: _sample(part, root) for name, part in schema.get("properties", {}).items()}
    if named or schema.get("additionalProperties") is False:
        return named
    return {"example": _sample(free or {}, root)}


def _text(schema: Any) -> str:
    if schema.get("format") == "date-time":
        return AT.isoformat()
    return next(text for text in _TEXTS if re.search(schema.get("pattern", ""), text))
