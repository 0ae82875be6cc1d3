"""Every route of an app, called by every role, at home and abroad: what the access table says is what happens.

Runs over any app: give `sweep` a `Site` whose directory holds the `cast`. The expectation is worked out here from the
line of the table alone, not with the code that is tested.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from qm_events.ids import PLATFORM
from qm_events.specs import Role
from qm_service.access import PLATFORM_ROLES, Rule
from qm_service.caller import Bound
from qm_service.directory import Grant

HOME, ABROAD, PROJECT = "acme", "beta", "vision"
"""The tenant and project that own everything the sweep asks for, and a tenant that owns nothing of it."""
LET_IN = "let in"


@dataclass(frozen=True)
class Ask:
    """What a call carries beside its path."""

    json: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    """Path parameters that differ from the site's."""


@dataclass(frozen=True)
class Site:
    """An app with something in it to ask for."""

    client: httpx.AsyncClient
    lines: Iterable[Bound]
    """`app.state.bound.values()`"""
    header: Callable[[str], Mapping[str, str]]
    """From a subject to the header with its token."""
    values: Mapping[str, str]
    """Path parameter -> something that exists in `HOME`/`PROJECT`."""
    asks: Mapping[str, Ask] = field(default_factory=dict)
    """Action -> what a lawful call carries; nothing where it is missing."""
    people: Mapping[str, Grant | None] = field(default_factory=lambda: cast())
    """Who calls, each with the one grant that the directory has for him."""
    secrets: Sequence[str] = ()
    """What a list may show to nobody from abroad."""


def cast() -> dict[str, Grant | None]:
    """Return the subjects of the sweep, each with its one grant."""
    places = {
        "project": (HOME, PROJECT),
        "tenant": (HOME, None),
        "abroad": (ABROAD, None),
        "platform": (PLATFORM, None),
    }
    people = {f"{name}-{role}": Grant(*place, role) for name, place in places.items() for role in Role}
    return {"nobody": None, **people}


def expected(rule: Rule, grant: Grant | None) -> int | str:
    """Return what the table promises to the holder of a grant: LET_IN, 403 or 404."""
    if rule.scope in ("public", "self"):
        return LET_IN
    if rule.scope == "platform":
        return LET_IN if grant and grant.tenant == PLATFORM and grant.role in rule.roles else 403
    everywhere = grant is not None and grant.tenant == PLATFORM and grant.role in PLATFORM_ROLES
    if grant is None or not (everywhere or grant.tenant == HOME):
        return 404
    too_narrow = rule.scope == "tenant" and grant.project is not None
    return LET_IN if grant.role in rule.roles and not too_narrow else 403


async def sweep(site: Site) -> list[str]:
    """Return every broken promise as a line of text; the calls that are let in come last, as they may change things."""
    faults = [fault for line in site.lines for fault in await _without_token(site, line)]
    faults += [fault for line in site.lines for fault in await _betrayed(site, line)]
    calls = [
        (line, subject, expected(line.rule, grant)) for line in site.lines for subject, grant in site.people.items()
    ]
    for line, subject, promise in sorted(calls, key=lambda call: call[2] == LET_IN):
        reply = await _call(site, line, site.header(subject))
        if not _kept(promise, reply):
            faults.append(f"{line.action} by {subject}: {reply.status_code}, not {promise}: {reply.text[:300]}")
        shown = reply.text if reply.is_success and subject.startswith(("abroad", "nobody")) else ""
        if any(secret in shown for secret in site.secrets):
            faults.append(f"{line.action} shows {subject} what is not his: {reply.text[:300]}")
    return faults


def _kept(promise: int | str, reply: httpx.Response) -> bool:
    if promise != LET_IN:
        return reply.status_code == promise
    # The rules behind the table may still say no, each with a code of its own.
    code = "" if reply.is_success else reply.json()["code"]
    return reply.status_code < 500 and code not in ("unauthenticated", "forbidden", "not-found")


async def _without_token(site: Site, line: Bound) -> list[str]:
    if line.rule.scope == "public":
        return []
    reply = await _call(site, line, {})
    return [] if reply.status_code == 401 else [f"{line.action} without a token: {reply.status_code}, not 401"]


async def _betrayed(site: Site, line: Bound) -> list[str]:
    """Compare what a stranger is told of a thing that exists with what he is told of one that does not."""
    if line.rule.scope not in ("project", "member", "tenant") or "{" not in line.action:
        return []
    header = site.header(f"abroad-{Role.TENANT_ADMIN}")
    replies = [await _call(site, line, header, values) for values in (site.values, _Missing())]
    told = [(reply.status_code, reply.json() | {"instance": "", "correlation_id": ""}) for reply in replies]
    return [] if told[0] == told[1] else [f"{line.action} betrays what exists: {told[0]} {told[1]}"]


class _Missing(dict[str, str]):
    """Names nothing that exists."""

    def __missing__(self, key: str) -> str:
        return "no-such-thing"


async def _call(
    site: Site, line: Bound, headers: Mapping[str, str], values: Mapping[str, str] | None = None
) -> httpx.Response:
    method, _, template = line.action.partition(" ")
    ask = site.asks.get(line.action, Ask())
    path = template.format_map({**site.values, **ask.values} if values is None else values)
    return await site.client.request(method, path, json=ask.json, params=dict(ask.query), headers=dict(headers))
