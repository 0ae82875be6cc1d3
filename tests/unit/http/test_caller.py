"""Who may do what, how often, from which version, and how a list is read to its end."""

from typing import Any

from qm_events.specs import Role
from qm_service.access import grantable
from qm_service.caller import Principal
from qm_service.directory import Grant
from tests.unit.http.sample import Stage

AUDIT_TENANT = "audit-catalog/acme"
AUDIT_PLATFORM = "audit-catalog/platform"


class TestRoles:
    dora = Principal("dora", None, (Grant("acme", "vision", Role.DEVELOPER), Grant("acme", None, Role.VIEWER)))
    otto = Principal("otto", None, (Grant("platform", None, Role.OPERATOR), Grant("platform", None, Role.DEVELOPER)))

    def test_a_grant_in_a_tenant_counts_in_all_its_projects(self) -> None:
        assert self.dora.roles("acme", "speech") == {Role.VIEWER}
        assert self.dora.roles("acme", "vision") == {Role.VIEWER, Role.DEVELOPER}

    def test_a_grant_in_a_project_does_not_count_for_its_tenant(self) -> None:
        assert self.dora.roles("acme") == {Role.VIEWER}
        assert self.dora.roles_within("acme") == {Role.VIEWER, Role.DEVELOPER}

    def test_operator_and_auditor_of_the_platform_count_everywhere_and_no_other_role_does(self) -> None:
        assert self.otto.roles("acme", "vision") == {Role.OPERATOR}
        assert self.otto.roles_within("beta") == {Role.OPERATOR}

    def test_an_operator_of_a_project_named_like_any_other_is_none_elsewhere(self) -> None:
        local = Principal("eve", None, (Grant("platform", "p", Role.OPERATOR), Grant("acme", None, Role.OPERATOR)))
        assert local.roles("beta") == frozenset()
        assert local.roles("platform") == frozenset()

    def test_nobody_can_give_more_than_he_has(self) -> None:
        assert grantable(frozenset({Role.DEVELOPER, Role.VIEWER, Role.AUDITOR})) == frozenset()
        assert Role.TENANT_ADMIN not in grantable(frozenset({Role.PROJECT_OWNER}))
        assert not grantable(frozenset({Role.TENANT_ADMIN})) & {Role.OPERATOR, Role.AUDITOR}


