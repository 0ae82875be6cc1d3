"""A service that counts cards, until it is killed; prints a line after each commit."""

import asyncio
import sys

from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log_sqlite import SqliteLog
from qm_service.runtime import Runtime
from tests.support import toys

LEASE_SECONDS = 1.0


def counter(log: str, database: str) -> Runtime:
    """Return the service; it admits everything, so every order counts."""
    toys.LIMIT = 10**9
    place = Database(f"sqlite+aiosqlite:///{database}", durable=False)
    return Runtime(toys.ADMISSION, place, SqliteLog(log), WallClock(), lease_seconds=LEASE_SECONDS, batch=20)


async def main(log: str, database: str) -> None:
    """Run for ever."""
    service = counter(log, database)
    service.committed.append(lambda events: print(len(events), flush=True))
    await service.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
