"""The `qm` command as a person uses it, against the product that `qm up` serves."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from os import environ
from pathlib import Path

import pytest

from qm_client.embedded.scenario import load_scenario
from qm_client.embedded.up import SAMPLE
from qm_client.logs import CLOCK, IMPORTED, WORLD
from tests.support.product_embedded import Embedded

Qm = Callable[..., str]
SCHEDULING = Path(__file__).parents[2] / "docs/scheduling.md"


@pytest.fixture(scope="module")
def served() -> Iterator[Embedded]:
    """The sample world."""
    with Embedded(manual=False, scenario=load_scenario(SAMPLE)) as product:
        yield product


@pytest.fixture
def qm(served: Embedded, tmp_path: Path) -> Qm:
    """Run the command and return what it prints; `fails` is the exit code that is expected."""

    def run(*arguments: str, fails: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "qm_client", *arguments],
            env={**environ, "QM_SESSION": str(tmp_path / "session.json"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == fails, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run


def login(qm: Qm, served: Embedded, subject: str) -> None:
    assert f"logged in as {subject}" in qm("login", "--as", subject, "--url", served.url)


def test_an_order_from_the_list_of_specifications_to_the_bill(qm: Qm, served: Embedded) -> None:
    login(qm, served, "alice")
    assert "a100-1" in qm("specs")
    assert '"price' in qm("quote", "a100-1", "--project", "vision")
    order = json.loads(qm("order", "a100-1", "--project", "vision", "--model", "vm", "--wait", "30", "--json"))["order"]
    assert json.loads(qm("orders", order))["phase"] == "active"
    assert "private" in qm("credentials", order).lower()
    tree = qm("log", "show", order)
    assert re.search(r"order\.submitted\.v1 .* catalog by alice\n.*allocation\.queued|quota\.claimed", tree)
    assert order in qm("orders", "--project", "vision", "--json")
    qm("release", order)
    assert "closed" in qm("watch", order)
    assert "vision" in qm("usage")


def test_an_approver_and_an_operator_find_what_they_need(qm: Qm, served: Embedded, tmp_path: Path) -> None:
    login(qm, served, "alice")
    order = json.loads(qm("order", "a100-8", "--project", "vision", "--model", "bare_metal", "--json"))["order"]
    served.settled()
    login(qm, served, "bob")
    (approval,) = [item["approval"] for item in json.loads(qm("approvals", "--json")) if item["order"] == order]
    qm("approve", approval, "--comment", "agreed")
    served.settled()
    assert json.loads(qm("orders", order))["phase"] == "active"
    login(qm, served, "operator")
    assert "npu910" in qm("fleet")
    assert "concurrent_orders" in qm("quota", "acme/vision")
    assert "card hours of" in qm("quota", "show", "acme/vision")
    assert "POSITION" in qm("queue")
    (held,) = json.loads(qm("orders", order))["allocation"]["nodes"]
    assert order in qm("drain", held, "--plan", "--json")
    assert "node-in-use: 1 allocation holds" in qm("retire", held, fails=1)
    assert "acme/vision" in qm("weigh", "acme/vision", "3")
    assert json.loads(qm("shares", "--json"))[0]["weight"] == 3
    qm("drain", held)
    assert "takes work" in qm("uncordon", held)
    (example,) = re.findall(r"```yaml\n(.*?)```", SCHEDULING.read_text(), re.DOTALL)
    file = tmp_path / "if.yaml"
    file.write_text(example)
    assert qm("whatif", str(file)).splitlines()[1].split()[:2] == ["might-come", "waits"]
    file.write_text("{")
    for unreadable in (file, tmp_path / "none.yaml"):
        assert "cannot be read" in qm("whatif", str(unreadable), fails=2)
    qm("cancel", order)


def test_a_project_asks_for_quota_and_gets_it(qm: Qm, served: Embedded) -> None:
    login(qm, served, "operator")
    qm("quota", "set", "acme/speech", "--limit", "cards=2", "--report-only", "cards")
    login(qm, served, "alice")
    quote = json.loads(qm("quote", "a100-1", "--project", "vision"))
    assert quote["admission"]["outcome"] == "admitted"
    asked = qm("quota", "ask", "acme/vision", "--limit", "cards=900", "--reason", "more", "--json")
    request = json.loads(asked)["request"]
    login(qm, served, "operator")
    assert request in qm("quota", "requests", "--status", "open")
    assert "approved" in qm("quota", "grant", request, "--limit", "cards=800")
    assert "800" in qm("quota", "acme/vision")


def test_a_refused_call_says_why_and_what_helps(qm: Qm, served: Embedded) -> None:
    login(qm, served, "alice")
    said = qm("order", "no-such-thing", "--project", "vision", fails=1)
    assert "no-such-thing" in said
    assert len(said.strip().splitlines()) >= 2  # the problem, and the remedy
    assert "either --as SUBJECT" in qm("login", fails=2)


def test_a_product_that_is_not_there_is_said_in_a_line(qm: Qm) -> None:
    assert "cannot be reached" in qm("login", "--as", "alice", "--url", "http://127.0.0.1:9", fails=1)


def test_the_log_is_kept_in_a_file_and_damage_to_it_is_seen(qm: Qm, served: Embedded, tmp_path: Path) -> None:
    served.settled()
    file = tmp_path / "all.jsonl"
    said = qm("log", "export", str(file), "--data", str(served.data))
    count = int(said.split()[0])
    assert count == len(qm("log", "tail", "--data", str(served.data)).splitlines()) > 0
    assert str(count) in qm("log", "import", str(file), "--data", str(tmp_path / "new"))
    assert (tmp_path / "new" / WORLD).read_text() == IMPORTED  # `qm up` puts no scenario on top
    facts = map(json.loads, qm("log", "tail", "--data", str(served.data)).splitlines())
    latest = max(datetime.fromisoformat(fact["time"]) for fact in facts)
    assert datetime.fromisoformat((tmp_path / "new" / CLOCK).read_text()) == latest
    file.write_bytes(file.read_bytes().replace(b"acme", b"acne", 1))
    assert "SegmentRefused" in qm("log", "import", str(file), "--data", str(tmp_path / "other"), fails=2)


def test_the_story_of_the_demo_comes_true(qm: Qm) -> None:
    assert "all of it came true" in qm("demo")


def test_two_products_do_not_share_a_folder(qm: Qm, served: Embedded) -> None:
    said = qm("up", "--data", str(served.data), "--port", "18999", fails=2)
    assert "is served by another process" in said


def test_an_address_that_is_taken_is_said_in_a_line(qm: Qm, served: Embedded, tmp_path: Path) -> None:
    port = served.url.rpartition(":")[2]
    assert "Address already in use" in qm("up", "--data", str(tmp_path), "--port", port, fails=2)


def test_a_service_without_a_database_says_which_setting_is_missing(qm: Qm) -> None:
    assert "QM_DATABASE_URL" in qm("catalog", "verify", fails=2)


def test_a_folder_keeps_to_the_kind_of_time_that_it_was_begun_with(qm: Qm, tmp_path: Path) -> None:
    (tmp_path / "clock.kind").write_text("wall")
    said = qm("up", "--data", str(tmp_path), "--port", "18998", "--clock", "manual", fails=2)
    assert "was begun with --clock wall" in said
