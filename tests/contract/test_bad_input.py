"""All that a caller can get wrong, over the real app: a 4xx problem that names the field, and nothing changed."""

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec

from qm_service.clock import WallClock
from qm_service.page import Window
from qm_service.problem import PROBLEM_JSON
from tests.support.inside import ORDER, URL, Inside, inside

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "x" * 5_000
INSTANTS = ("2020-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59")
NO_TIMES = ("2027-01-01T00:00:00", "2027-13-01T00:00:00Z", "2027-01-01", "tomorrow", "", 1_800_000_000, True, [], None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    """The sample world, a retired specification, and a deprecated one."""
    async with inside(tmp_path_factory.mktemp("product")) as found:
        for name, status in (("old", "retired"), ("fading", "deprecated")):
            sizes = {"cards_per_unit": 1, "accelerator_memory_mib": 1, "cpu_milli": 1, "memory_mib": 1}
            await found.done("operator", "POST", "/specifications", {"name": name, "accelerators": ["a100"], **sizes})
            await found.done("operator", "POST", f"/specifications/{name}/status", {"status": status})
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def order(site: Inside) -> str:
    """An order of alice that is in use."""
    order = await site.order()
    await site.settle()
    return order


def told(reply: httpx.Response, status: int | None = None) -> dict[str, Any]:
    """Return the problem, which must be one: of the caller's making, with a code and a remedy."""
    assert 400 <= reply.status_code < 500, f"{reply.status_code} {reply.text}"
    assert status in (None, reply.status_code), reply.text
    assert reply.headers["content-type"] == PROBLEM_JSON
    body: dict[str, Any] = reply.json()
    assert all(body[name] for name in ("code", "title", "detail", "remedy", "instance")), body
    assert reply.headers["x-request-id"] == body["correlation_id"]
    return body


# ---- orders

FIELDS: list[tuple[str, Any, str]] = [
    *[("count", bad, "count") for bad in (0, -1, 10_001, 2**62, 1.0, 1.5, True, "1", None, [], {})],
    *[("priority", bad, "priority") for bad in (-1_001, 1_001, 0.5, True, "0")],
    *[("preemptible", bad, "preemptible") for bad in ("yes", 1, None)],
    *[
        ("duration", bad, "duration")
        for bad in ("P0D", "P9999Y", "P1M", "PT", "P", "8h", "-P1D", "PT0.5S", 3600, "P٣D")
    ],
    *[("expires_at", bad, "expires_at") for bad in (*INSTANTS, *NO_TIMES) if bad is not None],
    *[("project", bad, "project") for bad in ("", "a b", "a/b/c", "Acme/vision", LONG, 5, None)],
    *[("specification", bad, "specification") for bad in ("none-such", "old", "A100", "", 1)],
    *[("image", bad, "image") for bad in ("none-such", "pytorch", "-", 1)],
    *[("model", bad, "model") for bad in ("none-such", "llama-small")],
    *[("service_model", bad, "service_model") for bad in ("slurm", "kubernetes ", "bare_metal", None)],
    *[("parameters", bad, "parameters") for bad in ([], "x", {"a": "x" * 20_000})],
    *[("labels", bad, "labels") for bad in ([], {"Upper": "x"}, {"a": 1}, {f"l{i}": "" for i in range(65)})],
    *[
        ("ssh_keys", bad, "ssh_keys")
        for bad in (["no key"], ["ssh-rsa AAAA\nssh-rsa BBBB"], "ssh-rsa AAAA", ["x"] * 33)
    ],
    *[("topology", bad, "topology") for bad in ({"within": "moon"}, {}, {"within": "rack", "required": 1}, "rack")],
    ("colour", "blue", "colour"),
]


async def refused_order(site: Inside, body: Any, field: str) -> dict[str, Any]:
    before = await site.ends()
    problem = told(await site.call("alice", "POST", "/orders", body), 422)
    assert str(problem.get("field", "")).startswith(field), problem
    assert await site.ends() == before
    return problem


@pytest.mark.parametrize(("name", "value", "field"), FIELDS)
async def test_a_bad_field_is_named(site: Inside, name: str, value: Any, field: str) -> None:
    await refused_order(site, {**ORDER, name: value}, field)


async def test_two_ends_are_one_too_many(site: Inside) -> None:
    await refused_order(site, {**ORDER, "duration": "PT1H", "expires_at": "2026-02-01T00:00:00Z"}, "")


async def test_serving_needs_a_model(site: Inside) -> None:
    await refused_order(site, {**ORDER, "specification": "npu-1", "service_model": "maas"}, "model")


async def test_what_no_quota_could_hold_is_no_order(site: Inside) -> None:
    sizes = {"cards_per_unit": 100_000, "accelerator_memory_mib": 10**12, "cpu_milli": 10**9, "memory_mib": 10**12}
    await site.done("operator", "POST", "/specifications", {"name": "vast", "accelerators": ["a100"], **sizes})
    await refused_order(site, {**ORDER, "specification": "vast", "count": 10_000}, "count")


async def test_a_deprecated_specification_is_delivered_with_a_warning(site: Inside) -> None:
    quote = await site.done("alice", "POST", "/orders:simulate", {**ORDER, "specification": "fading"})
    assert quote["warnings"]


@pytest.mark.parametrize("project", ["agents", "globex/agents", "none-such", "acme/none-such", "platform/x", "speech"])
async def test_a_project_that_is_not_the_callers_does_not_exist(site: Inside, project: str) -> None:
    before = await site.ends()
    foreign = told(await site.call("alice", "POST", "/orders", {**ORDER, "project": project}), 404)
    unknown = told(await site.call("alice", "POST", "/orders", {**ORDER, "project": "nowhere/at-all"}), 404)
    same = {"correlation_id": ""}
    assert foreign | same == unknown | same
    ends = await site.ends()
    grown = {place[0] for place, end in ends.items() if end != before.get(place, 0)}
    assert grown <= {"directory", "orders"}  # the audit of the attempts, and no order
    assert not (await site.done("operator", "GET", "/orders", params={"phase": "submitted"}))["items"]


@pytest.mark.parametrize("at", [*INSTANTS, *NO_TIMES])
async def test_an_end_that_cannot_be_is_no_extension(site: Inside, order: str, at: Any) -> None:
    before = (await site.record(order))["version"]
    problem = told(await site.call("alice", "POST", f"/orders/{order}/extend", {"expires_at": at}), 422)
    assert problem["field"] == "expires_at"
    assert (await site.record(order))["version"] == before


# ---- bodies, on every route that changes something

BODIES: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 422),
    "null": (b"null", 422),
    "an array": (b"[1]", 422),
    "a string": (b'"x"', 422),
    "a number": (b"5", 422),
    "cut off": (b'{"project": ', 422),
    "unknown field": (b'{"no_such_field": 1}', 422),
    "NaN": (b'{"count": NaN}', 422),
    "Infinity": (b'{"count": -Infinity}', 422),
    "1e400": (b'{"count": 1e400}', 422),
    "10^400": (b'{"count": 1' + b"0" * 400 + b"}", 422),
    "10^5000": (b'{"count": 1' + b"0" * 5_000 + b"}", 422),
    "65 bits": (b'{"count": 9223372036854775808}', 422),
    "lone surrogate": (b'{"project": "\\ud800"}', 422),
    "NUL": (b'{"project": "a\\u0000b"}', 422),
    "NUL in a name": (b'{"a\\u0000": 1}', 422),
    "invalid UTF-8": (b'{"project": "\xff\xfe"}', 422),
    "byte order mark": (b"\xef\xbb\xbf{}", 422),
    "UTF-16": ('{"project": "x"}'.encode("utf-16"), 422),
    "deep": (b'{"a":' * 40 + b"1" + b"}" * 40, 422),
    "very deep": (b"[" * 100_000, 422),
    "a name twice": (b'{"project": "a", "pr\\u006fject": "b"}', 422),
    "2 MiB": (b" " * (2 << 20), 413),
}


