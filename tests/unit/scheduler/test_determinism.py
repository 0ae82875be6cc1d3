"""The same inputs give the same decisions in every process, whatever the seed of its hashes."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tests.unit.scheduler.yard import Yard, request

ROOT = Path(__file__).parents[3]


def digest() -> str:
    """Return a digest of all decisions of a long, mixed walk."""
    yard = Yard()
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
    lines = (event.model_dump_json(serialize_as_any=True) for event in yard.facts)
    return sha256("\n".join(lines).encode()).hexdigest()


def test_decisions_do_not_depend_on_the_hash_seed_or_the_time_zone() -> None:
    program = "from tests.unit.scheduler.test_determinism import digest; print(digest())"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed, zone in (("0", "UTC"), ("1", "Pacific/Kiritimati"), ("4711", "America/St_Johns"))
    }
    assert found == {digest()}
