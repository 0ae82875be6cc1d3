"""The same inputs give the same decisions in every process, whatever the seed of its hashes and its time zone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qm_events import encode
from tests.unit.scheduler.shadow import Taped, digest, shadow
from tests.unit.scheduler.yard import request

ROOT = Path(__file__).parents[3]
PLACES = (("0", "UTC"), ("1", "Pacific/Kiritimati"), ("4711", "America/St_Johns"))
"""Seeds of hashes and time zones."""


@pytest.fixture(scope="module")
def yard() -> Taped:
    """A long, mixed walk."""
    yard = Taped()
    for n in range(24):
        yard.node(f"node-{n}", {"h100": 2 + n % 7, "a100": n % 3}, rack=f"r{n // 4}", domain=f"d{n // 8}")
    for n in range(160):
        kinds = (("h100",), ("a100",), ("a100", "h100"), ("h100", "a100"))[n % 4]
        within = (None, None, "rack", "domain", "node")[n % 5]
        yard.order(
            f"o{n:03}",
            request(
                kinds,
                1 + n % 3,
                1 + n % 4,
                n % 5 * 1_000,
                priority=n % 2,
                within=within,
                required=n % 3 > 0,
                project=f"p{n % 7}",
                duration_seconds=(None, 1_200, 7_200)[n % 3],
            ),
        )
        if yard.placed(f"o{n:03}") and n % 2:
            yard.ready(f"o{n:03}")
        if n % 6 == 5:
            holding = sorted(order for order, doc in yard.docs.all["allocations"].items() if doc.is_holding)
            yard.give_back(holding[n % len(holding)])
        if n % 11 == 10:
            yard.health(f"node-{n % 24}", None, ("suspect", "healthy")[n % 2])
    return yard


def test_a_shadow_that_hears_the_log_decides_the_same(yard: Taped) -> None:
    assert [event.data for event in shadow(yard.tape).facts] == [event.data for event in yard.facts]


@pytest.mark.parametrize(("seed", "zone"), PLACES)
def test_a_shadow_decides_the_same_whatever_the_hash_seed_and_the_time_zone(
    yard: Taped, seed: str, zone: str, tmp_path: Path
) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_bytes(b"\n".join(encode(event) for event in yard.tape))
    found = subprocess.run(
        [sys.executable, "-m", "tests.unit.scheduler.shadow", str(tape)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == digest(yard.facts)
