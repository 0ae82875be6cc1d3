"""The long storm: `python -m tests.crash.soak --kills 200 --seed 1`. Exit code 1 when a law was broken."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

from tests.crash.storm import Report, Storm
from tests.support.product import Product
from tests.support.product_distributed import Distributed
from tests.support.product_embedded import Embedded

KINDS: dict[str, type[Embedded] | type[Distributed]] = {"embedded": Embedded, "distributed": Distributed}
ROUND = 50
"""Kills after which everything comes to rest and is judged, before it goes on."""


def weather(product: Product, kills: int, seed: int) -> Iterator[Report]:
    """Let storms go over a product until so many processes were killed; end after the first that breaks a law."""
    storm = Storm(product, seed)
    while kills > 0:
        report = storm.blow(min(kills, ROUND))
        yield report
        kills = 0 if report.faults else kills - report.kills


def main() -> int:
    """Run, print a line of JSON a round, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each product")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--product", choices=list(KINDS), action="append", help="one of them; default: both")
    wanted = parser.parse_args()
    broken = False
    for kind in wanted.product or KINDS:
        with KINDS[kind](manual=False) as product:
            for report in weather(product, wanted.kills, wanted.seed):
                print(json.dumps(asdict(report) | {"kills": report.kills}), flush=True)
                broken = broken or bool(report.faults)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
