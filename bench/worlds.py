"""Scenarios for measurements: a fleet, one project, no limits in the way."""

from pathlib import Path
from typing import Any

import yaml

BUYER = "buyer"
PROJECT = "load"
OPERATOR = "operator"
CARDS = 8
"""On each node of the synthetic fleet."""


def people() -> dict[str, Any]:
    """Return the parts of a scenario that say who there is."""
    grants = [{"tenant": "bench", "project": PROJECT, "role": "developer"}]
    operator = [{"tenant": "platform", "role": "operator"}]
    return {
        "tenants": [{"name": "bench", "projects": [PROJECT]}],
        "users": [
            {"subject": BUYER, "tenant": "bench", "grants": grants},
            {"subject": OPERATOR, "tenant": "platform", "grants": operator},
        ],
    }


def big_fleet(orders: int, building_seconds: int = 0) -> dict[str, Any]:
    """Return a scenario whose fleet holds `orders` orders of one card, and a few more.

    `building_seconds`: how long the simulated cloud takes for the first step of an environment.
    """
    card = {"accelerator": "a100", "card_memory_mib": 81_920}
    nodes = {"name": "gpu", "count": orders // CARDS + 8, "cards": CARDS, "cpu_milli": 256_000, "memory_mib": 2_097_152}
    unit = {"cards_per_unit": 1, "accelerator_memory_mib": 81_920, "cpu_milli": 16_000, "memory_mib": 131_072}
    return people() | {
        "specifications": [{"name": "a100-1", "accelerators": ["a100"]} | unit],
        "nodes": [card | nodes],
        "backends": {"vm": {"steps": {"devices": {"delay_seconds": building_seconds}}}} if building_seconds else {},
    }


def written(world: dict[str, Any], folder: Path) -> Path:
    """Write a scenario into a folder and return the file."""
    file = folder / "world.yaml"
    file.write_text(yaml.safe_dump(world, sort_keys=False))
    return file
