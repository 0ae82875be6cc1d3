"""Closes months: records what runs up to the end of the month, takes the digest over its lines, seals it.

A month that is due is closed by the `Closer`, once nothing of the month can still be unread; an operator may close one
earlier, within the grace. Both are commands, so no replay closes anything.
"""

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256

from sqlalchemy import select

from qm_metering.consumers import Behind, zones_of
from qm_metering.intervals import micros
from qm_metering.months import Zones, bounds, months_until
from qm_metering.periods import PERIODS, BeginClosing, Period, Seal, period_key
from qm_metering.problems import PeriodNotReady
from qm_metering.projections import LEDGER
from qm_service.commands import Cause
from qm_service.database import DatabaseUnavailable
from qm_service.model import Act, Context
from qm_service.runtime import Refused, Runtime, Unavailable

_logger = logging.getLogger(__name__)

GRACE = timedelta(hours=72)
"""How long after its end a month waits for late facts before it closes by itself."""
DIGESTED = (
    "key", "meter", "scope", "order", "accelerator", "service_model", "cards", "from_us", "to_us", "priced",
)  # fmt: skip
"""The columns of a line that the digest is taken over, in this order."""
_CHUNK = 5_000
_LOOK_SECONDS = 60
_RETRY_SECONDS = 1


async def close(runtime: Runtime, tenant: str, month: str, cause: Cause) -> Period:
    """Close a month and return it; one that is closed stays as it is.

    Raises Refused where it is not over, PeriodNotReady where facts or lines of it are still on their way.
    """
    if (why := _unread(runtime, bounds(month, zones_of(runtime.context(), tenant))[1])) is not None:
        raise PeriodNotReady(why)
    stream = f"period/{tenant}"
    begin = BeginClosing(tenant, month, zones_of(runtime.context(), tenant))
    await runtime.execute(Act(stream, begin, tenant=tenant), cause)
    lines, digest = await digest_of(runtime, tenant, month)
    await runtime.execute(Act(stream, Seal(tenant, month, lines, digest), tenant=tenant), Cause(tenant=tenant))
    doc: Period = runtime.context().docs.resident(PERIODS)[period_key(tenant, month)]
    return doc


async def digest_of(runtime: Runtime, tenant: str, month: str) -> tuple[int, str]:
    """Return how many lines a month has, and the SHA-256 over them in the order of their ids."""
    table, digest, lines, last = runtime.schema.documents[LEDGER.name], sha256(), 0, ""
    columns = [table.c[name] for name in DIGESTED]
    mine = table.c.period == period_key(tenant, month)
    while True:
        async with runtime.database.read() as tx:
            query = select(*columns).where(mine, table.c.key > last).order_by(table.c.key).limit(_CHUNK)
            rows = (await tx.execute(query)).all()
        for row in rows:
            digest.update(("|".join(map(str, row)) + "\n").encode())
        lines += len(rows)
        if len(rows) < _CHUNK:
            return lines, digest.hexdigest()
        last = rows[-1].key


def _unread(runtime: Runtime, end_us: int) -> str | None:
    """Return what of the time before an instant may not have been read yet; None: nothing."""
    status = runtime.status()
    for place, why in sorted(status.halted.items()):
        return f"{place} is not read: {why}"
    for topic, lag in sorted(status.lag.items()):
        since_us = micros(runtime.clock.now()) - end_us
        if lag.events and lag.age_seconds * 1_000_000 >= since_us:
            return f"{lag.events} facts of {topic} are not read yet."
    return None


def due(ctx: Context, until_us: int) -> Iterator[tuple[str, str]]:
    """Yield (tenant, month) of what ended by an instant and is not closed: with lines, or with something that ran."""
    docs: dict[str, Period] = dict(ctx.docs.resident(PERIODS))
    for tenant in sorted({*(doc.tenant for doc in docs.values()), *ctx.index.tenants()}):
        zones = zones_of(ctx, tenant)
        for month in sorted({*_with_lines(docs, tenant), *_running(ctx.index, tenant, zones, until_us)}):
            doc = docs.get(period_key(tenant, month))
            if (doc is None or doc.state != "closed") and bounds(month, zones)[1] <= until_us:
                yield tenant, month


def _with_lines(docs: dict[str, Period], tenant: str) -> Iterator[str]:
    return (doc.period for doc in docs.values() if doc.tenant == tenant)


def _running(index: Behind, tenant: str, zones: Zones, until_us: int) -> Iterator[str]:
    earliest = index.earliest(tenant)
    return iter(()) if earliest is None else months_until(earliest, until_us, zones)


class Closer:
    """The worker that closes months whose grace is over."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name="closer")

    async def stop(self) -> None:
        """End; what was begun is found again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def idle(self) -> bool:
        """Tell whether no month is due."""
        try:
            return not self._due()
        except Unavailable:
            return True

    async def step(self) -> None:
        """Close what is due, the oldest first of each tenant."""
        for tenant, month in self._due():
            await close(self._runtime, tenant, month, Cause(tenant=tenant))

    def _due(self) -> list[tuple[str, str]]:
        return list(due(self._runtime.context(), micros(self._runtime.clock.now() - GRACE)))

    async def _run(self) -> None:
        while True:
            try:
                await self.step()
            except (Unavailable, DatabaseUnavailable, PeriodNotReady, Refused) as error:
                _logger.info("months are closed later: %s", error)
                await self._runtime.clock.wait(None, _RETRY_SECONDS)
            else:
                await self._runtime.clock.wait(None, _LOOK_SECONDS)
