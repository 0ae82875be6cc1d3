"""Parked records in the hands of an operator: tried again, discarded, many at once."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from qm_events import Event
from qm_events.admission import OrderAdmitted
from qm_events.catalog import OrderSubmitted
from qm_service.items import Input
from qm_service.model import Fold
from qm_service.rebuild import rebuild
from qm_service.redrive import Redriven, Which, ask, redrive, serve
from qm_service.replay import state_hash, verify
from qm_service.runtime import Runtime
from qm_service.testing.world import World
from tests.support.toys import ADMISSION, CATALOG, GENEROUS, ORDERS, VERDICTS, Act, Admit, cancel, submit
from tests.unit.chassis.test_failures import submitted

MANY = int(os.environ.get("QM_SOAK_PARKED", "1200"))
"""Parked at once; 100000 for a soak take minutes: `--timeout 1800`."""


async def poisoned(world: World) -> Runtime:
    """Let an order be parked with its end behind it."""
    world.expects_trouble = True
    await world.execute("catalog", submit("o1", labels={"poison": "yes"}))
    await world.execute("catalog", cancel("o1"))
    await world.settle()
    return world.runtimes["admission"]


async def test_a_record_that_fails_again_says_with_what(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(CATALOG, ADMISSION) as world:
        runtime = await poisoned(world)
        monkeypatch.setitem(runtime.plan.reactions, OrderSubmitted.wire_type, lambda _: 1 / 0)
        assert await redrive(runtime) == Redriven(done=0, waiting=2)
        first, second = await world.parked("admission")
        assert "ZeroDivisionError" in first
        assert "waits behind" in second


async def test_what_an_operator_discards_is_skipped_for_good_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with World(CATALOG, ADMISSION) as world:
        runtime = await poisoned(world)
        which = Which("order/o1", discard=1)
        assert await ask(runtime.database, runtime.schema, which) == 2
        with caplog.at_level(logging.WARNING, "qm_service.redrive"):
            await serve(runtime)
        (told,) = [message for message in caplog.messages if "discarded" in message]
        assert "version 1 of order/o1, which had failed with: ValueError: this order cannot be looked at" in told
        await world.settle()
        assert await world.types("admissions") == ["order.withdrawn"]
        assert await world.parked("admission") == []
        # Asked again, as by a writer that died before it had remembered that it was done.
        assert await redrive(runtime, which) == Redriven(done=0, waiting=0)


async def test_only_the_record_that_was_meant_is_discarded() -> None:
    async with World(CATALOG, ADMISSION) as world:
        runtime = await poisoned(world)
        assert await redrive(runtime, Which("order/o1", discard=2)) == Redriven(done=0, waiting=2)
        assert len(await world.parked("admission")) == 2


def _spoiled(old: Any, event: Event[Any]) -> Any:
    if event.key == "o1":
        raise ValueError("nobody can fold this")
    return VERDICTS.folds[OrderAdmitted].apply(old, event)


async def test_no_rebuild_stumbles_over_what_was_discarded() -> None:
    verdicts = replace(VERDICTS, folds=dict(VERDICTS.folds) | {OrderAdmitted: Fold(_spoiled)})
    spoiled = replace(CATALOG, projections=(ORDERS, verdicts))
    async with World(spoiled, ADMISSION) as world:
        world.expects_trouble = True
        await world.execute("catalog", submit("o1"))
        await world.execute("catalog", submit("o2"))
        await world.execute("catalog", cancel("o1"))
        await world.settle()
        catalog = world.runtimes["catalog"]
        assert await redrive(catalog, Which("admission/o1", discard=1)) == Redriven(done=2, waiting=0)
        assert (await world.doc("catalog", "verdicts", "o1")).phase == "withdrawn"
        comparison = await verify(spoiled, catalog.database, world.database("again"), world.log)
        assert comparison.equal, comparison.differing
        live = await state_hash(catalog.database, spoiled)
        await rebuild(spoiled, catalog.database, world.log, "verdicts")
        assert await state_hash(catalog.database, spoiled) == live


async def test_many_parked_records_are_tried_in_pages_and_the_memory_stays_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capacity = 200
    monkeypatch.setattr("qm_service.writer._CAPACITY", capacity)
    async with World(GENEROUS) as world:
        world.expects_trouble = True
        for i in range(0, MANY, 500):
            await world.log.publish([submitted(f"o{i + k}", poison="yes") for k in range(min(500, MANY - i))])
            await world.settle()
        runtime = world.runtimes["admission"]
        assert runtime.status().parked == MANY
        monkeypatch.setitem(runtime.plan.reactions, OrderSubmitted.wire_type, _admitted)
        pages: list[int] = []
        retry = runtime.retry

        async def observed(items: Sequence[Input]) -> None:
            memory = runtime._engine.writer.memory
            assert memory is not None
            assert max(len(memory.streams), len(memory.seen)) <= capacity
            pages.append(len(items))
            await retry(items)

        monkeypatch.setattr(runtime, "retry", observed)
        assert await redrive(runtime) == Redriven(done=MANY, waiting=0)
        assert (max(pages), sum(pages)) == (500, MANY)
        assert (await world.doc("admission", "used", "acme")).cards == MANY
        assert runtime.status().parked == 0


def _admitted(event: Event[Any]) -> list[Act]:
    return [Act(f"admission/{event.key}", Admit(event.key, event.data.request, event.data.submitted_at))]
