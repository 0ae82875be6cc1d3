"""A projection and its positions through kills, pauses and restarts at random moments: the count is right to the card,
and what is told of an order is told in its order."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

import pytest

from qm_events import new_event
from qm_events.catalog import OrderCancelRequested, OrderSubmitted
from qm_events.registry import TOPICS
from qm_service.log import LogUnavailable, Message, first_positions
from qm_service.log_url import log_from
from qm_service.store import message_of
from qm_service.testing.log_contract import read_all
from qm_service.testing.world import START
from tests.crash.counting_service import LEASE_SECONDS, counter, work
from tests.crash.forks import FORKS
from tests.support.servers import Kafka
from tests.support.topics import wipe
from tests.support.toys import request
from tests.unit.chassis.support import until

pytestmark = pytest.mark.crash

KILLS = {"sqlite": 20, "distributed": 12}
TAKEOVERS = 2
PAUSES_MAX = 12
MEMBERS, RESTARTS = 3, 10
BATCH = 20


@dataclass(frozen=True)
class Place:
    """Where the service under test has its log and its database."""

    kind: str
    log: str
    database: str


@pytest.fixture(params=["sqlite", pytest.param("distributed", marks=pytest.mark.integration)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty one: in files, or on Kafka and PostgreSQL."""
    if request.param == "sqlite":
        return Place("sqlite", f"sqlite:///{tmp_path}/log.db", f"sqlite+aiosqlite:///{tmp_path}/admission.db")
    kafka: Kafka = request.getfixturevalue("kafka")
    wipe(kafka.servers)
    return Place("distributed", f"kafka://{kafka.servers}", request.getfixturevalue("database_url"))


def signals(process: BaseProcess, how: signal.Signals) -> None:
    """Send a signal to a process that was started."""
    assert process.pid is not None
    os.kill(process.pid, how)


class Orders:
    """Publishes orders all the time, and the end of each a while later; some facts twice."""

    def __init__(self, place: Place) -> None:
        self.count = 0
        self.ended = 0
        self.log = log_from(place.log)
        self._enough = False

    async def __aenter__(self) -> Self:
        await self.log.start()
        await self.log.ensure_topics(TOPICS.values())
        self._publishing = asyncio.create_task(self._publish())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self.log.close()

    async def stop(self) -> None:
        """Finish what it is at."""
        self._enough = True
        await self._publishing

    async def _publish(self) -> None:
        chance = random.Random(3)
        while not self._enough:
            messages = [submitted(f"o{self.count + i}") for i in range(BATCH)]
            messages += [cancelled(f"o{i}") for i in range(self.ended, self.count)]
            with suppress(LogUnavailable):  # a paused process may have locked the file: the same again
                await self.log.publish(messages + chance.sample(messages, 3))
                self.ended, self.count = self.count, self.count + BATCH
            await asyncio.sleep(0.1)


def submitted(order: str) -> Message:
    """Return an order's first fact as it lies on the log."""
    data = OrderSubmitted(order=order, request=request(labels={"order": order}), digest="d", submitted_at=START)
    return message_of(new_event(f"order/{order}", 1, START, "/quartermaster/catalog", data, tenant="acme"))


def cancelled(order: str) -> Message:
    """Return its second fact."""
    data = OrderCancelRequested(order=order, requested_at=START)
    return message_of(new_event(f"order/{order}", 2, START, "/quartermaster/catalog", data, tenant="acme"))


