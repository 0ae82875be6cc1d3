"""What a service says of its backlog: how much waits, for how long, and whether that is its own fault."""

import pytest

from qm_service import status
from qm_service.log import Position
from qm_service.log_memory import MemoryLog
from qm_service.plan import plan_of
from qm_service.status import Status, Watch
from tests.support.toys import ADMISSION
from tests.unit.chassis.test_failures import submitted

ORDERS = ("orders", 3)


class HeldLog(MemoryLog):
    """A log with a foreign transaction that somebody left open."""

    def __init__(self) -> None:
        super().__init__()
        self.held: Position = {}

    async def blocked(self) -> Position:
        """Return what it keeps back."""
        return self.held


class Ticks:
    """Stands for `monotonic`."""

    now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """The clock of the status."""
    made = Ticks()
    monkeypatch.setattr(status, "monotonic", made)
    return made


def summed_up(watch: Watch) -> Status:
    """Return the status of a leader that nothing else troubles."""
    return watch.status(leader=True, epoch=1, parked=0, halted={}, failure=None)


async def watched() -> tuple[Watch, HeldLog]:
    """Return a service's watch over a log with its topics; nothing was ever published."""
    log, plan = HeldLog(), plan_of(ADMISSION)
    await log.ensure_topics(plan.inputs)
    watch = Watch(plan, log)
    watch.progress({(topic.name, i): 0 for topic in plan.inputs for i in range(topic.partitions)})
    return watch, log


async def test_an_idle_topic_has_no_lag_and_is_healthy_for_ever(ticks: Ticks) -> None:
    watch, _ = await watched()
    for _ in range(3):
        await watch.look()
        found = summed_up(watch)
        assert (found.ready, found.lag["orders"].events, found.lag["orders"].age_seconds) == (True, 0, 0.0)
        ticks.now += 3_600


async def test_what_a_foreign_transaction_keeps_back_is_lag_that_ages_and_no_fault_of_the_service(ticks: Ticks) -> None:
    watch, log = await watched()
    log.held = {ORDERS: 2, ("usage", 0): 5}
    await watch.look()
    ticks.now += 90
    await watch.look()
    found = summed_up(watch)
    assert found.ready
    assert {topic: (lag.events, lag.age_seconds) for topic, lag in found.lag.items()} == {"orders": (2, 90.0)}
    log.held = {}
    await watch.look()
    assert summed_up(watch).lag["orders"] == status.Lag(0, 0.0)


async def test_a_service_that_does_not_read_what_is_there_is_not_ready(ticks: Ticks) -> None:
    watch, log = await watched()
    ticks.now += 3_600
    await log.publish([submitted("o1")])
    await watch.look()
    ticks.now += 29
    assert summed_up(watch).ready
    ticks.now += 2
    assert (summed_up(watch).ready, summed_up(watch).lag["orders"].age_seconds) == (False, 31.0)
    watch.progress(await log.ends(["orders"]))
    assert (summed_up(watch).ready, summed_up(watch).lag["orders"].events) == (True, 0)
