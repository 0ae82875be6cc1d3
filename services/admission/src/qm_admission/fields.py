"""The fields of an order form, as policies name them: `labels.<name>`, `parameters.<name>`. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from qm_events.specs import OrderRequest

ROOTS = ("labels", "parameters")


def value_of(request: OrderRequest, path: str) -> Any | None:
    """Return what a field holds; None where there is no such field."""
    root, *way = path.split(".")
    value: Any = {"labels": request.labels, "parameters": request.parameters}.get(root)
    for step in way:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def names_in(request: OrderRequest, path: str) -> Iterator[str]:
    """Yield the names that a field holds: a string, or a list of strings."""
    value = value_of(request, path)
    for name in value if isinstance(value, list | tuple) else (value,):
        if isinstance(name, str) and name:
            yield name


def well_formed(path: str) -> bool:
    """Tell whether a path can name a field."""
    root, *way = path.split(".")
    return root in ROOTS and bool(way) and all(way)
