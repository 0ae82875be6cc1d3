"""From exceptions to problems: what may come out of a route, and what the caller is told."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from qm_service import problem
from qm_service.commands import Cause, IdempotencyMismatch, Refused, Unavailable, VersionConflict
from qm_service.database import DatabaseUnavailable
from qm_service.log import LogUnavailable
from qm_service.problem import PROBLEM_JSON, ProblemError

CORRELATION = "qm.correlation"
"""Where the ASGI scope holds the id of the call, which the reply names too."""
PERMIT = "qm.permit"
"""Where it holds the permit of the call, once there is one."""
_ERRORS_SHOWN = 50


def invalid(error: RequestValidationError) -> ProblemError:
    """Return which fields are at fault and why; what was sent is not repeated, it may be secret."""
    errors = [
        {"in": str(fault["loc"][0]), "field": _path(fault["loc"]), "detail": fault["msg"]} for fault in error.errors()
    ]
    first = errors[0]
    detail = f"{first['field'] or first['in']}: {first['detail']}"
    return problem.ValidationFailed(detail, field=first["field"], errors=errors[:_ERRORS_SHOWN])


def _path(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in loc[1:])


def protocol(error: HTTPException) -> ProblemError:
    """Return the problem of what the framework itself refuses."""
    if error.status_code == 404:
        return problem.NotFound("There is no such path.", remedy="See /openapi.json for the paths that there are.")
    if error.status_code == 405:
        return problem.MethodNotAllowed("The path does not know this method.", headers=error.headers)
    return problem.RequestRefused(str(error.detail))


def away(_: Exception) -> ProblemError:
    """Return the problem of a database or log that is down, or of a service that is not the writer now."""
    return problem.ServiceUnavailable(
        "The service cannot write now: its database is away, or another instance is taking over."
    )


FAULTS: Mapping[type[Exception], Callable[[Any], ProblemError]] = {
    ProblemError: lambda error: error,
    RequestValidationError: invalid,
    HTTPException: protocol,
    Refused: lambda error: problem.refuse(error.rejected),
    IdempotencyMismatch: lambda _: problem.IdempotencyKeyReused("This key came with another body before."),
    VersionConflict: lambda error: problem.VersionConflict(
        f"It is at version {error.actual}, not {error.expected}.", expected=error.expected, actual=error.actual
    ),
    Unavailable: away,
    DatabaseUnavailable: away,
    LogUnavailable: away,
}
"""Every exception that is not a fault of ours."""


def response(scope: Mapping[str, Any], error: ProblemError) -> Response:
    """Return the reply to a call that ends in a problem."""
    body = error.body(scope["path"], scope.get(CORRELATION, ""))
    return Response(orjson.dumps(body), error.status, error.headers, PROBLEM_JSON)


async def answer(request: Request, error: Exception) -> Response:
    """Handle an exception of a class in `FAULTS`."""
    translate = next(FAULTS[cls] for cls in type(error).__mro__ if cls in FAULTS)
    translated = translate(error)
    permit = request.scope.get(PERMIT)
    if isinstance(translated, problem.NotFound) and permit is not None and not permit.reveals():
        # Whatever the route said: to who has no role there, what is missing looks exactly like what is not his.
        translated, denied = problem.NotFound(), translated.denied
        translated.denied = denied
    if isinstance(translated, problem.MethodNotAllowed):
        translated.headers |= _allow(request)
    if translated.denied is not None and request.method != "GET":
        await _audit(request, translated, translated.denied)
    return response(request.scope, translated)


def _allow(request: Request) -> dict[str, str]:
    """Return the methods of all routes with this path; the framework names those of the first one only."""
    lines = request.app.state.bound
    found = lines.get(id(request.scope.get("route")))
    template = found.action.partition(" ")[2] if found else None
    methods = sorted(
        method for method, _, path in (line.action.partition(" ") for line in lines.values()) if path == template
    )
    return {"Allow": ", ".join(methods)} if methods else {}


async def _audit(request: Request, error: ProblemError, denied: Cause) -> None:
    runtime = request.app.state.bound[id(request.scope["route"])].runtime
    with suppress(Unavailable):  # the refusal stands, whether or not it can be written down
        await runtime.audit(denied, request.scope["path"], error.code)
