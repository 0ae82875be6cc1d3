"""A projection and its positions through kills and pauses at random moments: the count is right to the card."""

import asyncio
import random
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from qm_events import new_event
from qm_events.catalog import OrderSubmitted
from qm_events.registry import TOPICS
from qm_service.log import LogUnavailable, Message, first_positions
from qm_service.log_sqlite import SqliteLog
from qm_service.store import message_of
from qm_service.testing.log_contract import read_all
from qm_service.testing.world import START
from tests.crash.counting_service import LEASE_SECONDS, counter
from tests.support.toys import request
from tests.unit.chassis.support import until

pytestmark = pytest.mark.crash

KILLS = 8
PAUSES = 4


class Orders:
    """Publishes orders all the time, some of them twice."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        self.log = SqliteLog(folder / "log.db")
        self._enough = False

    async def __aenter__(self) -> Self:
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
            messages = [submitted(f"o{self.count + i}") for i in range(20)]
            with suppress(LogUnavailable):  # a paused process may have locked the file: the same again
                await self.log.publish(messages + chance.sample(messages, 3))
                self.count += 20
            await asyncio.sleep(0.05)


def submitted(order: str) -> Message:
    """Return an order's first fact as it lies on the log."""
    data = OrderSubmitted(order=order, request=request(labels={"order": order}), digest="d", submitted_at=START)
    return message_of(new_event(f"order/{order}", 1, START, "/quartermaster/catalog", data, tenant="acme"))


class Services:
    """The service under test, in processes of its own; `commits` has the process of each commit."""

    def __init__(self, folder: Path) -> None:
        self.commits: asyncio.Queue[Process] = asyncio.Queue()
        self._arguments = ["-m", "tests.crash.counting_service", folder / "log.db", folder / "admission.db"]
        self._followed: list[tuple[Process, asyncio.Task[None]]] = []

    async def run(self) -> None:
        """Start another process."""
        process = await asyncio.create_subprocess_exec(sys.executable, *self._arguments, stdout=asyncio.subprocess.PIPE)
        self._followed.append((process, asyncio.create_task(self._follow(process))))

    async def _follow(self, process: Process) -> None:
        while process.stdout and await process.stdout.readline():
            self.commits.put_nowait(process)

    async def kill(self) -> None:
        """End all of them as a power cut would."""
        for process, following in self._followed:
            process.kill()
            await process.wait()
            await following
        self._followed = []
        self.commits = asyncio.Queue()

    async def commit(self, times: int, *, of_other_than: object = None, seconds: float = 60.0) -> Process:
        """Wait for so many commits, of a process that is not a given one; return whose the last was."""
        async with asyncio.timeout(seconds):
            while times:
                process = await self.commits.get()
                times -= process is not of_other_than
        return process


async def assert_exact(folder: Path, orders: Orders) -> None:
    """Let the service finish: every order counts once, was decided once, and the decision was published."""
    await orders.stop()
    runtime = counter(str(folder / "log.db"), str(folder / "admission.db"))
    await runtime.start()
    ends = await orders.log.ends(["orders"])
    await until(lambda: runtime.status().leader and runtime.at_rest(ends), 60)
    document = await runtime.docs.get("used", "acme")
    async with runtime.database.read() as tx:
        streams = [row.stream for row in await tx.execute(runtime.schema.events.select())]
    await runtime.stop()
    await runtime.database.close()
    await runtime.log.close()
    assert (document.cards, len(streams), len(set(streams))) == (orders.count,) * 3
    records = await read_all(orders.log, first_positions([TOPICS["admissions"]]), 1_000)
    assert {record.subject for record in records} == set(streams)


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    """Processes that end with the test."""
    made = Services(tmp_path)
    yield made
    await made.kill()


async def test_a_counter_that_is_killed_at_random_moments_is_exact(tmp_path: Path, services: Services) -> None:
    chance = random.Random(11)
    async with Orders(tmp_path) as orders:
        for _ in range(KILLS):
            await services.run()
            await services.commit(chance.randint(1, 6))
            await asyncio.sleep(chance.random() * 0.03)
            await services.kill()
        await assert_exact(tmp_path, orders)


async def test_a_writer_that_was_paused_beyond_its_lease_cannot_spoil_the_count(
    tmp_path: Path, services: Services
) -> None:
    chance, taken_over = random.Random(5), 0
    async with Orders(tmp_path) as orders:
        await services.run()
        await services.run()
        for _ in range(PAUSES):
            writer = await services.commit(chance.randint(1, 6))
            await asyncio.sleep(chance.random() * 0.03)
            writer.send_signal(signal.SIGSTOP)
            # One that was stopped within a transaction keeps the file locked: then nobody takes over.
            with suppress(TimeoutError):
                await services.commit(1, of_other_than=writer, seconds=LEASE_SECONDS * 10)
                taken_over += 1
            writer.send_signal(signal.SIGCONT)
        await services.kill()
        assert taken_over
        await assert_exact(tmp_path, orders)
