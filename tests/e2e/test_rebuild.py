"""The topics are the truth: whatever is lost beside them comes back as it was, and no cloud is asked (Y1, Y5)."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

import qm_admission.consumers
import qm_catalog.consumers
import qm_metering.consumers
import qm_provisioner.consumers
import qm_scheduler.consumers
from qm_service.database import Database
from qm_service.model import Definition
from qm_service.replay import state_hash
from tests.e2e.answers import GROUP, answers
from tests.e2e.conftest import SetUp
from tests.e2e.stage import Stage
from tests.support.product import SERVICES, Product
from tests.support.product_embedded import Embedded

DEFINITIONS: Mapping[str, Definition] = {
    "catalog": qm_catalog.consumers.CATALOG,
    "admission": qm_admission.consumers.ADMISSION,
    "scheduler": qm_scheduler.consumers.SCHEDULER,
    "provisioner": qm_provisioner.consumers.PROVISIONER,
    "metering": qm_metering.consumers.METERING,
}
PHASES = [
    "pending_approval", "active", "closed", "failed", "closed", "cancelled", "provisioning", "active", "queued", "held",
]  # fmt: skip


def hashes(product: Product, service: str) -> Mapping[str, str]:
    """Return the state of a service as hashes."""

    async def ask() -> Mapping[str, str]:
        database = Database(product.settings(service)["QM_DATABASE_URL"])
        try:
            return await state_hash(database, DEFINITIONS[service])
        finally:
            await database.close()

    return asyncio.run(ask())


def clouds(product: Product) -> list[str]:
    """Return all that the simulated clouds ever saw."""
    with closing(sqlite3.connect(product.clouds)) as db:
        return list(db.iterdump())


def lively(play: Stage) -> list[str]:
    """Bring orders into all the phases that last; return the orders."""
    orders = [play.order("bare_metal", 8), play.order("vm", 4, duration="P30D")]
    orders.append(play.order("maas"))
    play.pass_by(hours=1, microseconds=7)
    play.end(orders[-1])
    with play.clouds_behave("vm", server={"fail_for_good": True}, undo_volume={"fail_for_good": True}):
        orders.append(play.order("vm"))
    with play.clouds_behave("kubernetes", undo_namespace={"fail_for_good": True}):
        orders.append(play.order("kubernetes"))
        play.end(orders[-1])
    orders.append(play.order("vm", 4, count=2))
    play.end(orders[-1], how="cancel")
    with play.clouds_behave("kubernetes", namespace={"delay_seconds": 3_600}):
        orders.append(play.order("kubernetes"))
    orders += [play.order("maas"), play.order("vm", 4), play.order("vm", 4)]
    later = play.product.now() + timedelta(days=365)
    play.dev.call("POST", f"/orders/{orders[1]}/extend", {"expires_at": later.isoformat()})
    play.product.settled()
    return orders


def organise(play: Stage) -> None:
    """Give the tenant a group, a manager and somebody who is away."""
    boss, dev = f"{play.name}-boss", f"{play.name}-dev"
    play.operator.call("POST", f"/tenants/{play.name}/groups/{GROUP}/members", {"subject": boss})
    play.operator.call("PUT", f"/subjects/{dev}/manager", {"tenant": play.name, "manager": boss})
    days = {"first_day": "2026-01-01", "last_day": "2027-12-31", "delegate": dev, "timezone": "Asia/Seoul"}
    play.product.settled()
    play.boss.call("PUT", f"/delegations/{boss}", {"absences": [days]}, query={"tenant": play.name})


@pytest.fixture
def history(stage: SetUp) -> list[str]:
    """Orders in all phases."""
    play = stage("rebuild", limits={"cards": 12}, approve_from=8, slices=True)
    organise(play)
    orders = lively(play)
    for what in ("seventh", "milli"):
        play.order("kubernetes", specification=f"{play.name}-{what}")
    assert play.phases(*orders) == PHASES
    return orders


def test_lost_databases_come_back_equal_with_the_same_answers_and_no_call_to_a_cloud(
    product: Product, history: list[str]
) -> None:
    said, facts, seen = answers(product), product.facts(), clouds(product)
    state = {service: hashes(product, service) for service in SERVICES}
    product.drop(*SERVICES)
    assert clouds(product) == seen
    product.settled()
    assert {service: hashes(product, service) for service in SERVICES} == state
    assert differing(said, answers(product)) == {}
    assert (product.facts(), clouds(product)) == (facts, seen)


def test_an_order_that_had_other_cards_before_comes_back_equal(product: Product, stage: SetUp) -> None:
    play = stage("moved", nodes=2, limits={"card_hours_month": 8})
    order = play.order("vm", 4, duration=None)
    card = play.dev.order(order)["allocation"]["cards"][0]
    play.pass_by(minutes=5)
    play.dev.call("POST", f"/orders/{order}/replace", {"card": card})
    body = {"limits": {"card_hours_month": 8}, "hours_exhausted": "suspend"}
    play.operator.call("PUT", f"/quotas/{play.name}", body)
    play.product.settled()
    play.pass_by(hours=3)
    assert (play.phases(order), len(play.dev.order(order)["earlier_allocations"])) == (["held"], 2)
    state, facts = {service: hashes(product, service) for service in SERVICES}, product.facts()
    product.drop(*SERVICES)
    product.settled()
    assert {service: hashes(product, service) for service in SERVICES} == state
    assert product.facts() == facts


@pytest.mark.parametrize("product", ["embedded"], indirect=True)
def test_the_embedded_product_moves_by_export_and_import_of_its_log(product: Embedded, tmp_path: Path) -> None:
    said, file, data = answers(product), tmp_path / "facts.jsonl", tmp_path / "data"
    qm("log", "export", str(file), "--data", str(product.data))
    data.mkdir()
    qm("log", "import", str(file), "--data", str(data))
    for outside in ("clock", "clouds.sqlite"):  # time and the clouds are no part of the product
        shutil.copy(product.data / outside, data)
    with Embedded(data=data) as moved:
        moved.settled()
        assert differing(said, answers(moved)) == {}
        assert [fact.raw for fact in moved.facts()] == [fact.raw for fact in product.facts()]


def differing(
    before: Mapping[str, tuple[int, str | None, bytes]], after: Mapping[str, tuple[int, str | None, bytes]]
) -> dict[str, object]:
    """Return what is not the same, by path."""
    return {
        path: (before.get(path), after.get(path)) for path in {**before, **after} if before.get(path) != after.get(path)
    }


def qm(*arguments: str) -> None:
    """Run the command line."""
    subprocess.run([sys.executable, "-m", "qm_client", *arguments], check=True, capture_output=True)
