"""The command line that all services share."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qm_service.cli import commands, opened, run_loop
from qm_service.model import Act
from qm_service.runtime import Runtime
from qm_service.service import Kit, Service
from qm_service.settings import Settings, load
from tests.unit.http.sample import DEFINITION, directory, routes


def build(kit: Kit) -> Service:
    """Build the sample."""
    runtime = Runtime(DEFINITION, kit.database, kit.log, kit.clock)
    return Service("catalog", runtime, routes(runtime))


APP = commands("catalog", build, Settings)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Run commands against a service that has lived for a while, in files of the test's own."""
    monkeypatch.setenv("QM_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'catalog.sqlite'}")
    monkeypatch.setenv("QM_LOG_URL", f"sqlite:///{tmp_path / 'log.sqlite'}")
    run_loop(live(load(Settings)))
    return CliRunner()


async def live(settings: Settings) -> None:
    """Register the sample's tenants and people."""
    async with opened(settings) as kit:
        runtime = Runtime(DEFINITION, kit.database, kit.log, kit.clock, stepped=True)
        await runtime.start()
        for fact in directory():
            await runtime.execute(Act(f"tenant/{fact.tenant}", fact))  # type: ignore[attr-defined]  # all of these have it
        await runtime.step()
        await runtime.stop()


def test_the_document_is_printed_with_nothing_running(runner: CliRunner) -> None:
    result = runner.invoke(APP, ["openapi"])
    document = json.loads(result.stdout)
    assert document["info"]["title"] == "Quartermaster catalog"
    assert "/v1/orders/{order}/cancel" in document["paths"]
    assert runner.invoke(APP, ["openapi"]).stdout == result.stdout


def test_a_dropped_database_is_rebuilt_equal(runner: CliRunner) -> None:
    before = runner.invoke(APP, ["verify"])
    assert runner.invoke(APP, ["replay", "--drop"]).exit_code == 0
    after = runner.invoke(APP, ["verify"])
    assert before.exit_code == after.exit_code == 0, after.output
    assert "equal    events" in after.stdout
    assert "equal    p_subjects_v1" in after.stdout


def test_one_projection_is_built_anew(runner: CliRunner, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as database:
        database.execute("UPDATE p_tenants_v1 SET doc = '{}'")
        database.commit()
    assert runner.invoke(APP, ["verify"]).exit_code == 1
    assert runner.invoke(APP, ["replay", "--projection", "tenants"]).exit_code == 0
    assert runner.invoke(APP, ["verify"]).exit_code == 0
    assert runner.invoke(APP, ["replay", "--projection", "nonsense"]).exit_code == 2


def test_a_difference_is_named_and_ends_in_code_1(runner: CliRunner, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as database, database:
        database.execute("DELETE FROM p_subjects_v1 WHERE key = 'dora'")
    result = runner.invoke(APP, ["verify"])
    assert result.exit_code == 1
    assert "differs  p_subjects_v1" in result.stdout


def test_a_replay_over_a_database_that_is_in_use_is_refused_in_one_line(runner: CliRunner) -> None:
    result = runner.invoke(APP, ["replay"])
    assert result.exit_code == 2
    assert result.stderr.startswith("NotEmpty: ")


def test_a_database_is_migrated_more_than_once(runner: CliRunner) -> None:
    assert [runner.invoke(APP, ["migrate"]).exit_code for _ in range(2)] == [0, 0]


async def park(settings: Settings) -> None:
    """Let two records of a stream be parked."""
    async with opened(settings) as kit:
        schema = build(kit).runtime.schema
        values = {"topic": "orders", "partition": 0, "stream": "order/o1", "type": "order.submitted.v1", "value": b"{}"}
        rows = [values | {"offset": i, "version": i, "error": f"bad {i}", "parked_at": kit.clock.now()} for i in (1, 2)]
        async with kit.database.write() as tx:
            await tx.execute(schema.parked.insert(), rows)


def test_an_operator_lists_what_is_parked_and_discards_the_first_of_a_stream(runner: CliRunner) -> None:
    run_loop(park(load(Settings)))
    listed = runner.invoke(APP, ["parked"]).output.splitlines()
    assert [line.split(" ", 2)[2] for line in listed] == [
        "order/o1@1 order.submitted.v1: bad 1",
        "order/o1@2 order.submitted.v1: bad 2",
    ]
    assert runner.invoke(APP, ["redrive"]).output == "2 to be tried again\n"
    asked = runner.invoke(APP, ["redrive", "--discard", "order/o1"])
    assert asked.output == "order/o1@1 to be discarded\n1 to be tried again\n"
    nothing = runner.invoke(APP, ["redrive", "--discard", "order/o2"])
    assert nothing.output == "nothing of order/o2 is parked\n0 to be tried again\n"
