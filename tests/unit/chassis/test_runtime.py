"""The writer, seen from outside: commands, reactions, documents, time."""

import asyncio

import pytest

from qm_service.commands import Cause, IdempotencyMismatch, Refused, Unavailable, VersionConflict
from qm_service.testing.world import World
from tests.support.toys import ADMISSION, CATALOG, cancel, submit


async def test_an_order_walks_from_one_service_to_the_other_and_back() -> None:
    async with World(CATALOG, ADMISSION) as world:
        outcome = await world.execute("catalog", submit("o1"))
        assert (outcome.version, [e.type for e in outcome.events]) == (1, ["order.submitted.v1"])
        await world.settle()
        assert await world.types("admissions") == ["order.admitted"]
        assert (await world.doc("catalog", "verdicts", "o1")).phase == "admitted"


async def test_a_fact_names_what_caused_it() -> None:
    async with World(CATALOG, ADMISSION) as world:
        outcome = await world.execute(
            "catalog", submit("o1"), Cause(actor="alice", token="t1", traceparent="00-a-b-01")
        )
        await world.settle()
        (admitted,) = await world.runtimes["admission"].history("admission/o1")
        submitted = outcome.events[0]
        assert (submitted.actor, submitted.token) == ("alice", "t1")
        assert (admitted.causation, admitted.correlation, admitted.tenant) == (submitted.id, "o1", "acme")
        assert admitted.input is not None
        assert admitted.input.startswith("orders/")
        assert (admitted.actor, admitted.traceparent) == ("system", "00-a-b-01")


async def test_a_limit_holds_within_one_batch() -> None:
    async with World(CATALOG, ADMISSION) as world:
        for i in range(6):
            await world.execute("catalog", submit(f"o{i}"))
        await world.settle()
        assert sorted(await world.types("admissions")) == ["order.admitted"] * 4 + ["order.held"] * 2
        assert (await world.doc("admission", "used", "acme")).cards == 4


async def test_a_refusal_changes_nothing() -> None:
    async with World(CATALOG) as world:
        await world.execute("catalog", submit("o1"))
        with pytest.raises(Refused) as refused:
            await world.execute("catalog", submit("o1"))
        assert refused.value.rejected.code == "order-exists"
        assert await world.runtimes["catalog"].version("order/o1") == 1


async def test_a_version_that_was_not_expected_is_refused_and_leaves_no_hole() -> None:
    async with World(CATALOG) as world:
        await world.execute("catalog", submit("o1"))
        with pytest.raises(VersionConflict) as conflict:
            await world.execute("catalog", cancel("o1"), expected_version=5)
        assert (conflict.value.expected, conflict.value.actual) == (5, 1)
        outcome = await world.execute("catalog", cancel("o1"), expected_version=1)
        assert [event.version for event in await world.runtimes["catalog"].history("order/o1")] == [1, 2]
        assert outcome.version == 2


async def test_the_same_key_and_body_give_one_fact_and_the_same_answer() -> None:
    keyed = Cause(idempotency="k1", request="body")
    async with World(CATALOG) as world:
        first = await world.execute("catalog", submit("o1"), keyed)
        again = await world.execute("catalog", submit("o2"), keyed)
        assert (again.replayed, again.stream, again.version) == (True, "order/o1", 1)
        assert [event.id for event in again.events] == [event.id for event in first.events]
        with pytest.raises(IdempotencyMismatch):
            await world.execute("catalog", submit("o3"), Cause(idempotency="k1", request="another"))
        assert await world.facts("orders", "order/o2") == []


async def test_two_calls_at_once_with_one_key_give_one_fact() -> None:
    keyed = Cause(idempotency="k1", request="body")
    async with World(CATALOG) as world:
        calls = [world.execute("catalog", submit(f"o{i}"), keyed) for i in range(5)]
        outcomes = await asyncio.gather(*calls)
        await world.settle()
        assert {outcome.stream for outcome in outcomes} == {"order/o0"}
        assert [outcome.replayed for outcome in outcomes] == [False, True, True, True, True]
        assert await world.types("orders") == ["order.submitted"]


async def test_calls_are_audited_allowed_and_refused() -> None:
    cause = Cause(actor="alice", token="t1", tenant="acme", action="POST /v1/orders")
    async with World(CATALOG) as world:
        await world.execute("catalog", submit("o1"), cause)
        with pytest.raises(Refused):
            await world.execute("catalog", submit("o1"), cause)
        await world.runtimes["catalog"].audit(cause, "order/o1", "forbidden")
        await world.settle()
        audits = await world.facts("directory", "audit-catalog/acme")
        assert [(a.decision, a.code, a.before_version, a.after_version) for a in audits] == [
            ("allowed", None, 0, 1),
            ("refused", "order-exists", 1, 1),
            ("refused", "forbidden", 1, 1),
        ]


async def test_what_is_due_happens_when_the_clock_gets_there_and_names_the_promised_instant() -> None:
    async with World(CATALOG) as world:
        start = world.clock.now()
        await world.execute("catalog", submit("o1"))
        await world.advance(minutes=59)
        assert (await world.doc("catalog", "orders", "o1")).phase == "submitted"
        await world.advance(minutes=30)
        (_, expired) = await world.facts("orders")
        assert (expired.expired_at - start).total_seconds() == 3600


async def test_time_in_a_stream_never_runs_backwards() -> None:
    async with World(CATALOG) as world:
        await world.execute("catalog", submit("o1"))
        await world.advance(minutes=-30)
        await world.execute("catalog", cancel("o1"))
        first, second = await world.runtimes["catalog"].history("order/o1")
        assert first.time == second.time


async def test_a_restart_keeps_everything(tmp_path) -> None:
    async with World(CATALOG, ADMISSION, folder=tmp_path) as world:
        await world.execute("catalog", submit("o1"))
        await world.settle()
        log = world.log
    async with World(CATALOG, ADMISSION, folder=tmp_path, log=log) as world:
        assert world.runtimes["catalog"].context().docs.resident("orders").keys() == {"o1"}
        await world.execute("catalog", cancel("o1"))
        await world.settle()
        assert await world.types("admissions") == ["order.admitted", "order.withdrawn"]


async def test_lists_are_filtered_ordered_and_paged() -> None:
    async with World(CATALOG) as world:
        for i in range(5):
            await world.execute("catalog", submit(f"o{i}"))
            await world.advance(minutes=1)
        await world.execute("catalog", cancel("o2"))
        docs = world.runtimes["catalog"].docs
        page = await docs.page("orders", {"phase": ["submitted"]}, ["ends_at"], descending=True, limit=2)
        assert [key for key, _ in page] == ["o4", "o3"]
        place = docs.place("orders", ["ends_at"], *page[-1])
        rest = await docs.page("orders", {"phase": "submitted"}, ["ends_at"], descending=True, after=place)
        assert [key for key, _ in rest] == ["o1", "o0"]


async def test_a_stopped_runtime_refuses_commands() -> None:
    async with World(CATALOG) as world:
        await world.runtimes["catalog"].stop()
        with pytest.raises(Unavailable):
            await world.execute("catalog", submit("o1"))