async def _values(site: Inside, order: str) -> dict[str, str]:
    values = {"tenant": "acme", "project": "acme.vision", "name": "a100-1", "subject": "zoe", "group": "board"}
    values |= {"approval": "none", "quota_request": "none", "node": "gpu-1", "card": "gpu-1-c1", "service_model": "vm"}
    return values | {"order": order, "period": "acme.2026-06"}


async def _calls(site: Inside, order: str, *methods: str) -> list[tuple[str, str, str]]:
    values = await _values(site, order)
    lines = [line.action.partition(" ") for line in site.product.app.state.bound.values()]
    found = [(method, path, path.removeprefix("/v1").format_map(values)) for method, _, path in lines]
    return [call for call in found if call[0] in methods]


MAY_BE_EMPTY = ("cancel", "release", "approve", "deny", "uncordon", "clear", "close", "members", "sim/clock")
"""Routes whose body may be left out, or that have none."""


@pytest.mark.parametrize("kind", BODIES)
async def test_a_bad_body_is_refused_on_every_route(site: Inside, order: str, kind: str) -> None:
    content, status = BODIES[kind]
    before = await site.ends()
    for method, template, path in await _calls(site, order, "POST", "PUT", "DELETE"):
        if kind in ("empty", "null") and template.endswith(MAY_BE_EMPTY):
            continue
        headers = {"content-type": "application/json"}
        problem = told(await site.call("operator", method, path, headers=headers, content=content))
        assert problem["status"] in (status, 404, 403), (template, problem)
    assert await site.ends() == before or kind in ("empty", "null")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
