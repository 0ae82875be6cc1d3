"""A batch settles some of what there is to settle: what is left waits for the next one, and callers go in between."""

from collections.abc import Sequence
from dataclasses import replace

from qm_service import batch
from qm_service.model import Act, Context
from qm_service.testing.world import World
from tests.support.toys import CATALOG, LIFE, submit

MANY = 2 * batch._SETTLED + 10


def one_by_one(ctx: Context) -> Sequence[Act]:
    """Expire one order a step."""
    return CATALOG.settle(ctx)[:1]


async def test_what_one_batch_does_not_settle_the_next_ones_do_and_nothing_rests_until_then() -> None:
    async with World(replace(CATALOG, settle=one_by_one)) as world:
        runtime, committed = world.runtimes["catalog"], list[int]()
        for number in range(MANY):
            await world.execute("catalog", submit(f"o{number}"))
        runtime.committed.append(lambda events: committed.append(len(events)))
        world.clock.advance(LIFE)
        await runtime.step()
        assert committed == [batch._SETTLED]
        assert not runtime.idle()
        await world.settle()
        assert committed == [batch._SETTLED, batch._SETTLED, 10]
        assert runtime.idle()
