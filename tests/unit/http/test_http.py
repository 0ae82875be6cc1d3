"""What every app does with every call, whatever its routes are."""

import pytest
from fastapi import APIRouter

from qm_events.specs import Role
from qm_service.caller import Access
from qm_service.http import UnlistedRoute, create_app
from qm_service.problem import PROBLEM_JSON
from qm_service.service import Service
from tests.unit.http.sample import Stage

JSON = {"Content-Type": "application/json"}


async def test_an_order_is_taken_and_named_in_location_and_etag(stage: Stage) -> None:
    reply = await stage.submit("o1")
    assert reply.status_code == 202, reply.text
    assert reply.headers["Location"] == "/v1/orders/o1"
    assert reply.headers["ETag"] == '"1"'
    assert reply.json() == {"order": "o1", "scope": "acme/vision", "phase": "submitted"}


async def test_every_problem_names_its_code_its_remedy_and_the_call(stage: Stage) -> None:
    reply = await stage.client.get("/v1/nowhere", headers={"X-Request-Id": "call-7"})
    assert reply.status_code == 404
    assert reply.headers["Content-Type"] == PROBLEM_JSON
    body = reply.json()
    assert body["code"] == "not-found"
    assert body["type"] == "/problems/not-found"
    assert body["instance"] == "/v1/nowhere"
    assert body["correlation_id"] == reply.headers["X-Request-Id"] == "call-7"
    assert body["remedy"]


async def test_a_request_id_that_is_no_plain_word_is_replaced(stage: Stage) -> None:
    reply = await stage.client.get("/healthz", headers={"X-Request-Id": "a b\tc"})
    assert reply.headers["X-Request-Id"] != "a b\tc"


async def test_every_reply_carries_the_security_headers(stage: Stage) -> None:
    for reply in (await stage.client.get("/healthz"), await stage.client.get("/v1/nowhere")):
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]


async def test_a_wrong_method_is_told_which_are_right(stage: Stage) -> None:
    reply = await stage.client.delete("/v1/orders")
    assert reply.status_code == 405
    assert reply.json()["code"] == "method-not-allowed"
    assert reply.headers["Allow"] == "GET, POST"