class Services:
    """The service under test, in processes of its own; `commits` has the process of each commit."""

    def __init__(self, place: Place) -> None:
        self.commits: asyncio.Queue[BaseProcess] = asyncio.Queue()
        self._place = place
        self._ended: dict[BaseProcess, asyncio.Event] = {}

    async def run(self) -> BaseProcess:
        """Start another process; it is up on return."""
        heard, told = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=work, args=(self._place.log, self._place.database, told), daemon=True)
        await asyncio.to_thread(process.start)
        told.close()
        self._ended[process], up = asyncio.Event(), asyncio.Event()
        asyncio.get_running_loop().add_reader(heard, self._hear, heard, process, up)
        await asyncio.wait_for(up.wait(), 60)
        return process

    def _hear(self, heard: "Connection[int, int]", process: BaseProcess, up: asyncio.Event) -> None:
        try:
            if heard.recv():
                self.commits.put_nowait(process)
            else:
                up.set()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(heard)
            heard.close()
            self._ended[process].set()

    async def end(self, process: BaseProcess, how: signal.Signals) -> int | None:
        """End one with a signal; return its exit code."""
        signals(process, how)
        await asyncio.wait_for(self._ended[process].wait(), 30)
        del self._ended[process]
        await asyncio.to_thread(process.join, 30)
        return process.exitcode

    async def kill(self) -> None:
        """End all of them as a power cut would."""
        for process in [*self._ended]:
            await self.end(process, signal.SIGKILL)

    async def commit(self, times: int, *, of_other_than: object = None, seconds: float = 60.0) -> BaseProcess:
        """Wait for so many commits, of a process that is not a given one; return whose the last was."""
        async with asyncio.timeout(seconds):
            while times:
                process = await self.commits.get()
                times -= process is not of_other_than
        return process


async def assert_exact(place: Place, orders: Orders) -> None:
    """Let the service finish: every order counts once, was decided once, and all that was decided is told in order."""
    await orders.stop()
    runtime = counter(place.log, place.database, batch=500)
    await runtime.start()
    ends = await orders.log.ends(["orders"])
    await until(lambda: runtime.status().leader and runtime.at_rest(ends), 60)
    document = await runtime.docs.get("used", "acme")
    async with runtime.database.read() as tx:
        stored = {(row.stream, row.version) for row in await tx.execute(runtime.schema.events.select())}
    await runtime.stop()
    await runtime.database.close()
    await runtime.log.close()
    told: dict[str, list[int]] = {}
    for record in await read_all(orders.log, first_positions([TOPICS["admissions"]]), 1_000):
        told.setdefault(record.subject, []).append(record.version)
    firsts = {stream: list(dict.fromkeys(versions)) for stream, versions in told.items()}
    assert document.cards == orders.count
    assert firsts == {f"admission/o{i}": [1, 2] if i < orders.ended else [1] for i in range(orders.count)}
    assert stored == {(stream, version) for stream, versions in firsts.items() for version in versions}


@pytest.fixture
async def services(place: Place) -> AsyncIterator[Services]:
    """Processes that end with the test."""
    made = Services(place)
    yield made
    await made.kill()


async def test_a_counter_that_is_killed_at_random_moments_is_exact(place: Place, services: Services) -> None:
    chance = random.Random(11)
    async with Orders(place) as orders:
        await services.run()
        await services.run()
        for _ in range(KILLS[place.kind]):
            writer = await services.commit(chance.randint(1, 6))
            await asyncio.sleep(chance.random() * 0.03)
            await services.end(writer, signal.SIGKILL)
            services.commits = asyncio.Queue()
            await services.run()
        await services.kill()
        await assert_exact(place, orders)


async def test_a_writer_that_was_paused_beyond_its_lease_cannot_spoil_the_count(
    place: Place, services: Services
) -> None:
    chance, pauses, taken_over = random.Random(5), 0, 0
    async with Orders(place) as orders:
        await services.run()
        await services.run()
        while taken_over < TAKEOVERS:
            pauses += 1
            assert pauses <= PAUSES_MAX
            writer = await services.commit(chance.randint(1, 6))
            await asyncio.sleep(chance.random() * 0.03)
            signals(writer, signal.SIGSTOP)
            # One that was stopped within a transaction keeps what it locked: then nobody takes over so soon.
            with suppress(TimeoutError):
                await services.commit(1, of_other_than=writer, seconds=LEASE_SECONDS * 10)
                taken_over += 1
            signals(writer, signal.SIGCONT)
        await services.kill()
        await assert_exact(place, orders)


async def test_members_that_are_restarted_one_after_the_other_skip_nothing(place: Place, services: Services) -> None:
    async with Orders(place) as orders:
        members: Sequence[BaseProcess] = [await services.run() for _ in range(MEMBERS)]
        for _ in range(RESTARTS):
            # The next one starts while the others work, so that it costs no pause.
            for old in members:
                members = [*members[1:], await services.run()]
                assert await services.end(old, signal.SIGTERM) == 0
                services.commits = asyncio.Queue()
                await services.commit(1)
        await services.kill()
        await assert_exact(place, orders)
