"""Real requests in small: a trace of the same form is played on the embedded product and agrees with the oracle."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from bench.openb import run
from bench.openb_oracle import Expected, expected
from bench.openb_trace import NODES, REQUESTS, read_nodes, read_requests
from tests.support.product_embedded import Embedded

pytestmark = pytest.mark.e2e

NODE_HEAD = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_HEAD = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
COUNT = 60


def _write(file: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([head, *rows])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Room for all, but for the one card of its type that two requests want at the same time."""
    nodes = [(f"node-{i:04}", 64_000, 262_144, 4, "T4" if i % 2 else "V100M16") for i in range(24)]
    _write(tmp_path / NODES, NODE_HEAD, [*nodes, ("node-9999", 64_000, 262_144, 1, "A10")])
    pods = [_pod(i, 1 << i % 3, ("", "T4", "V100M16|T4")[i % 3], 460 if i % 10 == 9 else 1_000) for i in range(COUNT)]
    _write(tmp_path / REQUESTS, POD_HEAD, [*pods, _pod(20, 1, "A10", name="first"), _pod(22, 1, "A10", name="second")])
    return tmp_path


def _pod(number: int, cards: int, types: str, milli: int = 1_000, name: str = "pod") -> tuple[object, ...]:
    created = number // 2 * 97
    needs = (4_000 + number % 3 * 1_000, 8_192, cards, milli, types, "LS", "Running")
    return (f"{name}-{number:04}", *needs, created, created + 200 + number * 13 % 400, "")


def test_a_trace_ends_with_every_order_closed_and_billed_to_the_microsecond(trace: Path) -> None:
    requests = read_requests(trace)
    with Embedded() as product:
        report = run(product, trace)
    assert report["orders"] == len(requests) == COUNT - COUNT // 10 + 2
    assert report["waiting"] == 0
    held = expected(read_nodes(trace), requests)["second-0022"].held_card_us
    assert 0 < held < min(r.deleted - r.created for r in requests if r.name == "second-0022") * 1_000_000


def test_the_oracle_lets_those_wait_who_came_later(trace: Path) -> None:
    nodes, first = read_nodes(trace)[:1], read_requests(trace)[2]
    requests = [
        first._replace(name=name, accelerators=(), created=at, deleted=at + 10) for name, at in (("a", 0), ("b", 4))
    ]
    whole = first.cards * 1_000_000
    assert first.cards == nodes[0].cards
    assert expected(nodes, requests) == {
        "a": Expected(10 * whole, 10 * whole, True),
        "b": Expected(4 * whole, 4 * whole, True),
    }
