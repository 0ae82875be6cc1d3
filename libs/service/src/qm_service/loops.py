"""The loops of a service that runs by itself: write, read ahead, publish, tick, watch."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import Any

from qm_service.commands import Unavailable
from qm_service.database import DatabaseUnavailable
from qm_service.engine import Engine
from qm_service.inputs import ReplayNeeded
from qm_service.lease import LeaseLost
from qm_service.log import LogUnavailable, PositionLost, Record, TopicMisconfigured
from qm_service.rebuild import Busy, Outdated
from qm_service.redrive import serve
from qm_service.refold import BrokenHistory

_logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5
_READ_SECONDS = 0.5
_AGAIN_SECONDS = 1.0
_SWEEP_SECONDS = 5.0
_LOOK_SECONDS = 2.0
_PORTION = 50
"""Inputs between two turns of waiting commands."""
_BLOCKED_SECONDS = 0.01
"""How soon the relay looks again for facts that an open transaction keeps back."""
TROUBLE = (
    DatabaseUnavailable,
    LeaseLost,
    LogUnavailable,
    PositionLost,
    ReplayNeeded,
    TopicMisconfigured,
    Outdated,
    Busy,
    BrokenHistory,
)
"""What may pass, or be put right by an operator: try again until then, and say so."""


class Loops:
    """Runs an engine: as the writer while it can be, else waiting to become it."""

    def __init__(self, engine: Engine) -> None:
        self.ready = asyncio.Event()
        """Was the writer once."""
        self.stopping = False
        self.records: Sequence[Record] = ()
        """Read ahead."""
        self._engine = engine
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Lead, or wait to lead, until `stopping`."""
        engine = self._engine
        while not self.stopping:
            try:
                if await engine.begin():
                    self.ready.set()
                    engine.watch.well("start")
                    await self._serve()
                else:
                    engine.watch.well("start")
            except TROUBLE as error:
                engine.watch.trouble("start", error)
            except Exception as error:
                engine.watch.trouble("start", error)
                _logger.exception("%s failed and starts again", engine.definition.name)
            if not self.stopping:
                engine.dismiss()
                await asyncio.sleep(min(_RETRY_SECONDS, engine.lease.seconds / 4))

    def dead(self) -> str | None:
        """Return the name of a loop that ended though it should run."""
        return next((task.get_name() for task in self._tasks if task.done()), None) if not self.stopping else None

    async def _serve(self) -> None:
        """Run all loops until one fails or all are to stop."""
        self.records = ()
        self._wanted.set()
        self._engine.wake.set()
        loops = [self._write, self._read, self._publish, self._tick, self._redrive, self._engine.watch.run]
        self._tasks = [asyncio.create_task(loop(), name=loop.__name__.strip("_")) for loop in loops]
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end(*self._tasks)
            self._tasks = []

    async def _write(self) -> None:
        engine = self._engine
        while not self.stopping:
            await engine.wake.wait()
            engine.wake.clear()
            if engine.queue or not self.records:
                await engine.turn()
            if self.records:
                await engine.turn(self._portion())
            if engine.queue or self.records or engine.writer.unsettled:
                engine.wake.set()

    def _portion(self) -> Sequence[Record]:
        """Take what is read ahead; only some of it while commands wait, whose callers wait with them."""
        size = _PORTION if self._engine.queue else len(self.records)
        portion, self.records = self.records[:size], self.records[size:]
        if not self.records:
            self._wanted.set()
        return portion

    async def _read(self) -> None:
        engine = self._engine
        while True:
            await self._wanted.wait()
            try:
                await engine.ensure_topics()
                records = await engine.inputs.read(engine.batch, _READ_SECONDS)
                engine.watch.well("log")
            except (LogUnavailable, PositionLost) as error:
                engine.watch.trouble("log", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if records:
                self._wanted.clear()
                self.records = records
                engine.wake.set()
            elif not engine.inputs.reads:
                await asyncio.sleep(_READ_SECONDS)

    async def _publish(self) -> None:
        engine, relay = self._engine, self._engine.relay
        while True:
            relay.wake.clear()
            try:
                await engine.ensure_topics()
                while await relay.run_once() and not relay.drained:
                    pass
                engine.watch.well("relay")
            except (LogUnavailable, DatabaseUnavailable) as error:
                engine.watch.trouble("relay", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            # The end of the transaction that keeps a fact back wakes nobody.
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS if relay.drained else _BLOCKED_SECONDS):
                    await relay.wake.wait()

    async def _tick(self) -> None:
        """Wake the writer when something is due, and keep the lease when nothing happens."""
        engine = self._engine
        interval = engine.lease.seconds / 3
        served: datetime | None = None
        again = 0.0
        while True:
            engine.rearm.clear()
            # What is still due after the writer looked gets another look in a while, not at once.
            until = None if engine.due == served else engine.due
            await _first(engine.clock.wait(until, min(interval, _AGAIN_SECONDS)), engine.rearm.wait())
            if engine.is_due() and (engine.due != served or monotonic() >= again):
                served, again = engine.due, monotonic() + _AGAIN_SECONDS
                engine.wake.set()
            if monotonic() - engine.lease.renewed >= interval:
                await engine.beat()

    async def _redrive(self) -> None:
        """Try parked records again when an operator asked for it."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            memory = self._engine.writer.memory
            if memory is not None and memory.parked:
                with suppress(Unavailable):
                    await serve(self._engine)


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of the coroutines has ended; cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*tasks)


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks until they have ended: a cancellation can get lost (in `asyncio.wait_for` before Python 3.12)."""
    pending = set(tasks)
    while pending := {task for task in pending if not task.done()}:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.1)
    await asyncio.gather(*tasks, return_exceptions=True)
