"""What a route asks for beside its input: `Caller` (who), `Access` (what he may do here), `Page` (which part of all).

A route's line in `access.ACCESS` is bound to it when the app is made; roles come from the directory as the service of
the route knows it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, Query, Request

from qm_events.ids import PLATFORM
from qm_events.specs import Role
from qm_service.access import PLATFORM_ROLES, Rule
from qm_service.commands import Cause, Unavailable
from qm_service.directory import SUBJECTS, TENANTS, Grant, SubjectDoc, TenantDoc
from qm_service.faults import PERMIT
from qm_service.page import CURSOR_MAX_CHARS, LIMIT_DEFAULT, LIMIT_MAX, Window, window
from qm_service.problem import Forbidden, NotFound, ProblemError, Unauthenticated, ValidationFailed
from qm_service.runtime import Runtime
from qm_service.trace import TRACEPARENT

_KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?")
_ASK_THE_PLATFORM = "Only those who run the platform can do this, or give the role: ask an operator."
_NOTHING = (b"", b"{}", b"null")
"""Bodies that say nothing."""
_VERSION = re.compile(r'(?:W/)?"(\d{1,18})"|(\d{1,18})')


@dataclass(frozen=True, slots=True)
class Bound:
    """A route, tied to its line in the table and to the service that answers."""

    action: str
    """Method and path template, `POST /v1/orders/{order}/release`."""
    rule: Rule
    runtime: Runtime
    query: frozenset[str]
    """The query parameters that it knows."""
    bodied: bool = True
    """Whether it reads a body."""
    versioned: bool = True
    """Whether it compares `If-Match`: it declares `version-conflict`."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, and with which grants."""

    subject: str
    token_id: str | None
    grants: Sequence[Grant] = ()

    def roles(self, tenant: str, project: str | None = None) -> frozenset[Role]:
        """Return the roles held in a project (its tenant's included) or, without project, in the tenant as a whole."""
        return frozenset(role for at, part, role in self.grants if _counts(at, part, role, tenant, project))

    def roles_within(self, tenant: str) -> frozenset[Role]:
        """Return the roles held in the tenant or in any of its projects."""
        here = frozenset(role for at, _, role in self.grants if at == tenant)
        return here | self.roles(tenant)

    def may(self, roles: frozenset[Role], tenant: str, project: str | None = None) -> bool:
        """Tell whether one of `roles` is held there."""
        return not roles.isdisjoint(self.roles(tenant, project))


def _counts(at: str, part: str | None, role: Role, tenant: str, project: str | None) -> bool:
    if part is not None:
        return at == tenant and part == project
    return at == tenant or (at == PLATFORM and role in PLATFORM_ROLES)


@dataclass(frozen=True, slots=True)
class Permit:
    """What the caller may do on this route, and what a command of his carries."""

    bound: Bound
    caller: Principal
    if_match: int | None
    """The version in `If-Match`; None where any will do."""
    path: str
    key: str | None
    """The Idempotency-Key as sent."""
    request: str | None
    """Digest of query and body, where there is a key."""
    traceparent: str | None
    passed: list[str] = field(default_factory=list)
    """The tenants for which `check` has let the caller through."""

    def check(self, tenant: str = PLATFORM, project: str | None = None) -> None:
        """Raise NotFound where the caller holds no role there at all, Forbidden where he holds none of those needed."""
        held, known = self._held(tenant, project)
        if not held.isdisjoint(self.bound.rule.roles):
            self.passed.append(tenant)
            return
        error: ProblemError = NotFound()
        if known:
            needed = sorted(self.bound.rule.roles)
            error = Forbidden(
                f"{self.bound.action} needs one of the roles {', '.join(needed)}.",
                remedy=_ASK_THE_PLATFORM if self.bound.rule.roles <= PLATFORM_ROLES else "",
                needed_roles=needed,
            )
        # A stranger's attempt is audited on the platform: he shall not write into the trail of a tenant.
        error.denied = self.cause(tenant, project) if known else self.cause()
        raise error

    def _held(self, tenant: str, project: str | None) -> tuple[frozenset[Role], bool]:
        within = self.caller.roles_within(tenant)
        match self.bound.rule.scope:
            case "project":
                held = self.caller.roles(tenant, project)
                return held, bool(held)
            case "platform":
                return self.caller.roles(PLATFORM), tenant == PLATFORM or bool(within)
            case "tenant":
                return self.caller.roles(tenant), bool(within)
            case _:
                return within, bool(within)

    def reveals(self) -> bool:
        """Tell whether a reply may say what there is and what not: the caller was let through, or everyone may know."""
        return bool(self.passed) or self.bound.rule.scope in ("public", "self", "platform")

    def cause(self, tenant: str | None = None, project: str | None = None, correlation: str | None = None) -> Cause:
        """Return what `Runtime.execute` notes with the facts of this call: who, by what, and the digests of a retry.

        An Idempotency-Key is unique in its tenant for one concrete path.
        """
        key = None if self.key is None else _digest(tenant or PLATFORM, self.bound.action, self.path, self.key)
        return Cause(
            actor=self.caller.subject,
            token=self.caller.token_id,
            tenant=tenant,
            project=project,
            correlation=correlation,
            idempotency=key,
            request=self.request,
            traceparent=self.traceparent,
            action=self.bound.action,
        )

    def tenants(self) -> list[str] | None:
        """Return the tenants in which the caller holds one of the route's roles, in whichever project; None = all."""
        if self._everywhere():
            return None
        return sorted({grant.tenant for grant in self.caller.grants if grant.role in self.bound.rule.roles})

    def scopes(self) -> list[str] | None:
        """Return each `tenant/project` where the caller holds one of the route's roles, for a filter; None = all."""
        if self._everywhere():
            return None
        docs = self.bound.runtime.context().docs.resident(TENANTS)
        wanted = (grant for grant in self.caller.grants if grant.role in self.bound.rule.roles)
        return sorted({f"{grant.tenant}/{project}" for grant in wanted for project in _projects(docs, grant)})

    def _everywhere(self) -> bool:
        return not (self.caller.roles(PLATFORM) & PLATFORM_ROLES).isdisjoint(self.bound.rule.roles)


