"""The OpenAPI document: FastAPI's own, with what holds for all routes said once and truly."""

from collections.abc import Iterable, Mapping
from typing import Any

from qm_service.access import ACCESS
from qm_service.problem import Problem, ProblemError, VersionConflict

_REF = "#/components/schemas/{model}"
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same body acts once and is answered alike; with another body it is refused.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag that the change starts from; refused when it is not the current one.",
    "schema": {"type": "string", "pattern": '^(\\*|(W/)?"[0-9]{1,18}"|[0-9]{1,18})$'},
}
_HEADERS: Mapping[str, Iterable[Mapping[str, Any]]] = {
    "post": (_IDEMPOTENCY_KEY,),
    "put": (_IDEMPOTENCY_KEY,),
    "delete": (_IDEMPOTENCY_KEY,),
}
"""What a changing call may carry, by method; `If-Match` is for those that declare what happens when it fails."""


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Add the problem body, the bearer scheme, the common headers and each route's line of the access table."""
    components = document.setdefault("components", {})
    schema = Problem.model_json_schema(ref_template=_REF)
    components.setdefault("schemas", {}).update({**schema.pop("$defs", {}), "Problem": schema})
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}
    for path, operations in document.get("paths", {}).items():
        for method, operation in operations.items():
            _complete(operation, path, method)
    return document


def _complete(operation: dict[str, Any], path: str, method: str) -> None:
    rule = ACCESS[method.upper(), path]
    operation["security"] = [] if rule.scope == "public" else [{"bearer": []}]
    operation["x-access"] = {"scope": rule.scope, "roles": sorted(rule.roles)}
    if rule.scope != "public" and method in _HEADERS:
        versioned = declares(operation.get("responses", {}), VersionConflict)
        operation.setdefault("parameters", []).extend([*_HEADERS[method], *([_IF_MATCH] if versioned else [])])


def declares(responses: Mapping[Any, Mapping[str, Any]], cls: type[ProblemError]) -> bool:
    """Tell whether the `responses` of a route, made by `problems`, name a problem."""
    found = {str(status): reply for status, reply in responses.items()}.get(str(cls.status), {})
    return f"`{cls.code}`" in found.get("description", "")
