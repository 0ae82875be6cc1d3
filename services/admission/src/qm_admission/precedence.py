"""How far ahead of others an order may ask to be served. Pure.

Bands of priority are strict in the queue, so whoever could choose any would starve all others. Each scope of the path
may set a bound; where its tenant has none nothing above `DEFAULT` passes, so that no tenant outranks another unless an
operator says so. To step back, below `DEFAULT`, is always allowed.
"""

from collections.abc import Iterable, Mapping

from qm_admission.quota import EMPTY, Scope
from qm_events.specs import Violation

DEFAULT = 0
"""Of an order that names no priority, and the bound of a tenant that has none."""
DIMENSION = "priority"
"""Names, in what speaks against an order, the field that passes the bound."""


def allowed(path: Iterable[str], scopes: Mapping[str, Scope]) -> int:
    """Return the highest priority of an order in the last scope of the path: the least bound on it."""
    return min(_bounds(path, scopes).values())


def above(path: Iterable[str], scopes: Mapping[str, Scope], priority: int) -> tuple[Violation, ...]:
    """Return every bound that a priority passes."""
    return tuple(
        Violation(scope=name, dimension=DIMENSION, limit=most, used=0, requested=priority, short_by=priority - most)
        for name, most in _bounds(path, scopes).items()
        if priority > most
    )


def _bounds(path: Iterable[str], scopes: Mapping[str, Scope]) -> dict[str, int]:
    tenant, *projects = path
    said = {name: bound for name in projects if (bound := scopes.get(name, EMPTY).priority_at_most) is not None}
    bound = scopes.get(tenant, EMPTY).priority_at_most
    return {tenant: DEFAULT if bound is None else bound} | said
