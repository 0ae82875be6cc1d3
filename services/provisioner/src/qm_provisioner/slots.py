"""A limit on the calls that a backend has to bear at once."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from qm_events.specs import Probe
from qm_provisioner.ports import Backend, Check, Ref, Secret, Site, Thing


class Slots:
    """Counted entry, first come first served. It knows who waits, so that a runner can tell waiting from working."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def queued(self) -> int:
        """Return how many wait for a place; whoever was given one does not count, though he may not have moved yet."""
        return sum(not turn.done() for turn in self._queue)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Hold one place."""
        await self._take()
        try:
            yield
        finally:
            self._give()

    async def _take(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give()
            raise

    def _give(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Limited:
    """A backend with at most so many calls in flight; `changed` only waits and takes no place."""

    def __init__(self, backend: Backend, size: int) -> None:
        self._backend = backend
        self.slots = Slots(size)

    async def find(self, order: str, step: str) -> Sequence[Thing]:
        """See `Backend.find`."""
        async with self.slots.enter():
            return await self._backend.find(order, step)

    async def create(self, ref: Ref, spec: Mapping[str, Any]) -> None:
        """See `Backend.create`."""
        async with self.slots.enter():
            await self._backend.create(ref, spec)

    async def delete(self, thing: Thing) -> None:
        """See `Backend.delete`."""
        async with self.slots.enter():
            await self._backend.delete(thing)

    async def changed(self, order: str, step: str) -> None:
        """See `Backend.changed`."""
        await self._backend.changed(order, step)

    async def probe(self, check: Check, site: Site, secret: Secret | None) -> Probe:
        """See `Backend.probe`."""
        async with self.slots.enter():
            return await self._backend.probe(check, site, secret)

    async def list_all(self) -> Sequence[Thing]:
        """See `Backend.list_all`."""
        async with self.slots.enter():
            return await self._backend.list_all()
