"""The scheduler as a service: asked over HTTP, fed from the topics, rebuilt from its log."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from qm_events import EventData, new_event
from qm_events.admission import OrderAdmitted
from qm_events.catalog import MemberGranted, OrderCancelRequested, ProjectRegistered, TenantRegistered
from qm_events.provisioner import EnvironmentReady, EnvironmentValidated
from qm_events.specs import OrderRequest, Role
from qm_scheduler.app import build
from qm_scheduler.consumers import SCHEDULER
from qm_scheduler.settings import Settings
from qm_service.http import create_app
from qm_service.replay import replay, verify
from qm_service.runtime import Runtime
from qm_service.service import Kit
from qm_service.testing.world import START, World
from qm_service.tokens import Verified
from tests.unit.scheduler.yard import MIB, request


class Tokens:
    """A verifier that takes the name of the subject for a token."""

    async def verify(self, token: str) -> Verified:
        return Verified(token, None, 2**40)


def description(*cards: str, accelerator: str = "h100", **more: Any) -> dict[str, Any]:
    listed = [{"card": card, "accelerator": accelerator, "memory_mib": 80 * MIB} for card in cards]
    return {"cpu_milli": 96_000, "memory_mib": 512 * MIB, "cards": listed} | more


class Stage:
    """The service with people, and a pen for the facts of others."""

    def __init__(self, world: World, client: httpx.AsyncClient) -> None:
        self.world = world
        self.client = client
        self.versions: dict[str, int] = {}

    @property
    def runtime(self) -> Runtime:
        return self.world.runtimes["scheduler"]

    async def call(
        self, method: str, path: str, body: Any = None, *, by: str = "olga", **headers: str
    ) -> httpx.Response:
        named = {"Authorization": f"Bearer {by}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        reply = await self.client.request(method, f"/v1{path}", json=body, headers=named)
        await self.world.settle()
        return reply

    async def done(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        reply = await self.call(method, path, body, **more)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def code(self, *call: Any, **more: Any) -> tuple[int, str]:
        reply = await self.call(*call, **more)
        return reply.status_code, reply.json()["code"]

    async def tell(self, stream: str, *facts: EventData, tenant: str = "acme", project: str | None = "vision") -> None:
        for data in facts:
            version = self.versions[stream] = self.versions.get(stream, 0) + 1
            attributes = {"tenant": tenant, "project": project, "correlation": stream.partition("/")[2]}
            event = new_event(stream, version, self.world.clock.now(), "/quartermaster/other", data, **attributes)
            await self.world.publish(event)
        await self.world.settle()

    async def order(self, order: str, asked: OrderRequest | None = None, *, project: str = "vision") -> None:
        asked = (asked or request()).model_copy(update={"project": project})
        self.world.clock.advance(timedelta(seconds=1))
        fact = OrderAdmitted(order=order, request=asked, digest="d", submitted_at=self.world.clock.now())
        await self.tell(f"admission/{order}", fact, project=project)

    async def give_back(self, order: str, suspect: tuple[str, ...] = ()) -> None:
        doc = await self.world.doc("scheduler", "allocations", order)
        cards = tuple(card for unit in doc.units for card in unit.cards if card not in suspect)
        fact = EnvironmentValidated(
            order=order,
            allocation=doc.allocation,
            clean=cards,
            suspect=suspect,
            validated_at=self.world.clock.now(),
        )
        await self.tell(f"environment/{order}", fact)

    async def queue(self, by: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.done("GET", "/queue", by=by))["items"]
        return items

    async def capacity(self, accelerator: str = "h100") -> dict[str, int]:
        items = (await self.done("GET", "/fleet/capacity"))["items"]
        found = next(item for item in items if item["accelerator"] == accelerator)
        return {key: value for key, value in found.items() if value and key != "accelerator"}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    world = World()
    service = build(Kit(world.database("scheduler"), world.log, world.clock, Settings(), Tokens()))
    world.add(service.runtime)
    async with world:
        transport = httpx.ASGITransport(app=create_app([service], Tokens(), title="scheduler"))
        async with httpx.AsyncClient(transport=transport, base_url="http://scheduler") as client:
            stage = Stage(world, client)
            await stage.tell(
                "tenant/acme",
                TenantRegistered(tenant="acme", display_name="Acme"),
                ProjectRegistered(tenant="acme", project="vision", display_name="Vision"),
                ProjectRegistered(tenant="acme", project="speech", display_name="Speech"),
                MemberGranted(tenant="acme", project="vision", subject="ada", role=Role.DEVELOPER),
                MemberGranted(tenant="platform", subject="olga", role=Role.OPERATOR),
                MemberGranted(tenant="platform", subject="ines", role=Role.AUDITOR),
                project=None,
            )
            yield stage


async def test_a_node_is_registered_shown_and_described_anew_under_its_etag(stage: Stage) -> None:
    first = await stage.call("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2", rack="r1"))
    assert (first.status_code, first.headers["etag"]) == (200, '"1"')
    assert [card["state"] for card in first.json()["cards"]] == ["free", "free"]
    again = await stage.call("PUT", "/fleet/nodes/n1", description("GPU-2", "GPU-1", rack="r1"))
    assert again.headers["etag"] == '"1"'
    stale = await stage.code("PUT", "/fleet/nodes/n1", description("GPU-1"), if_match='"7"')
    assert stale == (409, "version-conflict")
    fewer = await stage.call("PUT", "/fleet/nodes/n1", description("GPU-1"), if_match='"1"')
    assert fewer.headers["etag"] == '"2"'
    shown = await stage.call("GET", "/fleet/nodes/n1", by="ines")
    assert shown.headers["etag"] == '"2"'
    assert [card["card"] for card in shown.json()["cards"]] == ["GPU-1"]
    assert await stage.code("GET", "/fleet/nodes/n2") == (404, "node-unknown")


async def test_a_card_id_is_unique_in_the_fleet(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    assert await stage.code("PUT", "/fleet/nodes/n2", description("GPU-1")) == (409, "card-elsewhere")
    await stage.done("PUT", "/fleet/nodes/n1", description())
    await stage.done("PUT", "/fleet/nodes/n2", description("GPU-1"))


@pytest.mark.parametrize(
    "body",
    [
        description("GPU-1", "GPU-1"),
        description("GPU 1"),
        description("GPU-1", accelerator="H100!"),
        description("GPU-1", colour="red"),
        description("GPU-1", cpu_milli=-1),
        description("GPU-1", cpu_milli=1.5),
        description("GPU-1", memory_mib=10**18),
        description(*(f"GPU-{n}" for n in range(257))),
        [],
    ],
)
async def test_a_description_is_read_strictly(stage: Stage, body: Any) -> None:
    assert (await stage.code("PUT", "/fleet/nodes/n1", body))[0] == 422


async def test_a_cordon_is_shown_and_a_node_that_is_not_there_is_told(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    node = await stage.done("POST", "/fleet/nodes/n1/cordon", {"reason": "kernel"})
    assert (node["cordoned"], node["cordon_reason"], node["cards"][0]["state"]) == (True, "kernel", "cordoned")
    assert await stage.capacity() == {"total": 1, "cordoned": 1}
    assert (await stage.done("POST", "/fleet/nodes/n1/uncordon"))["cordoned"] is False
    assert await stage.code("POST", "/fleet/nodes/n2/cordon", {"reason": "x"}) == (404, "node-unknown")


async def test_the_fleet_is_for_those_who_run_the_platform_and_capacity_for_all(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    for method, path, body in (
        ("GET", "/fleet/nodes", None),
        ("GET", "/fleet/cards", None),
        ("PUT", "/fleet/nodes/n2", description()),
        ("POST", "/fleet/health", []),
    ):
        assert (await stage.call(method, path, body, by="ada")).status_code in (403, 404)
    assert (await stage.call("PUT", "/fleet/nodes/n2", description(), by="ines")).status_code in (403, 404)
    assert (await stage.done("GET", "/fleet/capacity", by="ada"))["items"][0]["free"] == 1


async def test_an_order_is_placed_returned_and_a_suspect_card_cleared_by_an_operator(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    await stage.order("o1", request(cards=2))
    assert await stage.capacity() == {"total": 2, "held": 2}
    held = (await stage.done("GET", "/fleet/cards?state=held"))["items"]
    assert {card["order"] for card in held} == {"o1"}
    await stage.give_back("o1", suspect=("GPU-2",))
    assert await stage.capacity() == {"total": 2, "free": 1, "quarantined": 1}
    cleared = await stage.done("POST", "/fleet/cards/GPU-2/clear")
    assert (cleared["state"], cleared["quarantine_reason"]) == ("free", None)
    assert await stage.code("POST", "/fleet/cards/GPU-9/clear") == (404, "card-unknown")
    assert await stage.world.types("allocations") == [
        "allocation.queued",
        "allocation.allocated",
        "allocation.returned",
    ]


async def test_the_queue_shows_own_orders_at_their_true_positions_and_names_nobody_else(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    for number, project in enumerate(("speech", "speech", "vision", "vision")):
        await stage.order(f"o{number}", project=project)
    mine = await stage.queue("ada")
    assert [(item["order"], item["position"], item["reason"]["code"]) for item in mine] == [
        ("o2", 1, "CapacityInUse"),
        ("o3", 3, "HigherPriorityAhead"),
    ]
    assert "speech" not in str(mine)
    assert mine[0]["estimate"] is None
    everyone = await stage.queue("ines")
    assert [item["order"] for item in everyone] == ["o1", "o2", "o3"]
    assert [reason["code"] for reason in everyone[0]["reasons"]] == ["HigherPriorityAhead", "CapacityInUse"]


async def test_the_queue_and_the_fleet_are_paged(stage: Stage) -> None:
    for n in range(5):
        await stage.done("PUT", f"/fleet/nodes/n{n}", description(f"GPU-{n}a", f"GPU-{n}b", accelerator="a100"))
        await stage.order(f"o{n}")
    for path, key in (("/queue", "order"), ("/fleet/nodes", "node"), ("/fleet/cards", "card")):
        whole = [item[key] for item in (await stage.done("GET", path))["items"]]
        found, after = [], ""
        while after is not None:
            body = await stage.done("GET", f"{path}?limit=2{after and '&after=' + after}")
            found += [item[key] for item in body["items"]]
            after = body["next"]
        assert found == whole
        assert len(whole) == len(set(whole)) >= 5
    assert await stage.code("GET", "/queue?after=nonsense") == (422, "validation-failed")


def observed(**changes: Any) -> dict[str, Any]:
    return {"card": "GPU-1", "source": "dcgm", "status": "suspect", "observed_at": "2026-06-01T08:00:10Z"} | changes


async def test_health_is_taken_once_and_an_older_word_of_the_same_source_changes_nothing(stage: Stage) -> None:
    stage.world.clock.advance(timedelta(hours=2))
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    assert await stage.done("POST", "/fleet/health", [observed()]) == {"accepted": 1, "changed": 1}
    again = [observed(), observed(status="healthy", observed_at="2026-06-01T08:00:09Z")]
    assert await stage.done("POST", "/fleet/health", again) == {"accepted": 2, "changed": 0}
    repeated = [observed(observed_at="2026-06-01T08:01:00Z")]
    assert await stage.done("POST", "/fleet/health", repeated) == {"accepted": 1, "changed": 0}
    late = [observed(status="healthy", observed_at="2026-06-01T08:00:30Z")]
    assert await stage.done("POST", "/fleet/health", late) == {"accepted": 1, "changed": 0}
    assert await stage.capacity() == {"total": 2, "free": 1, "suspect": 1}
    well = [observed(card=None, node="n1", status="healthy", observed_at="2026-06-01T10:02:00+01:00")]
    assert (await stage.done("POST", "/fleet/health", well))["changed"] == 2
    assert await stage.capacity() == {"total": 2, "free": 2}


async def test_the_same_idempotency_key_does_not_swallow_the_health_of_a_second_node(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    await stage.done("PUT", "/fleet/nodes/n2", description("GPU-2"))
    body = [observed(), observed(card="GPU-2")]
    assert (await stage.done("POST", "/fleet/health", body, idempotency_key="k"))["changed"] == 2
    audits = [fact for fact in await stage.world.types("fleet") if fact == "fleet.access_audited"]
    assert len(audits) == 3


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([observed(card="GPU-9")], "card-unknown"),
        ([observed(card=None, node="n9")], "node-unknown"),
        ([observed(), observed(card="GPU-9")], "card-unknown"),
        ([observed(card=None)], "validation-failed"),
        ([observed(status="fine")], "validation-failed"),
        ([observed(observed_at="2026-06-01T08:00:10")], "validation-failed"),
        ([observed(extra=1)], "validation-failed"),
        ({"alerts": [{"status": "firing", "labels": {"card": "GPU-1"}}]}, "validation-failed"),
        ({}, "validation-failed"),
    ],
)
async def test_health_that_is_not_understood_changes_nothing(stage: Stage, body: Any, code: str) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    assert (await stage.code("POST", "/fleet/health", body))[1] == code
    assert await stage.capacity() == {"total": 1, "free": 1}


def alert(state: str, name: str = "XidErrors", **labels: str) -> dict[str, Any]:
    return {
        "status": state,
        "labels": {"alertname": name, "card": "GPU-1", "node": "n1", "severity": "page"} | labels,
        "annotations": {"summary": "XID 79"},
        "startsAt": "2026-06-01T08:00:00Z",
        "endsAt": "2026-06-01T09:00:00Z" if state == "resolved" else "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph",
        "fingerprint": "abc",
    }


async def test_alertmanager_says_what_is_sick_and_each_alert_takes_back_only_itself(stage: Stage) -> None:
    stage.world.clock.advance(timedelta(hours=2))
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    webhook = {"version": "4", "receiver": "qm", "groupLabels": {}, "alerts": [alert("firing", status="failed")]}
    assert (await stage.done("POST", "/fleet/health", webhook))["changed"] == 1
    assert (await stage.done("POST", "/fleet/health", webhook))["changed"] == 0
    await stage.done("POST", "/fleet/health", {"alerts": [alert("firing", "EccErrors")]})
    assert await stage.capacity() == {"total": 2, "free": 1, "failed": 1}
    await stage.done("POST", "/fleet/health", {"alerts": [alert("resolved")]})
    assert await stage.capacity() == {"total": 2, "free": 1, "suspect": 1}
    await stage.done("POST", "/fleet/health", {"alerts": [alert("resolved", "EccErrors")]})
    assert await stage.capacity() == {"total": 2, "free": 2}


async def test_a_rebuilt_scheduler_is_the_same_and_decides_nothing_twice(stage: Stage) -> None:
    for n in range(3):
        await stage.done("PUT", f"/fleet/nodes/n{n}", description(f"GPU-{n}a", f"GPU-{n}b", rack=f"r{n % 2}"))
    for n in range(8):
        await stage.order(f"o{n}", request(cards=1 + n % 2, within="rack" if n % 3 else None, duration_seconds=3600))
    doc = await stage.world.doc("scheduler", "allocations", "o0")
    ready = EnvironmentReady(order="o0", allocation=doc.allocation, endpoint={}, ready_at=START)
    await stage.tell("environment/o0", ready)
    await stage.give_back("o0", suspect=("GPU-0a",))
    await stage.tell("order/o5", OrderCancelRequested(order="o5", requested_at=START))
    await stage.tell("order/never", OrderCancelRequested(order="never", requested_at=START))
    await stage.done("POST", "/fleet/health", [observed(card="GPU-1a")])
    world = stage.world
    comparison = await verify(SCHEDULER, stage.runtime.database, world.database("beside"), world.log)
    assert comparison.equal, comparison.differing
    before = await stage.queue("olga"), await stage.capacity(), await world.types("allocations")

    rebuilt = world.database("rebuilt")
    await replay(SCHEDULER, rebuilt, world.log)
    await stage.runtime.stop()
    service = build(Kit(rebuilt, world.log, world.clock, Settings(), Tokens()))
    world.add(service.runtime)
    await service.runtime.start()
    await world.settle()
    transport = httpx.ASGITransport(app=create_app([service], Tokens(), title="scheduler"))
    async with httpx.AsyncClient(transport=transport, base_url="http://scheduler") as client:
        again = Stage(world, client)
        assert (await again.queue("olga"), await again.capacity(), await world.types("allocations")) == before


async def test_the_turns_of_a_project_weigh_what_an_operator_says(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description(*(f"GPU-{n}" for n in range(4))))
    await stage.done("PUT", "/shares/acme/vision", {"weight": 3})
    for n in range(4):
        await stage.order(f"h{n}", project="maps")
    for n in range(8):
        await stage.order(f"o{n}", project=("speech", "vision")[n % 2])
    positions = {item["order"]: item["position"] for item in await stage.queue("ines")}
    assert sorted(positions, key=lambda order: positions[order]) == ["o0", "o1", "o3", "o5", "o2", "o7", "o4", "o6"]
    shares = (await stage.done("GET", "/shares", by="ines"))["items"]
    assert [(each["project"], each["weight"], each["share"], each["waiting"]) for each in shares] == [
        ("maps", 1, "4/1", 0),
        ("speech", 1, "0/1", 4),
        ("vision", 3, "0/3", 4),
    ]
    mine = (await stage.done("GET", "/shares", by="ada"))["items"]
    assert [each["project"] for each in mine] == ["vision"]
    assert await stage.code("PUT", "/shares/acme/none", {"weight": 3}) == (404, "project-unknown")
    assert await stage.code("PUT", "/shares/acme/vision", {"weight": 0}) == (422, "validation-failed")
    assert await stage.code("PUT", "/shares/acme/vision", {"weight": 2}, by="ada") in (
        (403, "forbidden"),
        (404, "not-found"),
    )


async def test_a_project_without_cards_orders_and_weight_is_not_in_the_list_of_turns(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-0"))
    await stage.order("h", project="maps")
    assert [each["project"] for each in (await stage.done("GET", "/shares", by="ines"))["items"]] == ["maps"]
    await stage.give_back("h")
    assert (await stage.done("GET", "/shares", by="ines"))["items"] == []
    await stage.done("PUT", "/shares/acme/vision", {"weight": 3})
    assert [each["project"] for each in (await stage.done("GET", "/shares", by="ines"))["items"]] == ["vision"]


# ---- reservations


def reserved(**more: Any) -> dict[str, Any]:
    window = {"starts_at": "2026-06-01T10:00:00Z", "ends_at": "2026-06-01T12:00:00Z", "reason": "training"}
    return {"tenant": "acme", "accelerator": "h100", **window, **more}


async def test_a_reservation_is_made_listed_to_its_tenant_counted_and_cancelled(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    made = await stage.call("POST", "/reservations", reserved(units=2, project="vision"))
    assert made.status_code == 201, made.text
    name = made.json()["reservation"]
    assert (made.json()["cards"], made.json()["nodes"]) == (2, ["n1"])
    (listed,) = (await stage.done("GET", "/reservations", by="ada"))["items"]
    assert (listed["reservation"], listed["nodes"]) == (name, None)
    await stage.order("o1", request(reservation=name))
    await stage.order("o2", request())
    queue = {item["order"]: item for item in await stage.queue("olga")}
    assert queue["o1"]["reason"]["code"] == "ReservationNotStarted"
    assert queue["o1"]["estimate"] == "2026-06-01T10:00:00Z"
    assert queue["o2"]["reason"]["code"] == "CapacityInUse"
    assert await stage.capacity() == {"total": 2, "free": 2}
    stage.world.clock.set(datetime(2026, 6, 1, 10, tzinfo=UTC))
    await stage.world.settle()
    assert await stage.capacity() == {"total": 2, "free": 1, "held": 1, "reserved": 1}
    for _ in range(2):
        await stage.done("POST", f"/reservations/{name}/cancel")
    assert [item["order"] for item in await stage.queue("olga")] == []
    assert (await stage.done("GET", "/reservations"))["items"] == []


async def test_a_reservation_of_too_much_is_refused_with_figures_and_a_window(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    await stage.call("POST", "/reservations", reserved())
    reply = await stage.call("POST", "/reservations", reserved(units=2))
    assert reply.status_code == 409, reply.text
    problem = reply.json()
    assert problem["code"] == "reservation-overbooked"
    assert "2026-06-01T12:00:00Z to 2026-06-01T14:00:00Z" in problem["remedy"]
    (violation,) = problem["violations"]
    assert {key: violation[key] for key in ("limit", "used", "requested", "short_by")} == {
        "limit": 2,
        "used": 1,
        "requested": 2,
        "short_by": 1,
    }


async def test_only_operators_maintain_nodes_and_a_window_must_make_sense(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1"))
    window = {key: value for key, value in reserved().items() if key not in ("tenant", "accelerator")}
    assert (await stage.code("POST", "/reservations", window | {"nodes": ["n1"]}, by="ada"))[0] in (403, 404)
    assert await stage.code("POST", "/reservations", window | {"nodes": ["n9"]}) == (404, "node-unknown")
    assert (await stage.call("POST", "/reservations", window | {"nodes": ["n1"]})).status_code == 201
    for wrong in (
        reserved(ends_at="2026-06-01T10:00:00Z"),
        reserved(nodes=["n1"]),
        window,
        reserved(units=0),
        reserved(starts_at="soon"),
        reserved(ends_at="2028-01-01T00:00:00Z"),
        reserved(starts_at="9999-12-30T00:00:00Z", ends_at="9999-12-31T00:00:00Z"),
    ):
        assert (await stage.call("POST", "/reservations", wrong)).status_code == 422
    past = reserved(starts_at="2026-05-01T10:00:00Z", ends_at="2026-05-01T12:00:00Z")
    assert await stage.code("POST", "/reservations", past) == (409, "reservation-over")
    assert await stage.code("POST", "/reservations", reserved(project="maps")) == (404, "project-unknown")
    assert (await stage.code("POST", "/reservations/none/cancel"))[0] == 404


async def test_a_rebuilt_scheduler_keeps_the_same_places_victims_and_reservations(stage: Stage) -> None:
    await stage.done("PUT", "/fleet/nodes/n1", description("GPU-1", "GPU-2"))
    await stage.call("POST", "/reservations", reserved())
    await stage.order("low", request(cards=1, preemptible=True, expires_at=datetime(2026, 6, 1, 10, tzinfo=UTC)))
    await stage.order("low2", request(cards=1, preemptible=True, expires_at=datetime(2026, 6, 1, 10, tzinfo=UTC)))
    stage.world.clock.advance(timedelta(minutes=30))
    await stage.order("high", request(cards=1, priority=10, duration_seconds=600))
    types = await stage.world.types("allocations")
    assert "allocation.preempted" in types
    assert "reservation.made" in types
    comparison = await verify(SCHEDULER, stage.runtime.database, stage.world.database("beside"), stage.world.log)
    assert comparison.equal, comparison.differing