NOT_MEANT = [
    (b"{", "malformed-json"),
    (b'{"order": NaN}', "malformed-json"),
    (b'{"order": "a", "count": Infinity}', "malformed-json"),
    (b'{"order": "a", "count": 1e999}', "malformed-json"),
    (b'{"order": "a", "order": "b"}', "malformed-json"),
    (b'{"order": "\\ud800"}', "malformed-json"),
    (b'{"order": "\xff"}', "malformed-json"),
    (b'{"order": "\\u0000"}', "malformed-json"),
    (b'{"order": 123456789012345678901234567890}', "malformed-json"),
    (b'{"order": ' + b"[" * 40 + b"]" * 40 + b"}", "malformed-json"),
    (b'{"order": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "malformed-json"),
    (b'{"order": "a", "surprise": 1}', "validation-failed"),
    (b'{"order": "a", "count": -1}', "validation-failed"),
    (b'{"order": "a", "count": 1.0}', "validation-failed"),
    (b'{"order": "a", "count": "1"}', "validation-failed"),
    (b'{"order": "a", "count": 9223372036854775807}', "validation-failed"),
    (b"[]", "validation-failed"),
    (b"null", "validation-failed"),
    (b"", "validation-failed"),
]


async def test_a_body_that_is_not_meant_is_refused(stage: Stage) -> None:
    for body, code in NOT_MEANT:
        reply = await stage.client.post("/v1/orders", content=body, headers=JSON | stage.token("dora"))
        assert (reply.status_code, reply.json()["code"]) == (422, code), body


async def test_a_fault_names_its_field_and_never_repeats_what_was_sent(stage: Stage) -> None:
    reply = await stage.submit("o1", count="s3cret")
    body = reply.json()
    assert body["field"] == "count"
    assert body["errors"] == [{"in": "body", "field": "count", "detail": "Input should be a valid integer"}]
    assert "s3cret" not in reply.text


async def test_a_body_beyond_a_mebibyte_is_refused_declared_or_not(stage: Stage) -> None:
    async def chunks():
        for _ in range(1_100):
            yield b" " * 1_024

    for content in (b" " * (1 << 20) + b"{}", chunks()):
        reply = await stage.client.post("/v1/orders", content=content, headers=JSON | stage.token("dora"))
        assert (reply.status_code, reply.json()["code"]) == (413, "payload-too-large")


async def test_a_body_that_is_not_declared_as_json_is_refused(stage: Stage) -> None:
    for declared in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
        headers = {"Content-Type": declared} | stage.token("dora")
        reply = await stage.client.post("/v1/orders", content=b'{"order": "a"}', headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (415, "unsupported-media-type"), declared


async def test_json_may_name_its_charset_and_its_flavour(stage: Stage) -> None:
    for order, declared in (("a", "application/json; charset=utf-8"), ("b", "application/merge-patch+json")):
        headers = {"Content-Type": declared} | stage.token("dora")
        body = b'{"order": "%s"}' % order.encode()
        assert (await stage.client.post("/v1/orders", content=body, headers=headers)).status_code == 202


async def test_an_unknown_query_parameter_is_refused_and_the_known_are_named(stage: Stage) -> None:
    reply = await stage.client.get("/v1/orders?limit=5&phaze=x", headers=stage.token("dora"))
    assert reply.status_code == 422
    assert reply.json()["field"] == "phaze"
    assert reply.json()["remedy"] == "This path knows: after, limit, phase."


async def test_a_nul_character_never_gets_in(stage: Stage) -> None:
    for target in ("/v1/orders/a%00b", "/v1/orders?phase=%00"):
        reply = await stage.client.get(target, headers=stage.token("dora"))
        assert (reply.status_code, reply.json()["code"]) == (422, "validation-failed"), target


async def test_a_fault_of_ours_says_nothing_but_where_to_ask(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    reply = await stage.client.post("/v1/tenants", headers=stage.token("otto") | {"X-Request-Id": "call-9"})
    assert (reply.status_code, reply.json()["code"]) == (500, "internal-error")
    assert reply.json()["correlation_id"] == "call-9"
    assert "hunter2" not in reply.text
    assert "call-9" in caplog.text
    assert "hunter2" in caplog.text


async def test_a_refused_command_answers_with_the_problem_of_its_code(stage: Stage) -> None:
    reply = await stage.submit("o1", count=101)
    assert (reply.status_code, reply.json()["code"]) == (409, "sample-full")
    assert reply.json()["remedy"] == "Cancel an order."


async def test_the_process_is_alive_and_ready_and_measured(stage: Stage) -> None:
    await stage.submit("o1")
    assert (await stage.client.get("/healthz")).json() == {"status": "alive"}
    ready = await stage.client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["services"]["catalog"]["leader"] is True
    metrics = (await stage.client.get("/metrics")).text
    assert 'qm_http_request_seconds_count{route="POST /v1/orders",status="202"} 1.0' in metrics
    assert 'qm_leader{service="catalog"} 1.0' in metrics


async def test_without_the_writer_nothing_is_ready_and_writes_wait_while_queries_go_on(stage: Stage) -> None:
    await stage.submit("o1")
    await stage.world.runtimes["catalog"].stop()
    assert (await stage.client.get("/readyz")).status_code == 503
    assert (await stage.client.get("/healthz")).status_code == 200
    reply = await stage.submit("o2")
    assert (reply.status_code, reply.json()["code"]) == (503, "service-unavailable")
    assert reply.headers["Retry-After"]
    assert (await stage.client.get("/v1/orders/o1", headers=stage.token("dora"))).status_code == 200


class TestTheDocument:
    async def test_no_route_promises_a_body_that_is_never_sent(self, stage: Stage) -> None:
        text = (await stage.client.get("/openapi.json")).text
        assert "HTTPValidationError" not in text

    async def test_every_operation_documents_problems_token_and_access(self, stage: Stage) -> None:
        document = (await stage.client.get("/openapi.json")).json()
        assert "/healthz" not in document["paths"]
        for operations in document["paths"].values():
            for operation in operations.values():
                assert {"401", "403", "404", "422", "503"} <= operation["responses"].keys()
                assert operation["security"] == [{"bearer": []}]
                assert set(operation["x-access"]["roles"]) <= set(Role)
        post = document["paths"]["/v1/orders"]["post"]
        assert post["responses"]["409"]["description"] == "`sample-full`: The sample is full"
        assert {"Idempotency-Key"} == {parameter["name"] for parameter in post["parameters"]}
        cancel = document["paths"]["/v1/orders/{order}/cancel"]["post"]
        assert {"order", "Idempotency-Key", "If-Match"} == {parameter["name"] for parameter in cancel["parameters"]}
        assert document["components"]["schemas"]["Problem"]["properties"]["remedy"]

    async def test_operation_ids_are_plain(self, stage: Stage) -> None:
        document = (await stage.client.get("/openapi.json")).json()
        assert document["paths"]["/v1/orders"]["post"]["operationId"] == "catalog_submit_order"


class TestARouteThatIsNotGuarded:
    def refused(self, stage: Stage, router: APIRouter) -> str:
        with pytest.raises(UnlistedRoute) as error:
            create_app(
                [Service("catalog", stage.world.runtimes["catalog"], router)], stage.app.state.tokens, title="Bad"
            )
        return str(error.value)

    async def test_is_refused_where_the_table_does_not_have_it(self, stage: Stage) -> None:
        router = APIRouter()
        router.add_api_route("/secrets", lambda access: None)
        assert "GET /v1/secrets is not in access.ACCESS" in self.refused(stage, router)

    async def test_is_refused_where_it_asks_for_no_permit(self, stage: Stage) -> None:
        router = APIRouter()

        @router.get("/orders")
        def forgetful() -> None: ...

        assert "does not depend on Access" in self.refused(stage, router)

    async def test_is_refused_where_it_takes_two_methods(self, stage: Stage) -> None:
        router = APIRouter()

        @router.api_route("/orders", methods=["GET", "POST"])
        def twofold(access: Access) -> None: ...

        assert "no route of one method" in self.refused(stage, router)