def _projects(docs: Mapping[str, TenantDoc], grant: Grant) -> Sequence[str]:
    if grant.project is not None:
        return (grant.project,)
    doc = docs.get(grant.tenant)
    return tuple(doc.projects) if doc else ()


def bound(request: Request) -> Bound:
    """Return what `create_app` bound to the route that was matched."""
    found: Bound = request.app.state.bound[id(request.scope["route"])]
    return found


async def principal(request: Request) -> Principal:
    """Return who calls. Raises Unauthenticated, or ServiceUnavailable while the issuer's keys cannot be had."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("The request carries no bearer token.")
    verified = await request.app.state.tokens.verify(token.strip())
    doc = await _subject(bound(request).runtime, verified.subject)
    return Principal(verified.subject, verified.token_id, doc.grants if doc else ())


async def _subject(runtime: Runtime, subject: str) -> SubjectDoc | None:
    found: SubjectDoc | None
    try:
        found = runtime.context().docs.resident(SUBJECTS).get(subject)
    except Unavailable:
        # Not the writer: a stand-by still answers queries.
        found = await runtime.docs.get(SUBJECTS, subject)
    return found


async def permit(request: Request) -> Permit:
    """Return the permit of this call; on a route of scope `platform` it is checked already."""
    _known_query(request)
    await _known_body(request)
    key = _idempotency_key(request)
    found = Permit(
        bound=bound(request),
        caller=await principal(request),
        if_match=_if_match(request),
        path=request.scope["path"],
        key=key,
        request=None if key is None else _digest(request.scope["query_string"], await request.body()),
        traceparent=request.scope.get(TRACEPARENT),
    )
    request.scope[PERMIT] = found
    if found.bound.rule.scope == "platform":
        found.check()
    return found


def requested_page(
    request: Request,
    after: Annotated[str | None, Query(max_length=CURSOR_MAX_CHARS, description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
) -> Window:
    """Return the part of the list that is asked for."""
    return window(bound(request).action, after, limit)


def etag(version: int) -> str:
    """Return the ETag of a version, as `If-Match` takes it."""
    return f'"{version}"'


def _known_query(request: Request) -> None:
    if not request.scope["query_string"]:
        return
    known = bound(request).query
    for name in request.query_params:
        if name not in known:
            remedy = f"This path knows: {', '.join(sorted(known))}." if known else "This path takes no parameters."
            raise ValidationFailed(f"There is no query parameter {name!r}.", field=name, remedy=remedy)


async def _known_body(request: Request) -> None:
    if not bound(request).bodied and (await request.body()).strip() not in _NOTHING:
        raise ValidationFailed("This path takes no body.", field="body", remedy="Send the request without a body.")


def _if_match(request: Request) -> int | None:
    header = request.headers.get("if-match", "*").strip()
    if header == "*":
        return None
    if not bound(request).versioned:
        remedy = "Leave If-Match out: there is no version here that it could be compared with."
        raise ValidationFailed("This path does not take If-Match.", field="If-Match", remedy=remedy)
    match = _VERSION.fullmatch(header)
    if match is None:
        raise ValidationFailed("If-Match is not a version.", field="If-Match", remedy="Send the ETag as it was given.")
    return int(match[1] or match[2])


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None or _KEY.fullmatch(key):
        return key
    raise ValidationFailed("The Idempotency-Key must be 1 to 200 printable ASCII characters.", field="Idempotency-Key")


def _digest(*parts: str | bytes) -> str:
    return sha256(b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)).hexdigest()


Caller = Annotated[Principal, Depends(principal)]
Access = Annotated[Permit, Depends(permit)]
Page = Annotated[Window, Depends(requested_page)]