async def test_without_a_token_the_challenge_is_sent(stage: Stage) -> None:
    for headers in ({}, {"Authorization": "Basic ZG9yYTp4"}, {"Authorization": "Bearer "}):
        reply = await stage.client.get("/v1/orders", headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (401, "unauthenticated")
        assert reply.headers["WWW-Authenticate"] == 'Bearer realm="quartermaster"'


async def test_a_foreign_order_looks_like_none(stage: Stage) -> None:
    await stage.submit("o1")
    foreign = await stage.client.get("/v1/orders/o1", headers=stage.token("bert"))
    missing = await stage.client.get("/v1/orders/o2", headers=stage.token("bert"))
    assert foreign.status_code == missing.status_code == 404
    told = [reply.json() | {"instance": "", "correlation_id": ""} for reply in (foreign, missing)]
    assert told[0] == told[1]
    # The sample says what is missing; only who has a role may hear it, and nobody has one in a project that is unknown.
    assert "o2" not in missing.json()["detail"]


async def test_who_sees_a_thing_and_may_not_change_it_is_told_which_role_is_needed(stage: Stage) -> None:
    reply = await stage.submit("o1", subject="vera")
    assert (reply.status_code, reply.json()["code"]) == (403, "forbidden")
    assert reply.json()["needed_roles"] == ["developer", "project_owner", "tenant_admin"]
    assert "admin of the tenant" in reply.json()["remedy"]


async def test_whom_no_tenant_can_help_is_sent_to_those_who_run_the_platform(stage: Stage) -> None:
    reply = await stage.client.get("/v1/fleet/nodes", headers=stage.token("tina"))
    assert (reply.status_code, "ask an operator" in reply.json()["remedy"]) == (403, True)


async def test_platform_routes_are_checked_without_a_word_in_the_handler(stage: Stage) -> None:
    for subject, status in (("otto", 200), ("anna", 200), ("tina", 403), ("nobody", 403)):
        assert (await stage.client.get("/v1/fleet/nodes", headers=stage.token(subject))).status_code == status


class TestTheAudit:
    async def codes(self, stage: Stage, stream: str) -> list[tuple[str, str | None]]:
        history = await stage.world.runtimes["catalog"].history(stream)
        return [(event.data.actor, event.data.code) for event in history]

    async def test_names_who_was_let_in_and_who_was_not(self, stage: Stage) -> None:
        await stage.submit("o1")
        await stage.submit("o2", subject="vera")
        assert await self.codes(stage, AUDIT_TENANT) == [("dora", None), ("vera", "forbidden")]

    async def test_of_a_stranger_is_kept_by_the_platform(self, stage: Stage) -> None:
        await stage.submit("o1", subject="bert")
        assert await self.codes(stage, AUDIT_TENANT) == []
        assert await self.codes(stage, AUDIT_PLATFORM) == [("bert", "not-found")]

    async def test_says_nothing_of_queries(self, stage: Stage) -> None:
        await stage.client.get("/v1/fleet/nodes", headers=stage.token("dora"))
        assert await self.codes(stage, AUDIT_PLATFORM) == []


class TestTheIdempotencyKey:
    async def post(self, stage: Stage, path: str, key: str, body: Any = None, subject: str = "dora") -> Any:
        headers = stage.token(subject) | {"Idempotency-Key": key}
        return await stage.client.post(path, json=body, headers=headers)

    async def test_makes_a_repeated_call_one_call(self, stage: Stage) -> None:
        first = await self.post(stage, "/v1/orders", "k1", {"order": "o1"})
        second = await self.post(stage, "/v1/orders", "k1", {"order": "o1"})
        assert (first.status_code, first.json()) == (second.status_code, second.json())
        assert len(await stage.world.runtimes["catalog"].history("order/o1")) == 1

    async def test_with_another_body_is_refused(self, stage: Stage) -> None:
        await self.post(stage, "/v1/orders", "k1", {"order": "o1"})
        reply = await self.post(stage, "/v1/orders", "k1", {"order": "o2"})
        assert (reply.status_code, reply.json()["code"]) == (422, "idempotency-key-reused")

    async def test_of_one_order_says_nothing_about_another(self, stage: Stage) -> None:
        await stage.submit("o1")
        await stage.submit("o2")
        for order in ("o1", "o2"):
            reply = await self.post(stage, f"/v1/orders/{order}/cancel", "k1")
            assert reply.json()["phase"] == "cancelled"

    async def test_is_a_short_printable_word(self, stage: Stage) -> None:
        token = (b"Authorization", stage.token("dora")["Authorization"].encode())
        for key in ("", " ", "a" * 201, "tab\there", "schlüssel"):
            headers = [token, (b"Idempotency-Key", key.encode("latin-1"))]
            reply = await stage.client.post("/v1/orders", json={"order": "o1"}, headers=headers)
            assert (reply.status_code, reply.json()["field"]) == (422, "Idempotency-Key"), key


class TestIfMatch:
    async def cancel(self, stage: Stage, version: str, order: str = "o1") -> Any:
        headers = stage.token("dora") | {"If-Match": version}
        return await stage.client.post(f"/v1/orders/{order}/cancel", headers=headers)

    async def test_of_another_version_is_a_conflict_that_tells_the_current_one(self, stage: Stage) -> None:
        await stage.submit("o1")
        reply = await self.cancel(stage, '"7"')
        assert (reply.status_code, reply.json()["code"]) == (409, "version-conflict")
        assert (reply.json()["expected"], reply.json()["actual"]) == (7, 1)

    async def test_of_the_current_version_lets_through(self, stage: Stage) -> None:
        for number, version in enumerate(('"1"', 'W/"1"', "1", "*")):
            await stage.submit(f"o{number}")
            assert (await self.cancel(stage, version, f"o{number}")).status_code == 202, version

    async def test_that_is_no_version_is_refused(self, stage: Stage) -> None:
        await stage.submit("o1")
        for version in ("", "one", '"-1"', '"1", "2"', '"99999999999999999999"'):
            assert (await self.cancel(stage, version)).json()["field"] == "If-Match", version


class TestAList:
    async def read(self, stage: Stage, subject: str, query: str = "") -> Any:
        reply = await stage.client.get(f"/v1/orders?{query}", headers=stage.token(subject))
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def test_is_read_to_its_end_without_a_gap_while_it_grows(self, stage: Stage) -> None:
        for number in range(5):
            await stage.submit(f"o{number}", count=number + 1)
        first = await self.read(stage, "dora", "limit=2")
        await stage.submit("late", count=1)
        second = await self.read(stage, "dora", f"limit=2&after={first['next']}")
        third = await self.read(stage, "dora", f"limit=2&after={second['next']}")
        assert [row["order"] for part in (first, second, third) for row in part["items"]] == [
            "o0",
            "o1",
            "o2",
            "o3",
            "o4",
        ]
        assert third["next"] is None

    async def test_shows_what_the_roles_of_the_caller_reach(self, stage: Stage) -> None:
        await stage.submit("o1")
        await stage.submit("o2", subject="tina", project="speech")
        await stage.submit("o3", subject="bert", tenant="beta")
        seen = {
            who: {row["order"] for row in (await self.read(stage, who))["items"]} for who in ("dora", "tina", "bert")
        }
        assert seen == {"dora": {"o1"}, "tina": {"o1", "o2"}, "bert": {"o3"}}
        assert len((await self.read(stage, "anna"))["items"]) == 3
        assert (await self.read(stage, "nobody"))["items"] == []

    async def test_refuses_a_cursor_that_it_did_not_give(self, stage: Stage) -> None:
        for cursor in ("", "x", "AAAA", "%F0%9F%98%80", "A" * 1_000, "A" * 3_000, "W10", "a=b"):
            reply = await stage.client.get(f"/v1/orders?after={cursor}", headers=stage.token("dora"))
            assert (reply.status_code, reply.json()["field"]) == (422, "after"), cursor

    async def test_refuses_a_cursor_that_was_changed(self, stage: Stage) -> None:
        for number in range(2):
            await stage.submit(f"o{number}")
        cursor = (await self.read(stage, "dora", "limit=1"))["next"]
        for place in range(len(cursor)):
            broken = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
            reply = await stage.client.get(f"/v1/orders?after={broken}", headers=stage.token("dora"))
            assert reply.status_code == 422 or reply.json()["items"], broken

    async def test_refuses_a_limit_that_is_none(self, stage: Stage) -> None:
        for limit in ("0", "-1", "501", "x", "1.5", ""):
            reply = await stage.client.get(f"/v1/orders?limit={limit}", headers=stage.token("dora"))
            assert (reply.status_code, reply.json()["field"]) == (422, "limit"), limit
