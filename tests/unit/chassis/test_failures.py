"""The database fails, the log repeats itself, a rule raises: nothing is lost, doubled or stuck."""

import asyncio
from itertools import count

import pytest

from qm_events import new_event
from qm_events.admission import OrderAdmitted
from qm_events.catalog import OrderSubmitted
from qm_service.commands import Cause, Unavailable
from qm_service.log import Message, PositionLost
from qm_service.park import HALT_PARTITION
from qm_service.redrive import Redriven, Which, ask, redrive
from qm_service.runtime import Runtime
from qm_service.store import message_of
from qm_service.testing.flaky import Failure
from qm_service.testing.world import START, World
from tests.support import toys
from tests.support.toys import ADMISSION, CATALOG, GENEROUS, cancel, request, submit
from tests.unit.chassis.support import flaky, insist, settle_through_trouble, until, versions


def submitted(order: str, version: int = 1, **labels: str) -> Message:
    """Return an order's first fact as it would lie on the log."""
    data = OrderSubmitted(
        order=order, request=request(labels={"order": order, **labels}), digest="d", submitted_at=START
    )
    return message_of(new_event(f"order/{order}", version, START, "/quartermaster/catalog", data, tenant="acme"))


@pytest.mark.parametrize("failure", ["before", "after"])
async def test_every_commit_fails_once_and_nothing_is_lost_or_doubled(failure: Failure) -> None:
    some = lambda n: failure if n % 5 in (1, 3) else None  # noqa: E731
    async with World() as world:
        for definition in (CATALOG, ADMISSION):
            database = flaky(world)
            await world.add(Runtime(definition, database, world.log, world.clock)).start()
            database.fail = some
        for i in range(20):
            await insist(world, "catalog", submit(f"o{i}"), Cause(idempotency=f"k{i}", request="body"))
        await settle_through_trouble(world)
        assert len(await world.facts("orders")) == 20
        assert sorted(await world.types("admissions")) == ["order.admitted"] * 4 + ["order.held"] * 16
        assert (await world.doc("admission", "used", "acme")).cards == 4


async def test_while_the_database_is_down_nothing_is_acknowledged_and_work_resumes() -> None:
    async with World() as world:
        database = flaky(world)
        world.add(Runtime(CATALOG, database, world.log, world.clock))
        await world.runtimes["catalog"].start()
        await world.execute("catalog", submit("o1"))
        database.down = True
        with pytest.raises(Unavailable):
            await world.execute("catalog", cancel("o1"))
        database.down = False
        await world.execute("catalog", cancel("o1"))
        assert versions(await world.runtimes["catalog"].history("order/o1")) == [1, 2]


async def test_a_fact_that_comes_twice_is_folded_once() -> None:
    async with World(ADMISSION) as world:
        await world.log.publish([submitted("o1"), submitted("o1"), submitted("o2"), submitted("o1")])
        await world.settle()
        await world.log.publish([submitted("o1")])
        await world.settle()
        assert (await world.doc("admission", "used", "acme")).cards == 2


async def test_a_repeated_fact_is_ignored_when_memory_has_long_forgotten_it(monkeypatch) -> None:
    monkeypatch.setattr("qm_service.writer._CAPACITY", 10)
    async with World(GENEROUS) as world:
        await world.log.publish([submitted(f"o{i}") for i in range(500)])
        await world.settle()
        await world.log.publish([submitted(f"o{i}") for i in range(500)])
        await world.settle()
        assert (await world.doc("admission", "used", "acme")).cards == 500


async def test_a_hole_in_a_stream_stops_its_partition_loudly() -> None:
    async with World(ADMISSION) as world:
        world.expects_trouble = True
        await world.log.publish([submitted("o1"), submitted("o2", version=3)])
        await world.settle()
        status = world.runtimes["admission"].status()
        assert not status.ready
        assert "version 3 of order/o2 follows version 0" in str(status.halted)


