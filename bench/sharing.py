"""How full a fleet gets that is shared: `python -m bench.sharing FOLDER [--seeds N] [--lists NAME ...]`.

FOLDER holds the node list and the pod lists of the openb trace. As the authors of FGD do (Weng et al., USENIX ATC'23),
the requests of a list are shuffled and repeated at random until 130 % of the cards are asked for, and fed one by one to
an empty fleet; what does not fit is passed over. The share of the cards that is given out at the end is compared with
their published mean of ten seeds. It runs on the placement of the scheduler alone (`qm_scheduler.units`), with the list
as the workload that was learned; in the product that is learned from the orders.
"""

import argparse
import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from time import process_time
from typing import NamedTuple

from bench.figures import Figure, quantile, table
from bench.openb_trace import Node, read_nodes
from qm_events.scheduler import ExpectedUnits
from qm_scheduler.cuts import MILLI, Part
from qm_scheduler.fragments import Fragments
from qm_scheduler.units import after, place_units
from qm_scheduler.view import Room, Shape, View, seat

PUBLISHED = {"default": 95.39, "gpuspec33": 94.55, "gpushare100": 86.90, "multigpu50": 97.18}
"""Per cent of cards, mean of ten seeds: the authors' figures for their scheduler."""
WITHIN = 0.2
LOAD_MILLI = 1_300
US_MEAN, CARDS_MANY, CARDS_FEW = 200.0, 100_000, 1_000


class Request(NamedTuple):
    """Cards, or thousandths of one card, of one of `accelerators` (none = any); no cards at all: CPU only."""

    cpu_milli: int
    memory_mib: int
    cards: int
    milli: int
    accelerators: tuple[str, ...]

    @property
    def size(self) -> int:
        """Thousandths of cards in all."""
        return self.milli or self.cards * MILLI


class Outcome(NamedTuple):
    """What became of a run: thousandths of cards given out, and what each decision took."""

    given: int
    costs_us: list[float]
    places: list[str | None]


def read_list(folder: Path, name: str) -> list[Request]:
    """Return the requests of a list, in the order of the file."""
    with (folder / f"openb_pod_list_{name}.csv").open(newline="") as source:
        return [_request(row) for row in csv.DictReader(source)]


def _request(row: dict[str, str]) -> Request:
    cards, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    part = milli if cards == 1 and milli < MILLI else 0
    types = tuple(sorted((row.get("gpu_spec") or "").lower().split("|"))) if row.get("gpu_spec") else ()
    return Request(int(row["cpu_milli"]), int(row["memory_mib"]), cards, part, types)


def workload(requests: Sequence[Request], every: tuple[str, ...]) -> Fragments:
    """Return the requests as what is asked for. CPU alone needs no cards, so it fragments none."""
    shapes = Counter((each.accelerators or every, each.cards, each.milli, each.cpu_milli) for each in requests)
    return Fragments(
        [
            ExpectedUnits(accelerators=types, cards=cards, share_milli=milli or None, cpu_milli=cpu, units=units)
            for (types, cards, milli, cpu), units in sorted(shapes.items())
            if cards
        ]
    )


def load(requests: Sequence[Request], cards: int, seed: int) -> list[Request]:
    """Return the requests, shuffled and repeated at random until they ask for 130 % of the cards."""
    random, limit = Random(seed), cards * LOAD_MILLI
    asked, total = random.sample(requests, len(requests)), 0
    found: list[Request] = []
    while total < limit:
        found.append(asked.pop() if asked else random.choice(requests))
        total += found[-1].size
    random.shuffle(found)
    return found


