"""The chassis on PostgreSQL: what only a database with several writers at once can break."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text

from qm_events import Event, new_event
from qm_events.catalog import OrderCancelRequested
from qm_events.registry import TOPICS
from qm_service import database as database_module
from qm_service.clock import ManualClock, WallClock
from qm_service.commands import Cause, Unavailable, VersionConflict
from qm_service.database import Database, DatabaseUnavailable
from qm_service.log import Record, first_positions
from qm_service.log_memory import MemoryLog
from qm_service.rebuild import rebuild
from qm_service.relay import Relay
from qm_service.replay import state_hash, verify
from qm_service.runtime import Runtime
from qm_service.schema import create, schema_of
from qm_service.store import ANY, NEW, SqlEventStore
from qm_service.testing.world import START, World
from tests.support.servers import Postgres
from tests.support.toys import ADMISSION, CATALOG, cancel, submit
from tests.unit.chassis.support import until
from tests.unit.chassis.test_replay import CATALOG_2, play

pytestmark = pytest.mark.integration

_WRITERS = 12
_PER_WRITER = 100


def fact(stream: str, version: int) -> Event[Any]:
    """Return a fact for a stream."""
    data = OrderCancelRequested(order=stream, requested_at=START)
    return new_event(stream, version, START, "/quartermaster/catalog", data)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Database, SqlEventStore, MemoryLog]]:
    """Give a database with tables, its store and a log."""
    database, log = Database(url), MemoryLog()
    await log.ensure_topics(TOPICS.values())
    schema = schema_of(CATALOG)
    await create(database, schema)
    yield database, SqlEventStore(schema, database), log
    await database.close()


async def published(log: MemoryLog) -> Sequence[Record]:
    """Return all records of the orders."""
    return await log.read(first_positions([TOPICS["orders"]]), 1_000_000)


async def test_a_relay_beside_slow_and_failing_writers_loses_nothing_and_keeps_each_stream_in_order(
    database_url: str,
) -> None:
    chance = random.Random(7)
    committed: list[tuple[str, int]] = []

    async def write(writer: int) -> None:
        version = 0
        for _ in range(_PER_WRITER):
            stream = f"order/w{writer}"
            try:
                async with database.write() as tx:
                    await store.append(tx, stream, version, [fact(stream, version + 1)])
                    await asyncio.sleep(chance.random() * 0.02)
                    if chance.random() < 0.2:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
            version += 1
            committed.append((stream, version))

    async def publish() -> None:
        while not writers.done() or await relay.run_once():
            await relay.run_once()
            await asyncio.sleep(0.001)

    async with opened(database_url) as (database, store, log):
        relay = Relay(schema_of(CATALOG), database, log)
        writers = asyncio.gather(*(write(i) for i in range(_WRITERS)))
        await publish()
        records = [(record.subject, record.version) for record in await published(log)]
    assert sorted(records) == sorted(committed)
    for writer in range(_WRITERS):
        order = [version for stream, version in records if stream == f"order/w{writer}"]
        assert order == list(range(1, len(order) + 1))


async def test_of_two_writers_with_one_expected_version_one_wins_and_no_hole_is_left(database_url: str) -> None:
    async with opened(database_url) as (database, store, _):

        async def write() -> bool:
            try:
                async with database.write() as tx:
                    await store.append(tx, "order/o1", NEW, [fact("order/o1", 1)])
            except VersionConflict:
                return False
            return True

        assert sorted(await asyncio.gather(*(write() for _ in range(8)))) == [False] * 7 + [True]
        with pytest.raises(VersionConflict):
            async with database.write() as tx:
                await store.append(tx, "order/o1", 5, [fact("order/o1", 6)])
        with pytest.raises(VersionConflict):
            async with database.write() as tx:
                await store.append(tx, "order/o1", ANY, [fact("order/o1", 7)])
        async with database.read() as tx:
            assert [event.version for event in await store.load(tx, "order/o1")] == [1]


async def test_processes_that_start_at_once_make_the_tables_once(database_url: str) -> None:
    processes = [Database(database_url) for _ in range(4)]
    await asyncio.gather(*(create(process, schema_of(CATALOG)) for process in processes))
    async with processes[0].read() as tx:
        assert (await tx.execute(schema_of(CATALOG).events.select())).all() == []
    for process in processes:
        await process.close()


async def answer(database: Database, question: str = "SELECT 1") -> object:
    """Return what a small question comes to."""
    try:
        async with database.read() as tx:
            return (await tx.execute(text(question))).scalar_one()
    except DatabaseUnavailable as error:
        return str(error)


async def refusal(database: Database) -> object:
    """Return what a server says as soon as it does not answer any more."""
    async with asyncio.timeout(20):
        while (found := await answer(database)) == 1:  # noqa: ASYNC110  # a server has no event
            await asyncio.sleep(0.01)
    return found


async def test_a_server_that_lets_nobody_in_is_unavailable_not_broken(database_url: str) -> None:
    server = database_url.rpartition("/")[0]
    admin, missing = Database(database_url), Database(f"{server}/missing")
    nobody = Database(database_url.replace("quartermaster@", "poor@"))
    assert "does not exist" in str(await answer(missing))
    assert "does not exist" in str(await answer(nobody))
    async with admin.write() as tx:
        await tx.execute(text("CREATE ROLE poor LOGIN CONNECTION LIMIT 0"))
    assert "too many connections" in str(await answer(nobody))
    async with admin.write() as tx:
        await tx.execute(text("ALTER ROLE poor CONNECTION LIMIT 1"))
    assert await answer(nobody) == 1
    assert "terminating" in str(await answer(nobody, "SELECT pg_terminate_backend(pg_backend_pid(), 5000)"))
    assert await answer(nobody) == 1
    for database in (nobody, missing):
        await database.close()
    async with admin.write() as tx:
        await tx.execute(text("DROP ROLE poor"))
    await admin.close()


async def test_a_server_that_shuts_down_is_unavailable_until_it_is_back() -> None:
    with Postgres() as server:
        url = server.database("moody")
        holding, asking = Database(url), Database(url)
        async with holding.read() as tx:
            assert (await tx.execute(text("SELECT 1"))).scalar_one() == 1
            server.let_go()
            assert "shutting down" in str(await refusal(asking))
        await holding.close()
        restarted = asyncio.create_task(asyncio.to_thread(server.restart))
        while not restarted.done():
            assert isinstance(await answer(asking), str | int)
            await asyncio.sleep(0.01)
        assert await answer(asking) == 1
        await asking.close()


async def test_services_walk_rebuild_and_swap_a_projection(postgres: Postgres) -> None:
    async with World() as world:
        for definition in (CATALOG, ADMISSION):
            database = world.own(Database(postgres.database(f"walk_{definition.name}")))
            await world.add(Runtime(definition, database, world.log, world.clock)).start()
        await play(world, [("submit", i) for i in range(7)] + [("cancel", 2), ("wait", 13), ("submit", 8)])
        catalog = world.runtimes["catalog"]
        live = await state_hash(catalog.database, CATALOG)
        for position, (name, runtime) in enumerate(world.runtimes.items()):
            fresh = world.own(Database(postgres.database(f"walk_again_{position}")))
            comparison = await verify(runtime.definition, runtime.database, fresh, world.log)
            assert comparison.equal, (name, comparison.differing)
        beside = world.database("sqlite")
        assert (await verify(CATALOG, catalog.database, beside, world.log)).equal
        await rebuild(CATALOG_2, catalog.database, world.log, "orders")
        await rebuild(CATALOG, catalog.database, world.log, "orders")
        assert await state_hash(catalog.database, CATALOG) == live


async def test_a_writer_that_slept_cannot_commit_after_another_took_over(database_url: str) -> None:
    async with World() as world:
        old = world.add(Runtime(CATALOG, world.own(Database(database_url)), world.log, world.clock, lease_seconds=0.5))
        await old.start()
        await world.execute("catalog", submit("o1"))
        new = Runtime(CATALOG, world.own(Database(database_url)), world.log, ManualClock(START), lease_seconds=0.5)
        await new.start()
        await until(lambda: new.status().leader)
        with pytest.raises(Unavailable):
            await old.execute(cancel("o1"))
        await new.execute(cancel("o1"))
        assert [event.version for event in await new.history("order/o1")] == [1, 2]
        await new.stop()


async def test_a_writer_that_was_paused_within_a_transaction_lets_the_next_one_in(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database_module._SERVER_SETTINGS, "idle_in_transaction_session_timeout", "1s")
    async with World() as world:
        paused = world.own(Database(database_url))
        old = world.add(Runtime(CATALOG, paused, world.log, world.clock, lease_seconds=0.5))
        await old.start()
        new = Runtime(CATALOG, world.own(Database(database_url)), world.log, ManualClock(START), lease_seconds=0.5)

        async def write_and_sleep() -> None:
            async with paused.write() as tx:
                await tx.execute(old.schema.lease.update().values(beat=7))
                await new.start()
                await until(lambda: new.status().leader)

        with pytest.raises(DatabaseUnavailable):
            await write_and_sleep()
        await new.execute(submit("o1"))
        await new.stop()


async def test_while_the_server_is_gone_nothing_is_acknowledged_and_work_resumes() -> None:
    log = MemoryLog()
    await log.ensure_topics(TOPICS.values())
    with Postgres(durable=True) as server:
        database = Database(server.database("gone"))
        runtime = Runtime(CATALOG, database, log, WallClock(), lease_seconds=2.0)
        await runtime.start()
        acknowledged: list[str] = []

        async def client(number: int) -> None:
            for i in range(30):
                order = f"c{number}-{i}"
                while order not in acknowledged:
                    try:
                        await runtime.execute(submit(order), Cause(idempotency=order, request="body"))
                        acknowledged.append(order)
                    except Unavailable:
                        await asyncio.sleep(0.05)

        clients = asyncio.gather(*(client(i) for i in range(4)))
        await until(lambda: len(acknowledged) > 20)
        await asyncio.to_thread(server.kill9)
        await until(lambda: not runtime.status().ready)
        before = len(acknowledged)
        await asyncio.sleep(1.0)
        assert len(acknowledged) == before
        await asyncio.to_thread(server.restart)
        await asyncio.wait_for(clients, 60)
        await until(runtime.idle)
        records = await published(log)
        assert {record.subject for record in records} == {f"order/{order}" for order in acknowledged}
        async with database.read() as tx:
            stored = (await tx.execute(runtime.schema.events.select())).all()
        assert len(stored) == len(acknowledged) == 120
        await runtime.stop()
        await database.close()