async def test_poison_delays_its_own_stream_only() -> None:
    async with World(CATALOG, ADMISSION) as world:
        world.expects_trouble = True
        for i in range(100):
            await world.execute("catalog", submit(f"o{i}", labels={"poison": "yes"} if i == 50 else {}))
        await world.execute("catalog", cancel("o50"))
        await world.execute("catalog", cancel("o51"))
        await world.settle()
        assert len(await world.facts("admissions")) == 99 + 1
        parked = await world.parked("admission")
        assert ["cannot be looked at" in parked[0], "waits behind" in parked[1], len(parked)] == [True, True, 2]
        assert world.runtimes["admission"].status().parked == 1


async def test_a_billing_fold_halts_its_partition_instead() -> None:
    async with World(ADMISSION, park=HALT_PARTITION) as world:
        world.expects_trouble = True
        await world.log.publish([submitted("o1", poison="yes"), submitted("o2"), submitted("o1")])
        await world.settle()
        status = world.runtimes["admission"].status()
        assert (status.ready, status.parked, len(status.halted)) == (False, 0, 1)
        assert await world.types("admissions") == ["order.admitted"]


async def test_redriven_facts_keep_their_order_while_live_traffic_flows(monkeypatch) -> None:
    async with World(CATALOG, ADMISSION) as world:
        world.expects_trouble = True
        await world.execute("catalog", submit("o1", labels={"poison": "yes"}))
        await world.execute("catalog", cancel("o1"))
        await world.settle()
        runtime = world.runtimes["admission"]
        assert await redrive(runtime) == Redriven(done=0, waiting=2)
        await world.execute("catalog", submit("o2"))
        _cure(monkeypatch, runtime)
        assert await redrive(runtime, Which(stream="order/o1")) == Redriven(done=2, waiting=0)
        await world.settle()
        assert await world.types("admissions", "admission/o1") == ["order.admitted", "order.withdrawn"]
        assert await world.types("admissions", "admission/o2") == ["order.admitted"]
        assert runtime.status().parked == 0


def _cure(monkeypatch: pytest.MonkeyPatch, runtime: Runtime) -> None:
    """Deploy a release that can handle what was parked."""
    cured = lambda e: [toys.Act(f"admission/{e.key}", toys.Admit(e.key, e.data.request, e.data.submitted_at))]  # noqa: E731
    monkeypatch.setitem(runtime.plan.reactions, OrderSubmitted.wire_type, cured)


async def test_an_operator_asks_from_another_process_and_the_writer_does_it(tmp_path, monkeypatch) -> None:
    async with World(folder=tmp_path) as world:
        runtime = Runtime(ADMISSION, world.database("admission"), world.log, world.clock)
        await runtime.start()
        await world.log.publish([submitted(f"o{i}", poison="yes") for i in range(3)])
        await until(lambda: runtime.status().parked == 3)
        _cure(monkeypatch, runtime)
        elsewhere = world.database("admission")
        assert await ask(elsewhere, runtime.schema, Which(stream="order/o0")) == 1
        await until(lambda: runtime.status().parked == 2)
        assert await ask(elsewhere, runtime.schema, Which(wire="order.submitted.v1")) == 2
        await until(lambda: runtime.status().parked == 0)
        assert await ask(elsewhere, runtime.schema, Which()) == 0
        assert (await runtime.docs.get("used", "acme")).cards == 3
        await runtime.stop()


async def test_facts_behind_a_redriven_one_wait_until_it_is_through() -> None:
    async with World(CATALOG, ADMISSION) as world:
        world.expects_trouble = True
        await world.execute("catalog", submit("o1", labels={"poison": "yes"}))
        await world.settle()
        await redrive(world.runtimes["admission"])
        await world.execute("catalog", cancel("o1"))
        await world.settle()
        assert len(await world.parked("admission")) == 2
        assert await world.facts("admissions") == []


async def test_a_failing_settle_does_not_hold_up_inputs(monkeypatch) -> None:
    broken = toys.Definition(
        name="catalog", deciders=CATALOG.deciders, projections=CATALOG.projections, reactions={}, settle=lambda _: 1 / 0
    )
    async with World(broken, ADMISSION) as world:
        world.expects_trouble = True
        await world.execute("catalog", submit("o1"))
        await world.settle()
        assert await world.types("admissions") == ["order.admitted"]
        assert "ZeroDivisionError" in str(world.runtimes["catalog"].status().errors)


