"""Errors as RFC 9457 problems: one class a code, in `PROBLEMS`; a code is never changed never used again.

The body is `{type, title, status, detail, code, remedy, instance, correlation_id}` and, where they apply, `field`,
`violations[]` and members of the class's own. The detail says what happened, the remedy what the reader can do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from qm_events.specs import Violation
from qm_service.commands import Cause
from qm_service.model import Rejected

PROBLEM_JSON = "application/problem+json"

PROBLEMS: dict[str, type["ProblemError"]] = {}
"""Every problem of this process by its code."""


class ProblemError(Exception):
    """Base of all problems. A subclass gives `code`, `status`, `title` and a `remedy` that an instance may better."""

    code: ClassVar[str] = ""
    status: ClassVar[int] = 500
    title: ClassVar[str] = ""
    remedy: str = ""
    field: str | None = None
    """The input at fault, where it is always the same."""

    def __init_subclass__(cls) -> None:
        """Register the class; ValueError where its code is taken or something is missing."""
        if not (cls.code and cls.title and cls.remedy):
            raise ValueError(f"{cls.__qualname__} needs a code, a title and a remedy")
        if cls.code in PROBLEMS:
            raise ValueError(f"{cls.code} is declared twice: {PROBLEMS[cls.code].__qualname__} and {cls.__qualname__}")
        PROBLEMS[cls.code] = cls

    def __init__(
        self,
        detail: str,
        *,
        field: str | None = None,
        violations: Sequence[Violation] = (),
        remedy: str = "",
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        """Tell what happened. `field` is the path of the input at fault; `extra` are further members of the body."""
        super().__init__(detail)
        self.detail = detail
        self.field = field or type(self).field
        self.violations = tuple(violations)
        self.remedy = remedy or type(self).remedy
        self.headers = dict(headers or {})
        self.extra = extra
        self.denied: Cause | None = None
        """Who was denied what by the access table, for the audit."""

    def body(self, instance: str, correlation_id: str) -> dict[str, Any]:
        """Return the members of the reply; `instance` is the path that was called."""
        body = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "remedy": self.remedy,
            "instance": instance,
            "correlation_id": correlation_id,
        }
        if self.field is not None:
            body["field"] = self.field
        if self.violations:
            body["violations"] = [violation.model_dump(mode="json") for violation in self.violations]
        return body | self.extra


class Problem(BaseModel):
    """The body of every error."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable; listed in contracts/problems.md")
    remedy: str = Field(description="What the reader can do")
    instance: str
    correlation_id: str = Field(description="Name it when you ask the operator")
    field: str | None = Field(default=None, description="The input at fault")
    violations: list[Violation] | None = Field(default=None, description="Every limit in the way")


class ValidationFailed(ProblemError):
    """The input does not have the form that the contract asks for; `errors` lists every fault."""

    code, status, title = "validation-failed", 422, "The request is not valid"
    remedy = "Correct the fields that `errors` names and send the request again."


class MalformedJson(ProblemError):
    """The body is no JSON text that every reader understands alike."""

    code, status, title = "malformed-json", 422, "The body is not valid JSON"
    remedy = "Send one JSON document in UTF-8 without NaN, Infinity, repeated names or deep nesting."


class PayloadTooLarge(ProblemError):
    """The body is longer than any lawful one."""

    code, status, title = "payload-too-large", 413, "The body is too large"
    remedy = "Send less in one request."


class UnsupportedMediaType(ProblemError):
    """The body is declared as something other than JSON."""

    code, status, title = "unsupported-media-type", 415, "The body is not declared as JSON"
    remedy = "Send the header `Content-Type: application/json`."


class Unauthenticated(ProblemError):
    """No token, or one that does not hold."""

    code, status, title = "unauthenticated", 401, "A valid token is needed"
    remedy = "Send `Authorization: Bearer <token>` with a token of the configured issuer that has not expired."

    def __init__(self, detail: str, *, error: str | None = None) -> None:
        """`error` is the RFC 6750 code, None where no token was sent."""
        challenge = 'Bearer realm="quartermaster"' + (f', error="{error}"' if error else "")
        super().__init__(detail, headers={"WWW-Authenticate": challenge})


