"""The long storm: `python -m tests.crash.soak --kills 200 --seed 1`. Exit code 1 when a law was broken."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

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
    parser.add_argument("--kills", type=int, default=200, help="of all products together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--product", choices=list(KINDS), action="append", help="one of them; default: both")
    parser.add_argument("--keep", type=Path, help="where to write the facts of a product that broke a law")
    wanted = parser.parse_args()
    kinds, broken = wanted.product or list(KINDS), False
    for kind in kinds:
        with KINDS[kind](manual=False) as product:
            for report in weather(product, wanted.kills // len(kinds), wanted.seed):
                print(json.dumps({"kills": report.kills, **vars(report)}), flush=True)
                if report.faults:
                    broken = True
                    keep(product, wanted.keep)
    return int(broken)


def keep(product: Product, folder: Path | None) -> None:
    """Write the facts as JSON lines, for whoever looks for the cause."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{product.kind}.jsonl").open("w") as out:
            for fact in product.facts():
                at = f"{fact.topic}/{fact.partition}/{fact.offset}"
                out.write(json.dumps({"at": at, "fact": fact.body}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
