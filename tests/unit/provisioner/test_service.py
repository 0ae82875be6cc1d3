"""The provisioner as a service: on the log, over restarts and replays."""

import sqlite3
from pathlib import Path

from qm_events.catalog import OrderCancelRequested, OrderExpired
from qm_provisioner.consumers import PROVISIONER
from qm_service.database import Database
from qm_service.replay import verify
from qm_service.testing.world import World
from tests.unit.provisioner.stage import Stage, staged

MODELS = ("bare_metal", "vm", "kubernetes", "maas")


def cloud(folder: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(folder / "clouds.sqlite") as db:
        rows = db.execute("SELECT order_id, step FROM things WHERE gone_us IS NULL ORDER BY id").fetchall()
    db.close()
    return rows


async def test_a_flow_costs_a_handful_of_transactions(stage: Stage) -> None:
    commits: list[int] = []
    stage.service.runtime.committed.append(lambda events: commits.append(len(events)))
    await stage.allocate("o1", "vm")
    built = len(commits)
    assert built <= 7, "one to begin, one a step, one for the checks"
    await stage.release("o1")
    assert len(commits) - built <= 6
    assert sum(commits) <= 35


async def test_cancel_and_expiry_end_an_environment_and_say_why(stage: Stage) -> None:
    at = stage.world.clock.now()
    for order, cause, fact in (
        ("o1", "cancelled", OrderCancelRequested(order="o1", requested_at=at)),
        ("o2", "expired", OrderExpired(order="o2", expired_at=at)),
    ):
        await stage.allocate(order)
        await stage.publish(f"order/{order}", fact)
        await stage.world.settle()
        shown = await stage.done("GET", f"/environments/{order}")
        assert (shown["phase"], shown["cause"]) == ("released", cause)


async def test_steps_take_their_time_on_the_clock(stage: Stage) -> None:
    steps = {"volume": {"delay_seconds": 30, "fail_times": 1}, "undo:volume": {"delay_seconds": 90}}
    await stage.done("PUT", "/sim/backends/vm", {"steps": steps}, by="otto")
    began = stage.world.clock.now()
    await stage.allocate("o1")
    assert (await stage.done("GET", "/environments/o1"))["phase"] == "building"
    await stage.world.advance(seconds=1)
    await stage.world.advance(seconds=30)
    shown = await stage.done("GET", "/environments/o1")
    assert (shown["phase"], shown["ready_at"]) == ("ready", "2026-06-01T08:00:31Z")
    assert [step["attempt"] for step in shown["steps"]] == [1, 2, 1, 1, 1]
    await stage.release("o1")
    assert (await stage.done("GET", "/environments/o1"))["phase"] == "releasing"
    await stage.world.advance(seconds=90)
    assert (await stage.done("GET", "/environments/o1"))["phase"] == "released"
    assert (stage.world.clock.now() - began).total_seconds() == 121


async def test_many_flows_run_side_by_side_within_the_limit(stage: Stage, tmp_path: Path) -> None:
    await stage.done("PUT", "/sim/backends/maas", {"steps": {"serving": {"delay_seconds": 60}}}, by="otto")
    for number in range(200):
        await stage.place(f"o{number}", MODELS[number % 4])
    await stage.world.settle()
    assert len({order for order, _ in cloud(tmp_path)}) == 200
    await stage.world.advance(seconds=60)
    for number in range(0, 200, 40):
        assert (await stage.done("GET", f"/environments/o{number}"))["phase"] == "ready"


async def test_a_restart_in_the_middle_goes_on_with_the_same_cloud(tmp_path: Path) -> None:
    world = World(folder=tmp_path)
    async with staged(tmp_path, world) as stage:
        await stage.done("PUT", "/sim/backends/vm", {"steps": {"server": {"delay_seconds": 60}}}, by="otto")
        await stage.allocate("o1")
        before = cloud(tmp_path)
        assert before[-1] == ("o1", "server")
    again = World(folder=tmp_path, log=world.log)
    again.clock.set(world.clock.now())
    async with staged(tmp_path, again) as stage:
        await stage.world.advance(seconds=61)
        assert (await stage.done("GET", "/environments/o1"))["phase"] == "ready"
        assert cloud(tmp_path) == [*before, ("o1", "access")]


async def test_a_replay_gives_the_same_and_touches_no_cloud(tmp_path: Path) -> None:
    world = World(folder=tmp_path)
    async with staged(tmp_path, world) as stage:
        for number, model in enumerate(MODELS):
            await stage.allocate(f"o{number}", model)
        await stage.release("o0")
        before = cloud(tmp_path)
        fresh = Database(f"sqlite+aiosqlite:///{tmp_path / 'fresh.sqlite'}", durable=False)
        comparison = await verify(PROVISIONER, stage.service.runtime.database, fresh, world.log)
        await fresh.close()
        assert comparison.equal, comparison.differing
        assert cloud(tmp_path) == before