async def test_a_body_that_is_not_declared_as_json_is_not_read(site: Inside, order: str, kind: str) -> None:
    before = await site.ends()
    for method, _, path in await _calls(site, order, "POST", "PUT", "DELETE"):
        told(await site.call("operator", method, path, headers={"content-type": kind}, content=b"{}"), 415)
    assert await site.ends() == before


@pytest.mark.parametrize("length", ["9" * 5_000, "99999999999999999999", "-1", "1e3", " "])
async def test_a_length_that_cannot_be_is_refused(site: Inside, length: str) -> None:
    headers = {"content-type": "application/json", "content-length": length}
    told(await site.call("alice", "POST", "/orders", headers=headers, content=b"{}"))


# ---- paths and queries

NAMES = [
    "a%20b",
    "%ff",
    "%ed%a0%80",
    "%F0%9F%98%80",
    "%0a",
    "%25",
    "'; drop table events--",
    "{}",
    LONG,
    "%00",
    "a%2fb",
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_nothing_has_is_not_found_on_every_route(site: Inside, order: str, name: str) -> None:
    values = dict.fromkeys(await _values(site, order), name)
    before = await site.ends()
    for line in site.product.app.state.bound.values():
        method, _, template = line.action.partition(" ")
        if "{" in template and not template.startswith("/v1/sim/backends"):
            path = template.removeprefix("/v1").format_map(values)
            body = None if method == "GET" else {}
            problem = told(await site.call("operator", method, path, body))
            assert problem["status"] in (404, 405, 422), (line.action, problem)
    assert await site.ends() == before


QUERIES = ["limit=0", "limit=501", "limit=abc", "limit=-1", "limit=1.5", "limit=", "after=xyz", "after=", "after=%ff"]
QUERIES += [f"limit={10**30}", "after=AAAAAAAAAAAAAAAA", f"after={'A' * 3_000}", "no_such=1", "after=%00"]


@pytest.mark.parametrize("query", QUERIES)
async def test_a_bad_page_is_refused_on_every_list(site: Inside, order: str, query: str) -> None:
    for line in site.product.app.state.bound.values():
        if "after" in line.query:
            path = line.action.partition(" ")[2].removeprefix("/v1").format_map(await _values(site, order))
            problem = told(await site.call("operator", "GET", f"{path}?{query}"), 422)
            assert "%00" in query or problem["field"] == query.partition("=")[0]


ROWS: list[tuple[Any, ...]] = [
    (),
    (1,),
    ("a",),
    ("a", "b"),
    ("a", "b", "c"),
    ("\0",),
    (None,),
    (2**63,),
    (True,),
    ([],),
]
ROWS += [([5],), (["x"],), (["2026-01-01T00:00:00"], "x"), (0, ["2026-01-01T00:00:00"], "x"), ({},)]
ROWS += [(n,) * places for n in (-1, 2**62, 2**64 - 1) for places in (5, 96, 108)]


async def test_a_cursor_of_somebodys_own_making_is_no_fault_of_ours(site: Inside, order: str) -> None:
    for line in site.product.app.state.bound.values():
        if "after" not in line.query:
            continue
        path = line.action.partition(" ")[2].removeprefix("/v1").format_map(await _values(site, order))
        for row in ROWS:
            after = Window(None, 1, line.action).cursor(row)
            reply = await site.call("operator", "GET", path, params={"after": after})
            assert reply.is_success or told(reply, 422)["field"] == "after", (line.action, row)


@pytest.mark.parametrize("query", ["from=x", "to=1", "from=2027-01-01T00:00:00", "group_by=order,order", "group_by=x"])
async def test_a_window_of_usage_that_cannot_be_is_refused(site: Inside, query: str) -> None:
    assert told(await site.call("operator", "GET", f"/usage?{query}"), 422)["field"] == query.partition("=")[0]


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PATCH", "BREW"])
async def test_other_methods_are_not_known(site: Inside, method: str) -> None:
    reply = await site.call("operator", method, "/orders")
    assert reply.status_code == 405
    assert reply.headers["allow"] == "GET, POST"
    assert method == "HEAD" or told(reply)["code"] == "method-not-allowed"


# ---- headers

VERSIONS = ['"', '"x"', "-1", "1.5", "W/1", '"1", "2"', '"' + "9" * 30 + '"', "", "\xb2"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_version_that_is_none_is_refused(site: Inside, order: str, version: str) -> None:
    before = await site.ends()
    headers = {"If-Match": version.encode("latin-1")}
    reply = await site.call("alice", "POST", f"/orders/{order}/cancel", {}, headers=headers)  # type: ignore[arg-type] # bytes are lawful here
    assert told(reply, 422)["field"] == "If-Match"
    assert await site.ends() == before


async def test_a_version_is_compared_or_refused_never_ignored(site: Inside, order: str) -> None:
    versioned = {line.action for line in site.product.app.state.bound.values() if line.versioned}
    assert "POST /v1/orders/{order}/cancel" in versioned
    for method, template, path in await _calls(site, order, "POST", "PUT", "DELETE"):
        if f"{method} {template}" not in versioned and template != "/v1/sim/token":
            reply = await site.call("operator", method, path, {}, headers={"If-Match": '"99999"'})
            assert told(reply, 422)["field"] == "If-Match", template
    late = await site.call("alice", "POST", f"/orders/{order}/cancel", {}, headers={"If-Match": '"99999"'})
    assert told(late, 409)["code"] == "version-conflict"


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "\x80", "\xff\xfe"])
async def test_a_key_that_is_none_is_refused(site: Inside, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("latin-1")}
    reply = await site.call("alice", "POST", "/orders", ORDER, headers=headers)  # type: ignore[arg-type] # bytes are lawful here
    assert told(reply, 422)["field"] == "Idempotency-Key"


