"""A database can be thrown away: the topics give it back, the same to the byte."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm_events.catalog import OrderSubmitted
from qm_service.commands import Cause, Refused, Unavailable
from qm_service.inputs import ReplayNeeded
from qm_service.log import Position, Record
from qm_service.log_memory import MemoryLog
from qm_service.model import Definition, Fold, Projection
from qm_service.rebuild import Outdated, rebuild
from qm_service.refold import CHUNK
from qm_service.replay import NotEmpty, replay, state_hash, verify
from qm_service.runtime import Runtime
from qm_service.schema import create
from qm_service.testing.nasty import NastyLog
from qm_service.testing.world import World
from tests.support.toys import ADMISSION, CATALOG, Phase, cancel, submit
from tests.unit.chassis.support import until

BOTH = (CATALOG, ADMISSION)
HISTORIES = st.lists(
    st.tuples(st.sampled_from(["submit", "cancel", "settle", "wait"]), st.integers(0, 8)), min_size=1, max_size=25
)


async def play(world: World, history: Sequence[tuple[str, int]]) -> None:
    """Let a history happen, and all that follows."""
    for i, (what, number) in enumerate(history):
        if what == "settle":
            await world.settle()
        elif what == "wait":
            await world.advance(minutes=number * 5)
        else:
            act = submit(f"o{number}") if what == "submit" else cancel(f"o{number}")
            try:
                await world.execute("catalog", act, Cause(idempotency=f"key{i}", request="body"))
            except Refused:
                continue
    await world.settle()


async def usual(world: World) -> None:
    """Let a few things happen."""
    await play(world, [("submit", i) for i in range(6)] + [("settle", 0), ("cancel", 1), ("wait", 13), ("submit", 7)])


async def rebuilt(world: World, name: str) -> World:
    """Return a world on the same log in which the database of one service was made anew."""
    other = World(log=world.log)
    other.clock.set(world.clock.now())
    definition = world.runtimes[name].definition
    runtime = other.add(Runtime(definition, other.database(name), other.log, other.clock))
    await replay(definition, runtime.database, world.log)
    return other


@pytest.mark.timeout(1_200)  # two hundred histories on a machine that does other things too
@settings(max_examples=200, deadline=None, derandomize=True)
@given(history=HISTORIES, seed=st.integers(0, 1_000))
def test_any_history_is_rebuilt_to_the_same_bytes_from_a_nasty_log(history: list[tuple[str, int]], seed: int) -> None:
    asyncio.run(_rebuild_and_compare(history, seed))


async def _rebuild_and_compare(history: list[tuple[str, int]], seed: int) -> None:
    async with World(*BOTH, log=NastyLog(MemoryLog(), seed)) as world:
        await play(world, history)
        for runtime in world.runtimes.values():
            comparison = await verify(runtime.definition, runtime.database, world.database("again"), world.log)
            assert comparison.equal, comparison.differing


async def test_a_rebuilt_service_goes_on_where_it_was_and_decides_nothing_twice() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        before = {topic: await world.facts(topic) for topic in ("orders", "admissions")}
        hashes = {name: await state_hash(r.database, r.definition) for name, r in world.runtimes.items()}
        for name in world.runtimes:
            async with await rebuilt(world, name) as other:
                await other.settle()
                assert await state_hash(other.runtimes[name].database, other.runtimes[name].definition) == hashes[name]
        assert {topic: await world.facts(topic) for topic in ("orders", "admissions")} == before


async def test_a_rebuilt_service_still_knows_its_idempotency_keys() -> None:
    async with World(*BOTH) as world:
        keyed = Cause(idempotency="k1", request="body")
        await world.execute("catalog", submit("o1"), keyed)
        await world.settle()
        async with await rebuilt(world, "catalog") as other:
            again = await other.execute("catalog", submit("o2"), keyed)
            assert (again.replayed, again.stream) == (True, "order/o1")


async def test_an_input_that_came_while_the_database_was_lost_is_decided() -> None:
    async with World(*BOTH) as world:
        await world.execute("catalog", submit("o1"))
        await world.settle()
        await world.execute("catalog", submit("o2"))
        while await world.runtimes["catalog"].step():
            pass
        async with await rebuilt(world, "admission") as other:
            await other.settle()
            assert await other.types("admissions") == ["order.admitted"] * 2


async def test_replay_does_not_look_at_the_clock() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        runtime = world.runtimes["catalog"]
        world.clock.advance(timedelta(days=3_650))
        comparison = await verify(runtime.definition, runtime.database, world.database("again"), world.log)
        assert comparison.equal


async def test_verify_names_what_differs() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        runtime = world.runtimes["catalog"]
        async with runtime.database.write() as tx:
            table = runtime.schema.documents["orders"]
            await tx.execute(table.delete().where(table.c.key == "o3"))
        comparison = await verify(runtime.definition, runtime.database, world.database("again"), world.log)
        assert comparison.differing == ["p_orders_v1"]


async def test_what_is_parked_does_not_spoil_the_comparison() -> None:
    async with World(*BOTH) as world:
        world.expects_trouble = True
        await world.execute("catalog", submit("o1", labels={"poison": "yes"}))
        await world.execute("catalog", submit("o2"))
        await world.settle()
        runtime = world.runtimes["admission"]
        assert (await verify(runtime.definition, runtime.database, world.database("again"), world.log)).equal


async def test_a_lost_database_is_not_mistaken_for_a_new_service() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        lost = Runtime(CATALOG, world.database("lost"), world.log, world.clock, stepped=True)
        with pytest.raises(ReplayNeeded):
            await lost.start()


async def test_replay_refuses_a_database_with_facts() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        with pytest.raises(NotEmpty):
            await replay(CATALOG, world.runtimes["catalog"].database, world.log)


# ---- one projection, beside the live one


def _shout(old: Phase | None, event: Any) -> Phase:
    return Phase(event.key, "SUBMITTED" if isinstance(event.data, OrderSubmitted) else "OVER", "acme")


ORDERS_2: Projection[Phase] = replace(
    CATALOG.projections[0],
    version=2,
    folds={cls: Fold(_shout) for cls in CATALOG.projections[0].folds},
    resident=None,
    columns={},
)
CATALOG_2: Definition = replace(
    CATALOG,
    projections=(ORDERS_2, *CATALOG.projections[1:]),
    settle=lambda _: (),
    due=lambda _: None,
    new_index=None,
)


async def test_a_new_version_of_a_projection_takes_over_in_one_step_and_back() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        old = world.runtimes["catalog"]
        new = Runtime(CATALOG_2, old.database, world.log, world.clock, stepped=True)
        await create(new.database, new.schema)
        with pytest.raises(Unavailable):
            await new.docs.get("orders", "o1")
        await old.stop()
        await new.start()
        assert (await new.docs.get("orders", "o1")).phase == "OVER"
        with pytest.raises(Unavailable):
            await old.docs.get("orders", "o1")
        await new.execute(submit("o20"))
        assert (await new.docs.get("orders", "o20")).phase == "SUBMITTED"
        await new.stop()
        with pytest.raises(Outdated):
            await old.start()
        await rebuild(CATALOG, old.database, world.log, "orders")
        await old.start()
        assert (await old.docs.get("orders", "o20")).phase == "submitted"


async def test_the_live_writer_goes_on_while_a_projection_is_built_and_cannot_write_after_the_swap() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        old = world.runtimes["catalog"]
        published = len(await world.facts("orders"))
        await rebuild(CATALOG_2, old.database, world.log, "orders")
        assert old.context() is not None
        with pytest.raises(Unavailable):
            await old.execute(submit("o30"))
        assert len(await world.facts("orders")) == published
        new = Runtime(CATALOG_2, old.database, world.log, world.clock, stepped=True)
        await new.start()
        comparison = await verify(CATALOG_2, old.database, world.database("again"), world.log)
        assert comparison.equal, comparison.differing


class HeldLog(MemoryLog):
    """A log that answers a rebuild only when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def read(self, position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        """Wait, and do it."""
        if limit == CHUNK:
            self.asked.set()
            await self.go_on.wait()
        return await super().read(position, limit, wait_seconds)


async def test_a_stand_by_that_joins_during_a_rebuild_lets_it_go_on_and_takes_over_the_same(tmp_path: Path) -> None:
    verdicts = replace(CATALOG.projections[1], version=2)
    newer = replace(CATALOG, projections=(CATALOG.projections[0], verdicts))
    log = HeldLog()
    async with World(*BOTH, log=log, folder=tmp_path) as world:
        await usual(world)
        old = world.runtimes["catalog"]
        before = await world.doc("catalog", "verdicts", "o1")
        log.asked.clear()
        log.go_on.clear()
        building = asyncio.create_task(rebuild(newer, world.database("catalog"), log, "verdicts"))
        await asyncio.wait_for(log.asked.wait(), 10)
        joining = Runtime(newer, world.database("catalog"), log, world.clock, lease_seconds=0.4)
        await joining.start()
        assert "another process builds p_verdicts_v2" in str(joining.status().errors)
        await old.execute(submit("o40"))
        log.go_on.set()
        await building
        await until(lambda: joining.status().leader)
        assert await joining.docs.get("verdicts", "o1") == before
        await until(joining.idle)
        comparison = await verify(newer, joining.database, world.database("again"), log)
        assert comparison.equal, comparison.differing
        await joining.stop()


async def test_a_damaged_table_is_built_again_in_place() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        runtime = world.runtimes["catalog"]
        whole = await state_hash(runtime.database, CATALOG)
        async with runtime.database.write() as tx:
            await tx.execute(runtime.schema.documents["orders"].update().values(doc='{"order":"?","phase":"?"}'))
        await rebuild(CATALOG, runtime.database, world.log, "orders")
        assert await state_hash(runtime.database, CATALOG) == whole
        with pytest.raises(Unavailable):
            await runtime.execute(submit("o8"))
        assert (await runtime.execute(submit("o8"))).version == 1


async def test_a_new_projection_is_filled_when_its_release_starts() -> None:
    async with World(*BOTH) as world:
        await usual(world)
        old = world.runtimes["catalog"]
        await old.stop()
        extra = replace(CATALOG.projections[0], name="extra", resident=None)
        new = Runtime(
            replace(CATALOG, projections=(*CATALOG.projections, extra)),
            old.database,
            world.log,
            world.clock,
            stepped=True,
        )
        await new.start()
        assert (await new.docs.get("extra", "o1")).phase == "cancelled"
