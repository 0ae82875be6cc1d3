"""The service on the chassis: a log that repeats and mixes, restarts in between, and a rebuild from the topics."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from qm_admission.book import SetLimits
from qm_admission.consumers import ADMISSION
from qm_events import EventData, new_event
from qm_events.catalog import OrderExtensionRequested, OrderSubmitted
from qm_events.registry import TOPICS
from qm_events.scheduler import AllocationWithdrawn
from qm_service.clock import ManualClock
from qm_service.database import Database
from qm_service.log_memory import MemoryLog
from qm_service.model import Act
from qm_service.replay import verify
from qm_service.runtime import Runtime
from qm_service.store import message_of
from qm_service.testing.nasty import NastyLog
from qm_service.testing.world import World
from tests.unit.admission.desk import START, TENANT, request
from tests.unit.admission.model import Model, Step, history
from tests.unit.admission.stage import Stage, staged
from tests.unit.admission.test_ledger import known
from tests.unit.chassis.support import until


async def follow(stage: Stage, step: Step) -> None:
    runtime = stage.world.runtimes["admission"]
    match step.said:
        case None:
            await runtime.stop()
            await runtime.start()
        case SetLimits():
            await runtime.execute(Act(step.stream, step.said, tenant="acme"))
        case EventData():
            await stage.publish(step.stream, step.said)


async def states(stage: Stage) -> dict[str, object]:
    """The orders as folds of what is on the topic."""
    decider, found = ADMISSION.deciders[0], {}
    for fact in await stage.world.facts("admissions"):
        if order := getattr(fact, "order", None):
            found[order] = decider.evolve(found.get(order, decider.initial), fact)
    return found


async def check_the_rebuild(stage: Stage) -> None:
    runtime = stage.world.runtimes["admission"]
    comparison = await verify(ADMISSION, runtime.database, stage.world.database("rebuilt"), stage.world.log)
    assert comparison.equal, comparison.differing


@pytest.mark.parametrize("seed", range(3))
async def test_the_service_does_what_a_full_rescan_would_do(seed: int, tmp_path: Path) -> None:
    model = Model()
    async with staged(World(folder=tmp_path, log=NastyLog(MemoryLog(), seed))) as stage:
        for step in history(seed, 40):
            await follow(stage, step)
            await stage.world.settle()
            step.follow(model)
            model.settle()
        found = await states(stage)
        assert {order: known(state) for order, state in found.items()} == model.known
        await check_the_rebuild(stage)


@pytest.mark.parametrize("seed", range(4))
async def test_the_ledger_adds_up_whatever_comes_when_and_how_often(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    async with staged(World(folder=tmp_path, log=NastyLog(MemoryLog(), seed))) as stage:
        streams: dict[str, list[Step]] = {}
        for step in history(seed + 100, 120):
            streams.setdefault(step.stream, []).append(step)
        while streams:
            stream = random.choice(sorted(streams))
            await follow(stage, streams[stream].pop(0))
            streams = {name: steps for name, steps in streams.items() if steps}
            if random.random() < 0.1:
                await stage.world.settle()
        await stage.world.settle()
        await check_the_ledger(stage)
        await check_the_rebuild(stage)


async def check_the_ledger(stage: Stage) -> None:
    used: dict[str, Counter[str]] = {}
    refunds: Counter[str] = Counter()
    for fact in await stage.world.facts("admissions"):
        match fact.wire_type.removesuffix(".v1"):
            case "quota.claimed":
                sign, amounts = 1, fact.amounts
            case "quota.committed":
                sign, amounts = -1, fact.returned
            case "quota.refunded":
                sign, amounts = -1, fact.amounts
                refunds[fact.order] += 1
            case _:
                continue
        for scope in fact.scopes:
            for name, amount in amounts.values.items():
                used.setdefault(scope, Counter())[name] += sign * amount
    assert not refunds or max(refunds.values()) == 1
    assert min((amount for scope in used.values() for amount in scope.values()), default=0) >= 0
    for name, doc in stage.world.runtimes["admission"].context().docs.resident("scopes").items():
        assert doc.used == +used.get(name, Counter())


async def test_a_threshold_that_was_said_before_keeps_nobody_waiting_for_what_was_given_back() -> None:
    """Both are noticed in one batch, and nothing else happens after it."""
    log, database, clock = MemoryLog(), Database("sqlite+aiosqlite://", durable=False), ManualClock(START)
    runtime = Runtime(ADMISSION, database, log, clock)
    await log.start()
    await log.ensure_topics(TOPICS.values())
    await runtime.start()
    versions: Counter[str] = Counter()

    async def tell(*told: tuple[str, EventData]) -> None:
        versions.update(stream for stream, _ in told)
        events = [new_event(stream, versions[stream], START, "/test", data, tenant=TENANT) for stream, data in told]
        await log.publish([message_of(event) for event in events])
        ends = await log.ends([topic.name for topic in TOPICS.values()])
        await until(lambda: runtime.at_rest(ends))

    def submitted(number: int, hours: int) -> tuple[str, EventData]:
        asked, at = request(duration_seconds=hours * 3_600), START + timedelta(seconds=number)
        return f"order/o{number}", OrderSubmitted(order=f"o{number}", request=asked, digest="d", submitted_at=at)

    def left(order: str) -> tuple[str, EventData]:
        return f"allocation/{order}", AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=START)

    limits = SetLimits(TENANT, None, {"cards": 2, "card_hours_month": 100})
    await runtime.execute(Act("quota/acme", limits, tenant=TENANT))
    await tell(submitted(1, 40))
    await tell(submitted(2, 40))
    await tell(left("o2"))
    await tell(submitted(3, 1))
    await tell(submitted(4, 1))
    assert list(runtime.context().docs.resident("waiting")) == ["o4"]
    longer = OrderExtensionRequested(order="o1", expires_at=START + timedelta(hours=85), requested_at=START)
    await tell(left("o3"), ("order/o1", longer))
    assert runtime.context().docs.resident("scopes")[TENANT].reached == {"card_hours_month@2026-06": 80}
    assert list(runtime.context().docs.resident("waiting")) == []
    await runtime.stop()
    await database.close()
    await log.close()
