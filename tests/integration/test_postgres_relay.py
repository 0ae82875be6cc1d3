"""The relay on a PostgreSQL server that others use too: their open transactions keep facts back, and nothing else."""

import asyncio

import pytest
from sqlalchemy import text

from qm_service.clock import WallClock
from qm_service.database import Database
from qm_service.log_memory import MemoryLog
from qm_service.relay import Relay
from qm_service.runtime import Runtime
from qm_service.schema import schema_of
from tests.support.servers import Postgres
from tests.support.toys import CATALOG, submit
from tests.unit.chassis.support import until

pytestmark = pytest.mark.integration

PROMPT_SECONDS = 2.0


async def test_a_fact_kept_back_by_a_foreign_transaction_is_no_rest_and_comes_soon_after_it(
    postgres: Postgres, database_url: str
) -> None:
    foreign, own, log = Database(postgres.database("relay_neighbour")), Database(database_url), MemoryLog()
    runtime = Runtime(CATALOG, own, log, WallClock())
    await runtime.start()
    async with foreign.write() as tx:
        await tx.execute(text("SELECT pg_current_xact_id()"))
        await runtime.execute(submit("o1"))
        relay = Relay(schema_of(CATALOG), own, log)
        assert (await relay.run_once(), relay.drained, runtime.idle()) == (False, False, False)
    async with asyncio.timeout(PROMPT_SECONDS):
        await until(runtime.idle)
    assert sum((await log.ends(["orders"])).values()) == 1
    await runtime.stop()
    await own.close()
    await foreign.close()