async def test_a_key_makes_one_order_however_often_and_at_once(site: Inside) -> None:
    headers = {"Idempotency-Key": "one"}
    body = {**ORDER, "specification": "npu-1", "service_model": "maas", "model": "llama-small"}
    before = sum((await site.ends()).values())
    replies = await asyncio.gather(*(site.call("alice", "POST", "/orders", body, headers) for _ in range(20)))
    (order,) = {reply.json()["id"] for reply in replies}
    again = await site.call("alice", "POST", "/orders", body, headers)
    assert again.status_code == 202
    assert again.json()["id"] == order
    assert sum((await site.ends()).values()) > before
    facts = (await site.done("operator", "GET", f"/orders/{order}/events"))["items"]
    assert [fact["type"] for fact in facts].count("order.submitted.v1") == 1
    other = await site.call("alice", "POST", "/orders", {**body, "priority": 1}, headers)
    assert told(other, 422)["code"] == "idempotency-key-reused"
    mixed = await asyncio.gather(
        *(
            site.call("alice", "POST", "/orders", {**body, "priority": n % 2}, {"Idempotency-Key": "two"})
            for n in range(10)
        )
    )
    assert sorted(reply.status_code for reply in mixed) == [202] * 5 + [422] * 5
    for made in {order, *(reply.json()["id"] for reply in mixed if reply.status_code == 202)}:
        await site.done("alice", "POST", f"/orders/{made}/release", {})


# ---- observations

