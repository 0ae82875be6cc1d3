"""Admission walks through a story and is killed at every await that reaches its database or the log.

An await in between changes nothing that outlives the process: to die before the first access, and after each, is to die
at each await. What a query found is fetched from memory.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from qm_admission.consumers import ADMISSION
from qm_events import decode
from qm_events.registry import TOPICS
from qm_service import log_sqlite, sqlite_driver
from qm_service.clock import ManualClock
from qm_service.commands import Cause
from qm_service.database import Database
from qm_service.log import Message, first_positions
from qm_service.log_sqlite import SqliteLog
from qm_service.model import Act
from qm_service.replay import state_hash
from qm_service.runtime import Runtime
from qm_service.testing.log_contract import read_all

OWN = ("admissions", "quotas")
LIMIT = 400
"""Accesses that no step needs."""
_ACCESSES: Mapping[type, tuple[str, ...]] = {
    sqlite_driver.Cursor: ("execute", "executemany"),
    sqlite_driver.Connection: ("commit", "rollback"),
    log_sqlite.SqliteLog: ("publish", "read"),
}


@dataclass(frozen=True)
class Step:
    """What happens next: the clock stands at `at`, facts of others come, commands are given, time alone passes."""

    name: str
    at: datetime
    facts: tuple[Message, ...] = ()
    acts: tuple[Act, ...] = ()
    said: tuple[str, ...] = ()
    """What admission says to it, on both its topics, sorted."""
    killed: bool = True


@dataclass(frozen=True)
class State:
    """All that is left of it: what is on the topics, by stream, and the database by its hashes."""

    facts: Mapping[str, list[Any]]
    hashes: Mapping[str, str]


def said_between(before: State, after: State) -> tuple[str, ...]:
    """Return the names of what was said, audits left out, sorted."""
    names = [
        data.wire_type.rpartition(".")[0]
        for stream, facts in after.facts.items()
        for data in facts[len(before.facts.get(stream, ())) :]
        if "audited" not in data.wire_type
    ]
    return tuple(sorted(names))


@asynccontextmanager
async def opened(folder: Path, at: datetime) -> AsyncIterator[Runtime]:
    """Run admission on a folder, by hand."""
    log, database = SqliteLog(folder / "log.db", durable=False), _database(folder)
    await log.start()
    await log.ensure_topics(TOPICS.values())
    runtime = Runtime(ADMISSION, database, log, ManualClock(at), lease_seconds=0.2, stepped=True)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
        await database.close()
        await log.close()


def _database(folder: Path) -> Database:
    return Database(f"sqlite+aiosqlite:///{folder}/admission.db", durable=False)


async def play(runtime: Runtime, step: Step) -> None:
    """Do what the step asks for, as a client who repeats his command under its key, until all is at rest."""
    for number, act in enumerate(step.acts):
        await runtime.execute(act, Cause(actor="test", idempotency=f"{step.name}-{number}", request="same"))
    while await runtime.step() or not runtime.idle():
        pass


async def tell(folder: Path, step: Step) -> None:
    """Put the facts of others on the log."""
    log = SqliteLog(folder / "log.db", durable=False)
    await log.ensure_topics(TOPICS.values())
    if step.facts:
        await log.publish(step.facts)
    await log.close()


async def rest(folder: Path, step: Step) -> State:
    """Play a step to its end, and return what is left."""
    async with opened(folder, step.at) as runtime:
        await play(runtime, step)
    return await state(folder)


async def state(folder: Path) -> State:
    """Return what is left. Versions of a stream that are missing or differ between repetitions raise AssertionError."""
    log, database = SqliteLog(folder / "log.db", durable=False), _database(folder)
    found: dict[str, dict[int, Any]] = {}
    for record in await read_all(log, first_positions([TOPICS[name] for name in OWN]), 1_000):
        data = decode(record.value, record.type).data
        assert found.setdefault(record.subject, {}).setdefault(record.version, data) == data, record
    for stream, facts in found.items():
        assert sorted(facts) == list(range(1, len(facts) + 1)), stream
    hashes = await state_hash(database, ADMISSION)
    await log.close()
    await database.close()
    facts = {stream: [found[stream][n] for n in sorted(found[stream])] for stream in sorted(found)}
    return State(facts, hashes)


def walk(steps: Sequence[Step], folder: str, tells: "Connection[str, str]") -> None:
    """Tell a story, each step that says so killed at every access in turn; then how many kills that were, or a fault.

    Runs in a process of its own that has one thread, so that it can be copied: a copy dies in the place of it.
    """
    try:
        tells.send(f"{_walk(steps, Path(folder))} kills")
    except AssertionError as error:
        tells.send(f"fault: {error}")


def _walk(steps: Sequence[Step], folder: Path) -> int:
    base, kills = folder / "base", 0
    base.mkdir()
    before = State({}, {})
    for step in steps:
        asyncio.run(tell(base, step))
        whole = Path(shutil.copytree(base, folder / "whole"))
        expected = asyncio.run(rest(whole, step))
        said = said_between(before, expected)
        assert said == step.said, f"{step.name}: said {said}, not {step.said}"
        if step.killed:
            kills += _kill_everywhere(base, folder / "killed", step, expected)
        shutil.rmtree(base)
        whole.rename(base)
        before = expected
    return kills


def _kill_everywhere(base: Path, folder: Path, step: Step, expected: State) -> int:
    for access in range(1, LIMIT):
        shutil.copytree(base, folder)
        died = _dies(folder, step, access)
        left = asyncio.run(rest(folder, step))
        shutil.rmtree(folder)
        assert left == expected, f"{step.name}, killed at access {access}: {said_between(expected, left)} {left}"
        if not died:
            return access - 1
    raise AssertionError(f"{step.name} never ends")


def _dies(folder: Path, step: Step, access: int) -> bool:
    """Let a copy of this process play the step and die at an access; False when it had fewer."""
    child = os.fork()
    if child == 0:
        asyncio.run(_doomed(folder, step, access))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0, status
    return os.WIFSIGNALED(status)


async def _doomed(folder: Path, step: Step, access: int) -> None:
    async with opened(folder, step.at) as runtime:
        _arm(access)
        await play(runtime, step)


def _arm(access: int) -> None:
    """Die before the first access from now on, or after that many."""
    count = 1

    def strike() -> None:
        nonlocal count
        if count == access:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    strike()
    for owner, names in _ACCESSES.items():
        for name in names:
            setattr(owner, name, _struck(getattr(owner, name), strike))


def _struck(original: Any, strike: Callable[[], None]) -> Any:
    async def access(*args: Any, **more: Any) -> Any:
        found = await original(*args, **more)
        strike()
        return found

    return access
