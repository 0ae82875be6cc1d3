"""The directory and the catalogue over HTTP: who may change what, and what is shown to whom."""

from qm_catalog.app import FirstStart
from qm_events.sealed import REDACTED
from tests.unit.catalog.stage import OFFERING, OPERATOR, ORDER, SPECIFICATION, Stage


async def test_the_first_operator_is_named_once_and_not_again(stage: Stage) -> None:
    runtime = stage.world.runtimes["catalog"]
    before = await runtime.version("tenant/platform")
    await FirstStart(runtime, "mallory").prepare()
    assert await runtime.version("tenant/platform") == before
    assert (await stage.call("POST", "/tenants", {"name": "gamma"}, by="mallory")).status_code in (403, 404)


async def test_what_is_said_again_is_answered_alike(stage: Stage) -> None:
    version = await stage.world.runtimes["catalog"].version("tenant/platform")
    again = await stage.done("POST", "/specifications", SPECIFICATION, by=OPERATOR)
    assert again["version"] == 1
    await stage.done("POST", "/offerings", OFFERING, by=OPERATOR)
    assert await stage.world.runtimes["catalog"].version("tenant/platform") == version


async def test_a_taken_name_is_refused(stage: Stage) -> None:
    reply = await stage.call("POST", "/tenants", {"name": "acme", "timezone": "Asia/Seoul"}, by=OPERATOR)
    assert (reply.status_code, reply.json()["code"]) == (409, "already-exists")


async def test_a_zone_that_does_not_exist_is_refused(stage: Stage) -> None:
    reply = await stage.call("POST", "/tenants", {"name": "gamma", "timezone": "Mars/Olympus"}, by=OPERATOR)
    assert (reply.status_code, reply.json()["field"]) == (422, "timezone")


async def test_everyone_sees_his_own_tenants_and_projects(stage: Stage) -> None:
    for caller, tenants in (("dora", ["acme"]), ("bert", ["beta"]), ("anna", ["acme", "beta", "platform"])):
        items = (await stage.done("GET", "/tenants", by=caller))["items"]
        assert [item["name"] for item in items] == tenants
    (project,) = (await stage.done("GET", "/projects"))["items"]
    assert (project["id"], project["roles"]) == ("acme/vision", ["developer"])
    assert (await stage.call("GET", "/tenants/beta")).status_code == 404
    assert (await stage.done("GET", "/tenants/acme"))["projects"] == ["vision"]


async def test_lists_of_the_directory_have_pages(stage: Stage) -> None:
    first = await stage.done("GET", "/tenants?limit=1", by="anna")
    second = await stage.done("GET", f"/tenants?limit=5&after={first['next']}", by="anna")
    assert [item["name"] for item in first["items"] + second["items"]] == ["acme", "beta", "platform"]
    names = []
    after = ""
    while True:
        body = await stage.done("GET", f"/projects/vision/members?limit=1{after}")
        names += [item["subject"] for item in body["items"]]
        if body["next"] is None:
            break
        after = f"&after={body['next']}"
    assert names == ["dora", "owen", "tina", "vera"]


async def test_nobody_gives_more_than_he_has(stage: Stage) -> None:
    path = "/projects/acme.vision/members"
    assert (await stage.call("POST", path, {"subject": "x", "role": "viewer"}, by="dora")).status_code == 403
    assert (await stage.call("POST", path, {"subject": "x", "role": "tenant_admin"}, by="owen")).status_code == 403
    assert (await stage.call("POST", path, {"subject": "x", "role": "developer"}, by="owen")).status_code == 201
    assert (await stage.call("POST", path, {"subject": "x", "role": "developer"}, by="bert")).status_code == 404
    reply = await stage.call("POST", "/tenants/acme/members", {"subject": "x", "role": "operator"}, by=OPERATOR)
    assert (reply.status_code, reply.json()["code"]) == (422, "role-out-of-place")


async def test_a_role_that_is_taken_back_is_gone_at_once(stage: Stage) -> None:
    path = "/projects/acme.vision/members?subject=dora&role=developer"
    assert (await stage.call("DELETE", path, by="owen")).status_code == 200
    assert (await stage.call("POST", "/orders", ORDER)).status_code == 404
    assert (await stage.call("GET", "/projects/vision/members")).status_code == 404


