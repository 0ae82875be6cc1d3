"""Alarms and slots."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from qm_provisioner.alarms import Alarms
from qm_provisioner.slots import Slots
from qm_service.clock import ManualClock


@asynccontextmanager
async def running(clock: ManualClock) -> AsyncIterator[Alarms]:
    alarms = Alarms(clock)
    task = asyncio.create_task(alarms.run())
    yield alarms
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_sleepers_wake_when_the_clock_is_moved_and_not_before() -> None:
    clock = ManualClock()
    async with running(clock) as alarms:
        now = clock.now()
        await alarms.until(now)
        late = asyncio.create_task(alarms.until(now + timedelta(hours=2)))
        soon = asyncio.create_task(alarms.until(now + timedelta(hours=1)))
        await turns()
        assert alarms.asleep() == 2
        clock.advance(timedelta(hours=1))
        assert alarms.asleep() == 1, "who is due is awake, also before he noticed"
        await asyncio.wait_for(soon, 1)
        assert not late.done()
        clock.advance(timedelta(hours=1))
        await asyncio.wait_for(late, 1)
        assert alarms.asleep() == 0


async def test_a_cancelled_alarm_does_not_ring_and_does_not_stay() -> None:
    clock = ManualClock()
    rung: list[int] = []
    async with running(clock) as alarms:
        for number in range(5_000):
            at = clock.now() + timedelta(days=number + 1)
            alarms.cancel(alarms.set(at, lambda number=number: rung.append(number)))  # type: ignore[misc]  # bound early
        kept = alarms.set(clock.now() + timedelta(minutes=1), lambda: rung.append(-1))
        assert len(alarms._heap) < 2_500
        clock.advance(timedelta(days=9_000))
        await turns()
        alarms.cancel(kept)
    assert rung == [-1]


async def test_slots_are_given_in_order_and_none_is_lost() -> None:
    slots = Slots(2)
    entered: list[int] = []
    gates = [asyncio.Event() for _ in range(5)]

    async def work(number: int) -> None:
        async with slots.enter():
            entered.append(number)
            await gates[number].wait()

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    await turns()
    assert (entered, slots.queued) == ([0, 1], 3)
    tasks[2].cancel()
    await turns()
    assert slots.queued == 2
    gates[0].set()
    await turns()
    assert (entered, slots.queued) == ([0, 1, 3], 1)
    for gate in gates:
        gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert entered == [0, 1, 3, 4]
    async with slots.enter(), slots.enter():
        assert slots.queued == 0


async def test_a_slot_given_to_one_who_is_cancelled_is_passed_on() -> None:
    slots = Slots(1)
    await slots._take()
    first, second = (asyncio.create_task(slots._take()) for _ in range(2))
    await turns()
    slots._give()
    first.cancel()
    await asyncio.wait_for(second, 1)
    with pytest.raises(asyncio.CancelledError):
        await first
