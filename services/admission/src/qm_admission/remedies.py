"""What a person can do about a refusal or a wait, in words. Pure; the same facts give the same words."""

from collections.abc import Sequence

from qm_events.specs import OrderRequest, Violation
from qm_events.units import amount


def when_never(request: OrderRequest, violations: Sequence[Violation]) -> str:
    """Return the way out of an order that passes a limit even with nothing else in use."""
    return _sentence(f"{_smaller(request, violations, now=False)}{_higher(violations)}")


def when_refused(request: OrderRequest, violations: Sequence[Violation]) -> str:
    """Return the way out of an order that does not fit now in a project that does not hold orders."""
    later = "order again when use has fallen, or "
    return _sentence(f"{_smaller(request, violations, now=True)}{later}{_higher(violations)}")


def when_held(violations: Sequence[Violation]) -> str:
    """Return what a held order waits for, and the way out."""
    short = [f"{amount(it.short_by, it.dimension)} in {it.scope}" for it in violations if it.short_by]
    waits = f"Waits for {' and '.join(short)} more" if short else "Waits for older orders to be admitted first"
    return f"{waits}; release what is not needed, or {_higher(violations)}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def fitting_count(request: OrderRequest, violations: Sequence[Violation], *, now: bool) -> int:
    """Return the largest count that would pass: with what is left `now`, or with the whole limit."""
    return min((_count(request, it, it.used if now else 0) for it in violations), default=request.count)


def _count(request: OrderRequest, violation: Violation, used: int) -> int:
    if violation.dimension == "concurrent_orders":
        return 0
    return max(0, violation.limit - used) * request.count // violation.requested


def _smaller(request: OrderRequest, violations: Sequence[Violation], *, now: bool) -> str:
    """Return which order would pass, with `; or ` behind it; nothing where each one, however small, is one too many."""
    if any(it.dimension == "concurrent_orders" for it in violations):
        return ""
    count = fitting_count(request, violations, now=now)
    if 0 < count < request.count:
        return f"Order a count of at most {count}; or "
    types = sorted({it.dimension.removeprefix("cards/") for it in violations if it.dimension.startswith("cards/")})
    return f"Order a smaller specification{', or one without ' if types else ''}{', '.join(types)}; or "


def _higher(violations: Sequence[Violation]) -> str:
    limits = dict.fromkeys(f"{it.dimension.partition('@')[0]} in {it.scope}" for it in violations)
    return f"ask for a higher limit of {' and '.join(limits)}."