async def test_a_position_beyond_the_log_is_never_reset() -> None:
    async with World(CATALOG, ADMISSION) as world:
        await world.execute("catalog", submit("o1"))
        await world.settle()
        runtime = world.runtimes["admission"]
        async with runtime.database.write() as tx:
            positions = runtime.schema.positions
            await tx.execute(positions.update().values(next_offset=1_000))
        await runtime.stop()
        await runtime.start()
        with pytest.raises(PositionLost):
            await runtime.step()


async def test_a_missing_position_is_never_guessed() -> None:
    async with World(CATALOG, ADMISSION) as world:
        runtime = world.runtimes["admission"]
        async with runtime.database.write() as tx:
            await tx.execute(runtime.schema.positions.delete().where(runtime.schema.positions.c.partition == 3))
        await runtime.stop()
        with pytest.raises(PositionLost, match="orders/3"):
            await runtime.start()


async def test_a_late_fact_after_the_end_changes_nothing() -> None:
    async with World(CATALOG, ADMISSION) as world:
        await world.execute("catalog", submit("o1"))
        await world.execute("catalog", cancel("o1"))
        await world.settle()
        await world.log.publish([submitted("o1")])
        await world.settle()
        assert await world.types("admissions", "admission/o1") == ["order.admitted", "order.withdrawn"]


async def test_two_writers_never_both_write(tmp_path) -> None:
    async with World(folder=tmp_path) as world:
        old = world.add(Runtime(CATALOG, world.database("catalog"), world.log, world.clock, lease_seconds=0.2))
        await old.start()
        await world.execute("catalog", submit("o1"))
        new = Runtime(CATALOG, world.database("catalog"), world.log, world.clock, lease_seconds=0.2)
        await new.start()
        await until(lambda: new.status().leader)
        with pytest.raises(Unavailable):
            await old.execute(cancel("o1"))
        await new.execute(cancel("o1"))
        assert versions(await new.history("order/o1")) == [1, 2]
        await new.stop()


async def test_the_writer_takes_over_again_after_its_database_came_back(tmp_path) -> None:
    async with World(folder=tmp_path) as world:
        database = flaky(world, folder=tmp_path)
        runtime = Runtime(CATALOG, database, world.log, world.clock, lease_seconds=0.4)
        await runtime.start()
        database.down = True
        with pytest.raises(Unavailable):
            await runtime.execute(submit("o1"))
        await until(lambda: not runtime.status().database_up)
        database.down = False
        await until(lambda: runtime.status().leader and runtime.status().database_up)
        assert (await runtime.execute(submit("o1"))).version == 1
        await runtime.stop()


async def test_a_service_that_runs_by_itself_does_the_same_as_one_that_is_stepped(tmp_path) -> None:
    async with World(folder=tmp_path) as world:
        runtimes = [Runtime(d, world.database(d.name), world.log, world.clock) for d in (CATALOG, ADMISSION)]
        for runtime in runtimes:
            await runtime.start()
        numbers = count()
        await asyncio.gather(*(runtimes[0].execute(submit(f"o{next(numbers)}")) for _ in range(50)))
        await until(lambda: all(runtime.idle() for runtime in runtimes))
        assert sorted(await world.types("admissions")) == ["order.admitted"] * 4 + ["order.held"] * 46
        world.clock.advance(toys.LIFE)
        await until(lambda: not runtimes[0].context().docs.resident("orders"))
        for runtime in runtimes:
            await runtime.stop()


async def test_an_unknown_type_on_a_topic_is_skipped_but_counted() -> None:
    async with World(CATALOG) as world:
        data = OrderAdmitted(order="o1", request=request(), digest="d", submitted_at=START)
        second = message_of(new_event("admission/o1", 2, START, "/quartermaster/admission", data, tenant="acme"))
        unknown = Message("admissions", "o1", "order.pondered.v9", "x", "admission/o1", 1, second.time, b"{}")
        await world.log.publish([unknown, second])
        await world.settle()
        assert (await world.doc("catalog", "verdicts", "o1")).phase == "admitted"
