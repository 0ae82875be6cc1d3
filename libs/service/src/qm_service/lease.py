"""One writer at a time. Who holds the lease raises its beat in every transaction and names its epoch; who lost it fails
there, however long it slept. Nobody compares the clocks of two machines."""

import os
import socket
import time

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_service.clock import new_id
from qm_service.database import Database
from qm_service.schema import Schema

_FREE = ""


class LeaseLost(Exception):
    """Another process is the writer now: what was decided here is void."""


class Lease:
    """The lease on one service's database. `seconds`: how long the beat must stand still before another takes over."""

    def __init__(self, schema: Schema, database: Database, service: str, seconds: float) -> None:
        self.epoch = 0
        self.seconds = seconds
        self._table = schema.lease
        self._database = database
        self._service = service
        self._holder = f"{socket.gethostname()} {os.getpid()} {new_id()}"
        self._watched: tuple[int, int] | None = None
        self._since = 0.0
        self.renewed = 0.0
        """When others were told last that we live, by `monotonic`."""
        mine = (self._table.c.service == service) & (self._table.c.epoch == bindparam("mine"))
        self._renew = self._table.update().where(mine).values(beat=self._table.c.beat + 1)

    async def acquire(self) -> bool:
        """Take the lease if it is free or its holder stopped; ask again until it is. Raises DatabaseUnavailable."""
        table = self._table
        async with self._database.read() as tx:
            row = (await tx.execute(select(table).where(table.c.service == self._service))).first()
        if row is not None and not self._may_take(row.holder, row.epoch, row.beat):
            return False
        async with self._database.write() as tx:
            row = (await tx.execute(select(table).where(table.c.service == self._service).with_for_update())).first()
            if row is None:
                values = {"service": self._service, "epoch": 1, "holder": self._holder, "beat": 0}
                await tx.execute(table.insert().values(**values))
                self.epoch = 1
                return True
            if not self._may_take(row.holder, row.epoch, row.beat):
                return False
            change = table.update().where(table.c.service == self._service)
            await tx.execute(change.values(epoch=row.epoch + 1, holder=self._holder, beat=row.beat + 1))
            self.epoch = row.epoch + 1
        return True

    def _may_take(self, holder: str, epoch: int, beat: int) -> bool:
        if holder in (_FREE, self._holder) or (self._database.sqlite and _is_dead(holder)):
            return True
        if self._watched != (epoch, beat):
            self._watched, self._since = (epoch, beat), time.monotonic()
        return time.monotonic() - self._since >= self.seconds

    async def fence(self, tx: AsyncConnection) -> None:
        """Make the transaction fail unless we are the writer, and tell others that we live. Raises LeaseLost."""
        # The row lock of this update also makes a new holder wait until we have committed.
        done = await tx.execute(self._renew, {"mine": self.epoch})
        if done.rowcount != 1:
            raise LeaseLost(f"epoch {self.epoch} of {self._service} has ended")
        self.renewed = time.monotonic()

    async def release(self) -> None:
        """Let the next one take over at once. Raises DatabaseUnavailable."""
        table = self._table
        mine = (table.c.service == self._service) & (table.c.epoch == self.epoch)
        async with self._database.write() as tx:
            await tx.execute(table.update().where(mine).values(holder=_FREE))


def _is_dead(holder: str) -> bool:
    """Tell whether a holder has ended: an SQLite file is local, so nobody has to wait for the time-out."""
    host, pid, _ = holder.split(" ")
    if host != socket.gethostname() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
