"""Effects happen for every fact, are not repeated when done, and are out of reach of a replay."""

from typing import Any

from qm_events import Event
from qm_events.catalog import OrderCancelRequested, OrderSubmitted
from qm_service.model import Definition
from qm_service.reactor import Reactor
from qm_service.replay import replay
from qm_service.runtime import Runtime
from qm_service.testing.world import World
from tests.support.toys import CATALOG, cancel, submit


class Calls:
    """A cloud that records what it was asked, and refuses when told to."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.refuses = False

    async def __call__(self, event: Event[Any]) -> str:
        """Take a call."""
        if self.refuses:
            raise ConnectionError("the cloud is away")
        self.made.append(f"{event.type} {event.key}")
        return "done"


def reactor(world: World, runtime: Runtime, calls: Calls, *, from_start: bool = True) -> Reactor:
    """Return a reactor to orders."""
    handlers = {OrderSubmitted: calls, OrderCancelRequested: calls}
    return Reactor("caller", CATALOG, runtime.database, world.log, world.clock, handlers, from_start=from_start)


async def drain(one: Reactor) -> None:
    """Let it do what there is to do."""
    while await one.step():
        pass


async def test_every_fact_has_its_effect_once() -> None:
    calls = Calls()
    async with World(CATALOG) as world:
        one = reactor(world, world.runtimes["catalog"], calls)
        await world.execute("catalog", submit("o1"))
        await world.execute("catalog", cancel("o1"))
        await world.settle()
        await drain(one)
        await drain(one)
        assert calls.made == ["order.submitted.v1 o1", "order.cancel_requested.v1 o1"]
        assert one.idle()


async def test_an_effect_that_fails_is_tried_again_and_later_ones_of_its_partition_wait() -> None:
    calls = Calls()
    async with World(CATALOG) as world:
        one = reactor(world, world.runtimes["catalog"], calls)
        await world.execute("catalog", submit("o1"))
        await world.execute("catalog", cancel("o1"))
        await world.settle()
        calls.refuses = True
        await drain(one)
        assert "the cloud is away" in str(one.failing)
        calls.refuses = False
        await drain(one)
        assert calls.made == ["order.submitted.v1 o1", "order.cancel_requested.v1 o1"]


async def test_an_effect_that_was_done_is_not_repeated_when_the_position_was_lost() -> None:
    calls = Calls()
    async with World(CATALOG) as world:
        runtime = world.runtimes["catalog"]
        one = reactor(world, runtime, calls)
        await world.execute("catalog", submit("o1"))
        await world.settle()
        await drain(one)
        await one.stop()
        async with runtime.database.write() as tx:
            await tx.execute(runtime.schema.positions.delete().where(runtime.schema.positions.c.consumer != ""))
        await drain(reactor(world, runtime, calls))
        assert calls.made == ["order.submitted.v1 o1"]


async def test_a_new_reactor_begins_at_the_end_of_the_log() -> None:
    calls = Calls()
    async with World(CATALOG) as world:
        await world.execute("catalog", submit("o1"))
        await world.settle()
        one = reactor(world, world.runtimes["catalog"], calls, from_start=False)
        await drain(one)
        await world.execute("catalog", submit("o2"))
        await world.settle()
        await drain(one)
        assert calls.made == ["order.submitted.v1 o2"]


async def test_a_replay_makes_no_calls_because_a_definition_cannot_hold_a_reactor() -> None:
    calls = Calls()
    async with World(CATALOG) as world:
        one = reactor(world, world.runtimes["catalog"], calls)
        await world.execute("catalog", submit("o1"))
        await world.settle()
        await replay(CATALOG, world.database("again"), world.log)
        assert calls.made == []
        assert "Reactor" not in str(Definition.__annotations__)
        await one.stop()