class Forbidden(ProblemError):
    """The caller may see the thing and may not do this to it."""

    code, status, title = "forbidden", 403, "Your roles do not allow this"
    remedy = "Ask an owner of the project or an admin of the tenant for one of the roles in `needed_roles`."


class NotFound(ProblemError):
    """There is no such thing, or the caller may not know of it; the two look alike on purpose.

    Before `access.check` has let the caller through, the reply is the same whatever is said here.
    """

    code, status, title = "not-found", 404, "There is no such thing"
    remedy = "Check the name, and that you have a role in its project."

    def __init__(
        self, detail: str = "There is no such thing, or you have no role in its project.", **more: Any
    ) -> None:
        super().__init__(detail, **more)


class MethodNotAllowed(ProblemError):
    """The path exists, the method does not; `Allow` lists those that do."""

    code, status, title = "method-not-allowed", 405, "The path does not know this method"
    remedy = "Use one of the methods in the header `Allow`."


class VersionConflict(ProblemError):
    """`If-Match` names another version than the current one."""

    code, status, title = "version-conflict", 409, "It was changed in the meantime"
    remedy = "Read it again, look at what changed and repeat the change with the new ETag."


class IdempotencyKeyReused(ProblemError):
    """The key was used before, for the same call with another body."""

    code, status, title = "idempotency-key-reused", 422, "The Idempotency-Key belongs to another request"
    remedy = "Use a new Idempotency-Key for a new request; repeat an old one with exactly the same body."


class RequestRefused(ProblemError):
    """The protocol itself was refused, with a status that has no code of its own."""

    code, status, title = "request-refused", 400, "The request cannot be served"
    remedy = "See the detail; the OpenAPI document describes what can be asked."


class ServiceUnavailable(ProblemError):
    """Something that the service needs is away for now. Nothing was changed, or the Idempotency-Key will tell."""

    code, status, title = "service-unavailable", 503, "The service cannot answer now"
    remedy = "Repeat the request with the same Idempotency-Key after the seconds in `Retry-After`."

    def __init__(self, detail: str, *, retry_after_seconds: int = 1) -> None:
        """`retry_after_seconds` becomes the header `Retry-After`."""
        super().__init__(detail, headers={"Retry-After": str(retry_after_seconds)})


class InternalError(ProblemError):
    """A fault of ours; the log of the service has it under the correlation id."""

    code, status, title = "internal-error", 500, "The service failed"
    remedy = "Repeat the request later; if it fails again, give the operator the correlation_id."


COMMON: tuple[type[ProblemError], ...] = (
    Unauthenticated,
    Forbidden,
    NotFound,
    PayloadTooLarge,
    UnsupportedMediaType,
    ValidationFailed,
    MalformedJson,
    InternalError,
    ServiceUnavailable,
)
"""What any route may answer."""


def refuse(rejected: Rejected) -> ProblemError:
    """Return the problem of a refused command. KeyError where no class has its code: a fault of the service."""
    cls = PROBLEMS[rejected.code]
    return cls(rejected.detail, remedy=rejected.remedy, violations=rejected.violations)


def problems(*classes: type[ProblemError]) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that may answer with `classes`, and with what any route may answer.

    Always has an entry for 422, without which FastAPI would document a body that is never sent.
    """
    by_status: dict[int | str, dict[str, Any]] = {}
    for cls in sorted({*COMMON, *classes}, key=lambda cls: (cls.status, cls.code)):
        reply = by_status.setdefault(cls.status, {"description": "", "content": {PROBLEM_JSON: dict(_SCHEMA)}})
        reply["description"] += ("; " if reply["description"] else "") + f"`{cls.code}`: {cls.title}"
    return by_status


_SCHEMA = {"schema": {"$ref": "#/components/schemas/Problem"}}
