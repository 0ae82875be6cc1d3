"""The openb trace as it lies in a folder: nodes, whole-card requests, and the scenario that they make."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qm_client.embedded.scenario import Scenario

NODES = "openb_node_list_gpu_node.csv"
REQUESTS = "openb_pod_list_default.csv"
TENANT, PROJECT = "openb", "trace"
CARD_MEMORY_MIB = 16_384
"""The trace does not say; it decides nothing here."""
_WHOLE_CARD = "1000"


class Node(NamedTuple):
    """A machine of the fleet."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    accelerator: str


class Request(NamedTuple):
    """A request for whole cards of one of `accelerators` (none = any), in seconds since the trace began."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    accelerators: tuple[str, ...]
    created: int
    deleted: int


def read_nodes(folder: Path) -> list[Node]:
    """Return the fleet, in the order of the file."""
    return [
        Node(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"].lower())
        for row in _rows(folder / NODES)
    ]


def read_requests(folder: Path) -> list[Request]:
    """Return the requests for whole cards, in the order of their creation."""
    requests = [
        Request(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            tuple(sorted(row["gpu_spec"].lower().split("|"))) if row["gpu_spec"] else (),
            int(row["creation_time"]),
            int(row["deletion_time"]),
        )
        for row in _rows(folder / REQUESTS)
        if int(row["num_gpu"]) >= 1 and row["gpu_milli"] == _WHOLE_CARD
    ]
    return sorted(requests, key=lambda request: (request.created, request.name))


def specification(request: Request) -> str:
    """Return the name of the specification of a request: one for each shape."""
    return "-".join(map(str, (request.cards, request.cpu_milli, request.memory_mib, *request.accelerators)))


def scenario(nodes: Sequence[Node], requests: Sequence[Request]) -> Scenario:
    """Return the world of the trace: its fleet, a specification for each shape, one project without limits."""
    return Scenario.model_validate(
        {
            "tenants": [{"name": TENANT, "projects": [PROJECT]}],
            "users": [
                {
                    "subject": "buyer",
                    "tenant": TENANT,
                    "grants": [{"tenant": TENANT, "project": PROJECT, "role": "developer"}],
                }
            ],
            "specifications": list(_specifications(nodes, requests)),
            "nodes": [
                {
                    "name": node.name,
                    "accelerator": node.accelerator,
                    "cards": node.cards,
                    "card_memory_mib": CARD_MEMORY_MIB,
                    "cpu_milli": node.cpu_milli,
                    "memory_mib": node.memory_mib,
                }
                for node in nodes
            ],
        }
    )


def _specifications(nodes: Iterable[Node], requests: Iterable[Request]) -> Iterable[dict[str, Any]]:
    every = sorted({node.accelerator for node in nodes})
    for name, request in {specification(request): request for request in requests}.items():
        yield {
            "name": name,
            "accelerators": request.accelerators or every,
            "cards_per_unit": request.cards,
            "accelerator_memory_mib": CARD_MEMORY_MIB,
            "cpu_milli": request.cpu_milli,
            "memory_mib": request.memory_mib,
        }


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as source:
        return list(csv.DictReader(source))