async def test_names_are_sealed_on_the_log_and_shown_to_members(stage: Stage) -> None:
    person = {"tenant": "acme", "subject": "dora", "display_name": "Dora Ito", "email": "dora@example.org"}
    assert (await stage.done("POST", "/subjects", person, by="tina"))["display_name"] == "Dora Ito"
    await stage.done("POST", "/subjects", person, by="tina")
    await stage.world.settle()
    (fact,) = [fact for fact in await stage.world.facts("directory") if fact.wire_type == "subject.registered.v1"]
    assert fact.display_name.startswith("sealed:v1:")
    seen = {caller: await member(stage, "dora", caller) for caller in ("vera", "tina")}
    assert seen["vera"]["display_name"] == seen["tina"]["display_name"] == "Dora Ito"
    assert (seen["vera"]["email"], seen["tina"]["email"]) == (None, "dora@example.org")


async def member(stage: Stage, subject: str, by: str) -> dict[str, str | None]:
    items = (await stage.done("GET", "/projects/acme.vision/members", by=by))["items"]
    return next(item for item in items if item["subject"] == subject)


async def test_an_erased_person_is_forgotten_and_has_no_role_in_the_tenant(stage: Stage) -> None:
    person = {"tenant": "acme", "subject": "dora", "display_name": "Dora Ito"}
    await stage.done("POST", "/subjects", person, by="tina")
    await stage.done("POST", "/projects/beta.vision/members", {"subject": "dora", "role": "viewer"}, by=OPERATOR)
    assert (await stage.call("POST", "/subjects/nobody/erase", {"tenant": "acme"}, by="tina")).status_code == 404
    erased = await stage.done("POST", "/subjects/dora/erase", {"tenant": "acme"}, by="tina")
    assert erased["display_name"] in (None, REDACTED)
    assert [item["id"] for item in (await stage.done("GET", "/projects"))["items"]] == ["beta/vision"]


async def test_a_new_version_does_not_touch_old_orders(stage: Stage) -> None:
    old = await stage.order()
    published = await stage.done("POST", "/specifications", SPECIFICATION | {"cpu_milli": 1}, by=OPERATOR)
    assert [version["version"] for version in published["versions"]] == [1, 2]
    assert (await stage.order())["specification"]["version"] == 2
    assert (await stage.done("GET", f"/orders/{old['id']}"))["specification"]["version"] == 1


async def test_a_deprecated_item_is_warned_about_and_a_retired_one_is_not_delivered(stage: Stage) -> None:
    await stage.done("POST", "/specifications/gpu-2x/status", {"status": "deprecated"}, by=OPERATOR)
    quote = await stage.done("POST", "/orders:simulate", ORDER)
    assert quote["warnings"] == ["The specification gpu-2x is deprecated; choose another for new work."]
    await stage.done("POST", "/specifications/gpu-2x/status", {"status": "retired"}, by=OPERATOR)
    reply = await stage.call("POST", "/orders", ORDER)
    assert (reply.status_code, reply.json()["code"]) == (422, "unknown-reference")
    assert (await stage.done("GET", "/specifications?status=active"))["items"] == []
    assert (
        await stage.call("POST", "/specifications/ghost/status", {"status": "active"}, by=OPERATOR)
    ).status_code == 404


async def test_a_price_keeps_its_history(stage: Stage) -> None:
    await stage.world.advance(hours=1)
    await stage.done("POST", "/offerings", OFFERING | {"price_per_card_hour": "3"}, by=OPERATOR)
    offering = await stage.done("GET", "/offerings/gpu-2x-vm")
    assert [price["price_per_card_hour"] for price in offering["prices"]] == ["2.50", "3"]


async def test_only_operators_publish(stage: Stage) -> None:
    for path, body in (("/specifications", SPECIFICATION), ("/offerings", OFFERING)):
        assert (await stage.call("POST", path, body, by="tina")).status_code in (403, 404)
