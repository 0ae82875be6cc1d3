"""The record on a log that repeats, delays and mixes: the same as on one that does not."""

import random

import pytest

from qm_catalog.consumers import CATALOG
from qm_catalog.domain import RECORDS, Release, Submit, act
from qm_events import Event, EventData
from qm_service.log import EventLog
from qm_service.log_memory import MemoryLog
from qm_service.testing.nasty import NastyLog
from qm_service.testing.world import World
from tests.unit.catalog.walk import ORDER, REQUEST, STORIES


def mixed(seed: int) -> list[Event[EventData]]:
    """Return the facts of the other services in a served order, the topics mixed, each in its own order."""
    queues = [list(told) for topic, told in STORIES["served"].items() if topic != "orders"]
    facts, rnd = [], random.Random(seed)
    while queues := [queue for queue in queues if queue]:
        facts.append(rnd.choice(queues).pop(0))
    return facts


async def record(log: EventLog, seed: int) -> object:
    """Play a served order and return its record."""
    async with World(CATALOG, log=log) as world:
        await world.execute("catalog", act(Submit(ORDER, REQUEST), "acme", "vision"))
        await world.execute("catalog", act(Release(ORDER), "acme", "vision"))
        for fact in mixed(seed):
            await world.publish(fact)
            if seed % 2:
                await world.settle()
        await world.settle()
        assert await world.types("orders") == ["order.submitted", "order.release_requested"]
        return await world.doc("catalog", RECORDS, ORDER)


@pytest.mark.parametrize("seed", range(8))
async def test_the_record_does_not_depend_on_how_the_log_behaves(seed: int) -> None:
    assert await record(NastyLog(MemoryLog(), seed), seed) == await record(MemoryLog(), 0)
