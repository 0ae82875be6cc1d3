"""The how-to "write an approval policy", word for word, as somebody new would type it."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from os import environ
from pathlib import Path

import pytest

from qm_client.embedded.scenario import load_scenario
from qm_client.embedded.up import SAMPLE
from tests.support.product_embedded import Embedded

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-an-approval-policy.md"
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)

pytestmark = pytest.mark.e2e


@pytest.fixture
def served() -> Iterator[Embedded]:
    """The sample world."""
    with Embedded(manual=False, scenario=load_scenario(SAMPLE)) as product:
        yield product


class Reader:
    """Types what is on the page, with ids where the page has APPROVAL and ORDER."""

    def __init__(self, product: Embedded, folder: Path) -> None:
        self._product = product
        self._folder = folder
        self._env = {**environ, "QM_SESSION": str(folder / "session.json"), "COLUMNS": "300"}
        self.user = ""

    def type(self, line: str) -> str:
        """Run a line, or a block that belongs together, and return what it prints."""
        if login := re.search(r"qm login --as (\w+)", line):
            self.user = login[1]
            line = line.replace(login[0], f"{login[0]} --url {self._product.url}")
        for word, ids in (("APPROVAL", "approvals"), ("ORDER", "orders")):
            if word in line:
                line = line.replace(word, self._newest(ids))
        line = line.replace(".venv/bin/qm", f"{sys.executable} -m qm_client")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self._folder, env=self._env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout + done.stderr)
        self._product.settled()
        return done.stdout

    def _newest(self, what: str) -> str:
        with self._product.client(self.user) as client:
            for _ in range(100):
                if what == "approvals" and (items := list(client.pages("/approvals", assigned_to="me"))):
                    return str(items[-1]["approval"])
                if what == "orders" and (items := list(client.pages("/orders"))):
                    return str(max(items, key=lambda it: it["times"]["submitted_at"])["order"])
                time.sleep(0.1)
        raise AssertionError(f"{self.user} has no {what}")


def test_the_page_works_word_for_word(served: Embedded, tmp_path: Path) -> None:
    served.settled()
    reader, said = Reader(served, tmp_path), []
    for block in BLOCKS:
        file, end, rest = block.rpartition("\nEND\n")
        said.append([reader.type(line) for line in ([file + end] if end else []) + rest.strip().splitlines()])
    _, _, _, waits, agreed, _, changed = said
    assert "ApprovalPending" in waits[0]
    assert "level 1, levels 2, needed 1, agreed 0, awaited bob" in waits[0]
    assert "1/2" in waits[2]
    assert "granted" in agreed[3]
    assert json.loads(agreed[4])["approvals"][1]["votes"][1]["comment"] == "agreed"
    record = json.loads(changed[-1])
    assert [it["status"] for it in record["approvals"]] == ["granted", "withdrawn"]
    assert [it["on_behalf_of"] for it in record["approvals"][0]["votes"]] == ["bob"]
    assert record["phase"] not in ("pending_approval", "rejected")
