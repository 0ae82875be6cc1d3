"""A service that counts cards, until it is killed or asked to end; says 0 when it is up, then how much it commits."""

import asyncio
import signal
from multiprocessing.connection import Connection

from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log_url import log_from
from qm_service.runtime import Runtime
from tests.support.toys import GENEROUS

LEASE_SECONDS = 1.0


def counter(log: str, database: str, batch: int = 20) -> Runtime:
    """Return the service on a log and a database; it admits everything, so every order counts."""
    place = Database(database, durable=False)
    return Runtime(GENEROUS, place, log_from(log), WallClock(), lease_seconds=LEASE_SECONDS, batch=batch)


def work(log: str, database: str, told: "Connection[int, int]") -> None:
    """Be the service, in a process of its own."""
    asyncio.run(_work(log, database, told))


async def _work(log: str, database: str, told: "Connection[int, int]") -> None:
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    service = counter(log, database)
    service.committed.append(lambda events: told.send(len(events)))
    told.send(0)
    await service.log.start()
    await service.start()
    await ending.wait()
    await service.stop()
    await service.database.close()
    await service.log.close()