SEEN = {"card": "npu-1-c0", "source": "fuzz", "status": "healthy", "observed_at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("at", [*INSTANTS[1:], *NO_TIMES])
async def test_nothing_is_observed_at_a_time_that_cannot_be(site: Inside, at: Any) -> None:
    before = await site.ends()
    problem = told(await site.call("operator", "POST", "/fleet/health", [{**SEEN, "observed_at": at}]), 422)
    assert problem["field"].endswith("observed_at")
    assert await site.ends() == before


@pytest.mark.parametrize("bad", [{"status": "ill"}, {"card": None}, {"source": ""}, {"x": 1}, {"code": "x" * 501}])
async def test_a_bad_observation_is_named_by_its_place(site: Inside, bad: Mapping[str, Any]) -> None:
    problem = told(await site.call("operator", "POST", "/fleet/health", [SEEN, {**SEEN, **bad}]), 422)
    assert problem["field"].startswith("observations.1")


@pytest.mark.parametrize(
    "move", [{"now": at} for at in (*INSTANTS, *NO_TIMES[:-1])] + [{"advance": "-PT1S"}, {"advance": "x"}]
)
async def test_the_clock_goes_nowhere_it_cannot_be(site: Inside, move: Mapping[str, Any]) -> None:
    told(await site.call("operator", "POST", "/sim/clock", move))


# ---- tokens


def _claims(**other: Any) -> dict[str, Any]:
    now = int(WallClock().now().timestamp())
    found = {"iss": URL, "aud": "quartermaster", "sub": "operator", "iat": now, "exp": now + 600, **other}
    return {name: value for name, value in found.items() if value is not None}


def _signed_by_the_public_key(jwk: Mapping[str, str]) -> str:
    """Return a token with the mistake of RS/HS confusion: the public key taken for a shared secret."""
    head = _part({"alg": "HS256", "typ": "JWT", "kid": jwk["kid"]}) + "." + _part(_claims())
    mac = hmac.new(json.dumps(jwk).encode(), head.encode(), sha256).digest()
    return head + "." + base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_no_token_but_a_good_one_lets_anybody_in(site: Inside) -> None:
    issuer = site.product.issuer
    (jwk,) = issuer.jwks()["keys"]
    sign = {"algorithm": "ES256", "headers": {"kid": jwk["kid"]}}
    own, foreign = issuer._key, ec.generate_private_key(ec.SECP256R1())
    now = int(WallClock().now().timestamp())
    wrong = [
        {"aud": "another"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"sub": "a\nb"},
        {"iss": "http://other"},
    ]
    wrong += [{"exp": now - 3_600}, {"exp": None}, {"exp": "soon"}, {"exp": True}, {"nbf": now + 3_600}, {"nbf": "x"}]
    tokens = [jwt.encode(_claims(**other), own, **sign) for other in wrong if other.get("sub") != 5]
    tokens += [issuer.mint("operator", timedelta(hours=-1))]
    tokens += [jwt.encode(_claims(), foreign, **sign), jwt.encode(_claims(), own, "ES256", {"kid": "unknown"})]
    tokens += [f"{_part({'alg': 'none', 'kid': jwk['kid']})}.{_part(_claims())}.", _signed_by_the_public_key(jwk)]
    good = issuer.mint("operator")
    tokens += [good[:-4], good + "A", good.replace(".", ".."), good.rpartition(".")[0], "x", "a.b.c", "...", LONG * 10]
    tokens += [f"{_part({'alg': 'ES256', 'kid': 5})}.{_part(_claims())}.AAAA", f"{_part({'alg': ['ES256']})}.e30.AAAA"]
    for token in tokens:
        reply = await site.client.get("/v1/orders", headers={"Authorization": f"Bearer {token}"})
        assert told(reply, 401)["code"] == "unauthenticated", token[:200]
        assert reply.headers["www-authenticate"].startswith("Bearer ")
    for header in (None, "", "Bearer", "Bearer ", f"Basic {good}", good, "Bearer \xff\xfe"):
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        reply = await site.client.get("/v1/orders", headers=headers)  # type: ignore[arg-type] # bytes are lawful here
        assert told(reply, 401)["code"] == "unauthenticated"
        assert "www-authenticate" in reply.headers
    assert (await site.client.get("/v1/orders", headers={"Authorization": f"bearer {good}"})).status_code == 200


@pytest.mark.parametrize(
    "body", [{"subject": "nobody"}, {"subject": ""}, {"subject": "a\ud7ff"}, {"subject": "ada", "seconds": 0}]
)
async def test_a_token_is_for_somebody_for_some_time(site: Inside, body: Mapping[str, Any]) -> None:
    told(await site.client.post("/v1/sim/token", json=body))


async def test_nothing_of_this_has_stopped_the_product(site: Inside, tmp_path: Path) -> None:
    await site.settle()
    ready = (await site.client.get("/readyz")).json()
    assert ready["ready"], ready
    assert all(not one["parked"] and not one["halted"] for one in ready["services"].values()), ready