def feed(nodes: Sequence[Node], requests: Sequence[Request], expected: Fragments, seed: int) -> Outcome:
    """Place the requests one by one; the seed changes the order of nodes in which ties are broken."""
    every = tuple(sorted({node.accelerator for node in nodes}))
    view, outcome = View(), Outcome(0, [], [])
    view.expect(expected)
    for node in nodes:
        name = f"{seed}-{node.name}"
        kind = (node.accelerator, 0, ())
        view.put(seat(name), Room(name, {kind: node.cards}, node.cpu_milli, node.memory_mib, b"", b""))
    kinds = view.kinds_for(_shape(Request(0, 0, 1, 0, every), every), every)
    given = 0
    for request in requests:
        shape = _shape(request, every)
        began = process_time()
        mine = kinds if not request.accelerators else tuple(kind for kind in kinds if kind[0] in request.accelerators)
        picks = place_units(view, shape, mine)
        if picks:
            key = seat(picks[0].node)
            room = after(view.rooms[key], shape, picks[0])
            if shape.part is None:
                # Nodes without a free card go on taking what asks for CPU alone.
                used = ((0, MILLI),) * request.cards
                cut = {**room.cut, picks[0].kind: tuple(sorted((*room.cut.get(picks[0].kind, ()), *used)))}
                room = room._replace(cut=cut)
            view.put(key, room)
            given += request.size
        outcome.costs_us.append((process_time() - began) * 1e6)
        outcome.places.append(picks[0].node if picks else None)
    return outcome._replace(given=given)


def _shape(request: Request, every: tuple[str, ...]) -> Shape:
    part = Part(0, request.milli) if request.milli else None
    types = request.accelerators or every
    return Shape(types, 0, request.cards, request.cpu_milli, request.memory_mib, 1, None, False, (), part)


def rates(folder: Path, lists: Sequence[str], seeds: Sequence[int]) -> Iterator[Figure]:
    """Yield for each list the share of the cards that is given out, and what a decision took."""
    nodes = read_nodes(folder)
    cards, every = sum(node.cards for node in nodes), tuple(sorted({node.accelerator for node in nodes}))
    for name in lists:
        requests = read_list(folder, name)
        expected = workload(requests, every)
        runs = [feed(nodes, load(requests, cards, seed), expected, seed) for seed in seeds]
        mean = sum(run.given for run in runs) / len(runs) / cards / MILLI * 100
        budget = PUBLISHED[name] - WITHIN
        yield Figure(f"{name}: cards given out, mean of {len(seeds)}", mean, "%", budget, ">=")
        costs = [cost for run in runs for cost in run.costs_us]
        yield Figure(f"{name}: a decision, mean", sum(costs) / len(costs), "us")


def shared_cards(quick: bool) -> list[Figure]:
    """Give out shares of cards on a fleet of many cards and of few, in CPU time: what one decision costs."""
    found, means = list[Figure](), []
    for cards in (CARDS_FEW, CARDS_MANY // 10 if quick else CARDS_MANY):
        nodes = [Node(f"node-{n}", 96_000, 786_432, 8, "a100") for n in range(cards // 8)]
        requests = load(MIX, cards, seed=cards)
        run = feed(nodes, requests, workload(MIX, ("a100",)), seed=0)
        mean = sum(run.costs_us) / len(run.costs_us)
        means.append(mean)
        name = f"{cards:,} cards, {len(requests):,} requests"
        found.append(Figure(f"{name}: a shared-card decision, mean", mean, "us", US_MEAN, "<="))
        found.append(Figure(f"{name}: a shared-card decision, p99", quantile(run.costs_us, 0.99), "us"))
        found.append(Figure(f"{name}: cards given out", run.given / cards / MILLI * 100, "%"))
    found.append(Figure("growth of a shared-card decision, 1k to 100k cards", means[1] / means[0], "x", 2.0, "<="))
    return found


MIX = [
    Request(cpu, 4 * cpu, cards, milli, ())
    for cpu, cards, milli, count in (
        (8_000, 1, 0, 30),
        (16_000, 1, 0, 10),
        (24_000, 2, 0, 4),
        (48_000, 4, 0, 1),
        (88_000, 8, 0, 3),
        (4_000, 1, 100, 6),
        (4_000, 1, 250, 10),
        (6_000, 1, 400, 6),
        (8_000, 1, 500, 12),
        (8_000, 1, 650, 6),
        (10_000, 1, 800, 12),
    )
    for _ in range(count)
]
"""A made-up list: half of the requests ask for a part of a card."""


def main() -> None:
    """Run the lists, print how full the fleet got and write it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.sharing", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--lists", nargs="*", choices=PUBLISHED, default=list(PUBLISHED))
    parser.add_argument("--out", type=Path, default=Path("var/sharing.json"))
    asked = parser.parse_args()
    figures = []
    for figure in rates(asked.folder, asked.lists, range(42, 42 + asked.seeds)):
        figures.append(figure)
        print(table([figure]), flush=True)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps([figure.as_json() for figure in figures], indent=2))


if __name__ == "__main__":
    main()
