"""Card-hours on the chassis: a log that repeats and mixes topics, restarts in between, a rebuild from the topics."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from qm_admission.book import SetLimits
from qm_admission.hours import of_months
from qm_events.catalog import OrderSubmitted
from qm_events.metering import UsageCorrected, UsageRecorded
from qm_service.log_memory import MemoryLog
from qm_service.model import Act
from qm_service.testing.nasty import NastyLog
from qm_service.testing.world import START, World
from tests.unit.admission.desk import TENANT, Desk, request
from tests.unit.admission.stage import Stage, staged
from tests.unit.admission.test_hours_ledger import Play, Said
from tests.unit.admission.test_world import check_the_rebuild

ORDERS = 14


def lives(random: Random) -> Play:
    """What other services say of some orders, made up beforehand: nothing of it depends on admission."""
    play = Play(random, Desk())
    for number in range(ORDERS):
        order, cards = f"o{number:02}", random.choice([1, 2])
        ready = START + timedelta(minutes=random.choice([0, 30, 3_000]))
        end = ready + timedelta(minutes=random.choice([0, 90, 5_000, 60_000]))
        play.walk(order, cards, START, ready, end, end + timedelta(minutes=random.choice([0, 9])))
        asked = request(cards=cards, **random.choice([{}, {"duration_seconds": 90 * 60}]))
        submitted = OrderSubmitted(order=order, request=asked, digest=order, submitted_at=START)
        play.streams[f"order/{order}"] = [Said(f"order/{order}", submitted, START)]
    return play


async def tell(stage: Stage, play: Play, random: Random) -> None:
    """Tell all of it, streams mixed, with restarts."""
    runtime = stage.world.runtimes["admission"]
    while play.streams:
        stream = random.choice(sorted(play.streams))
        said = play.streams[stream].pop(0)
        if not play.streams[stream]:
            del play.streams[stream]
        if said.at > stage.world.clock.now():
            stage.world.clock.set(said.at)
        await stage.publish(stream, said.data)
        if isinstance(said.data, UsageRecorded | UsageCorrected) and said.data.meter == "billable":
            play.lines.append(said.data)
        if random.random() < 0.1:
            await runtime.stop()
            await runtime.start()
        if random.random() < 0.3:
            await stage.world.settle()
    await stage.world.settle()


@pytest.mark.parametrize("seed", range(4))
async def test_what_stays_used_is_what_metering_said_and_a_rebuild_says_the_same(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    async with staged(World(folder=tmp_path, log=NastyLog(MemoryLog(), seed))) as stage:
        runtime = stage.world.runtimes["admission"]
        await runtime.execute(Act("quota/acme", SetLimits(TENANT, None, {"card_hours_month": 10**6}), tenant=TENANT))
        play = lives(random)
        for stream in [name for name in play.streams if name.startswith("order/")]:
            await stage.publish(stream, play.streams.pop(stream)[0].data)
        await stage.world.settle()
        await tell(stage, play, random)
        settled = play.settled()
        for name in ("acme", "acme/vision"):
            doc = await stage.world.doc("admission", "scopes", name)
            assert Counter(doc.used) == Counter(of_months(doc.used)) == Counter(doc.settled) == settled
        assert runtime.context().docs.resident("clocks") == {}
        await check_the_rebuild(stage)
