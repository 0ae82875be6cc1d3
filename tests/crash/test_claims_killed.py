"""The ledger of quota through kills before and after every transaction: it adds up, nothing is given back twice, and
nobody is forgotten."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from qm_admission.book import SetLimits
from qm_admission.consumers import ADMISSION
from qm_events import EventData, decode, new_event
from qm_events.catalog import OrderSubmitted
from qm_events.registry import TOPICS
from qm_events.scheduler import AllocationWithdrawn
from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log import Message, first_positions
from qm_service.log_sqlite import SqliteLog
from qm_service.model import Act
from qm_service.runtime import Runtime
from qm_service.store import message_of
from qm_service.testing.log_contract import read_all
from tests.crash.forks import FORKS
from tests.unit.admission.desk import START, TENANT, request
from tests.unit.admission.test_gates import ends
from tests.unit.chassis.support import until

pytestmark = pytest.mark.crash

WAVES, EACH, CARDS, LIVES = 24, 8, 12, 2
LIMITS = {"cards": CARDS, "card_hours_month": 100}


def told(stream: str, version: int, data: EventData) -> Message:
    return message_of(new_event(stream, version, START, "/quartermaster/test", data, tenant=TENANT))


def submitted(number: int) -> Iterator[Message]:
    order, at = f"o{number:03}", START + timedelta(seconds=number)
    asked = request(("vision", "speech")[number % 2], 1 + number % 3, duration_seconds=3_600)
    yield told(f"order/{order}", 1, OrderSubmitted(order=order, request=asked, digest="d", submitted_at=at))


def ended(number: int) -> Iterator[Message]:
    """The end of an order by three services, each told twice."""
    order = f"o{number:03}"

    class At:
        now = START

    for data, stream in ends(At, order):  # type: ignore[arg-type]  # all that it reads of a desk is the time
        if isinstance(data, AllocationWithdrawn) or number % 2:
            version = 2 if stream.startswith("environment/") and "quarantined" not in data.wire_type else 1
            yield told(stream, version, data)


def wave(number: int) -> list[Message]:
    """Some orders begin, and those of two waves before end; all of it is delivered twice."""
    new = range(number * EACH, (number + 1) * EACH) if number < WAVES - LIVES else range(0)
    old = range((number - LIVES) * EACH, (number - LIVES + 1) * EACH) if number >= LIVES else range(0)
    messages = [it for one in new for it in submitted(one)]
    for one in old:
        messages += sorted(ended(one), key=lambda it: (it.subject, it.version))
    return messages * 2


def serve(log: str, database: str, writes: int, after: bool, heard: "Connection[int, int]") -> None:
    """Serve in a process of its own; say so before or after a given transaction, and wait for the end."""
    asyncio.run(_serve(log, database, writes, after, heard))


async def _serve(log: str, database: str, writes: int, after: bool, heard: "Connection[int, int]") -> None:
    place, left = Database(database, durable=False), writes
    write = place.write

    @asynccontextmanager
    async def counted() -> AsyncIterator[Any]:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            _wait(heard)
        async with write() as tx:
            yield tx
        if left == 0 and after:
            _wait(heard)

    place.write = counted  # type: ignore[method-assign]  # the moment of the kill
    source = SqliteLog(log)
    runtime = Runtime(ADMISSION, place, source, WallClock(), lease_seconds=0.2, batch=5)
    await source.start()
    await runtime.start()
    ends_ = await source.ends([topic.name for topic in TOPICS.values()])
    await until(lambda: runtime.status().leader and runtime.at_rest(ends_), 60)
    _wait(heard)


def _wait(heard: "Connection[int, int]") -> None:
    heard.send(1)
    signal.pause()


def killed(log: Path, database: str, writes: int, after: bool) -> None:
    """Serve until the transaction, or until there is nothing to do, and kill."""
    heard, told_ = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=serve, args=(str(log), database, writes, after, told_), daemon=True)
    process.start()
    told_.close()
    assert heard.poll(60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    heard.close()


async def test_the_ledger_adds_up_whenever_it_is_killed(tmp_path: Path) -> None:
    log, url = SqliteLog(tmp_path / "log.db"), f"sqlite+aiosqlite:///{tmp_path}/admission.db"
    await log.start()
    await log.ensure_topics(TOPICS.values())
    database = Database(url, durable=False)
    runtime = Runtime(ADMISSION, database, log, WallClock(), stepped=True)
    await runtime.start()
    await runtime.execute(Act("quota/acme", SetLimits(TENANT, None, LIMITS), TENANT))
    await runtime.stop()
    chance = random.Random(7)
    for number in range(WAVES):
        await log.publish(wave(number))
        await asyncio.to_thread(killed, tmp_path / "log.db", url, chance.randrange(3, 24), bool(number % 2))
    runtime = Runtime(ADMISSION, database, log, WallClock(), lease_seconds=0.2)
    await runtime.start()
    at_end = await log.ends([topic.name for topic in TOPICS.values()])
    await until(lambda: runtime.status().leader and runtime.at_rest(at_end), 60)
    scopes = runtime.context().docs.resident("scopes")
    assert {name: doc.used for name, doc in scopes.items()} == {name: {} for name in scopes}
    assert not runtime.context().docs.resident("waiting")
    await runtime.stop()
    await check_the_topic(log)
    await database.close()
    await log.close()


async def check_the_topic(log: SqliteLog) -> None:
    """Read what was told: no limit passed at any position of a stream, one answer and one refund an order."""
    seen: dict[str, dict[int, Any]] = {}
    for record in await read_all(log, first_positions([TOPICS["admissions"]]), 1_000):
        seen.setdefault(record.subject, {})[record.version] = decode(record.value, record.type).data
    names = Counter(data.wire_type for stream in seen.values() for data in stream.values())
    assert len(seen) == (WAVES - LIVES) * EACH
    assert names["quota.claimed.v1"] == names["order.admitted.v1"] == names["quota.refunded.v1"] > WAVES
    for stream, facts in seen.items():
        assert sorted(facts) == list(range(1, len(facts) + 1)), stream
        claims = [it for it in facts.values() if it.wire_type == "quota.claimed.v1"]
        refunds = [it for it in facts.values() if it.wire_type == "quota.refunded.v1"]
        assert len(claims) == len(refunds) <= 1, stream
        assert [it.amounts for it in claims] == [it.amounts for it in refunds]
