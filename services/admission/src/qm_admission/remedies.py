"""What a person can do about a refusal or a wait, in words. Pure; the same facts give the same words."""

from collections.abc import Sequence

from qm_events.specs import OrderRequest, Violation
from qm_events.units import amount


def when_never(request: OrderRequest, violations: Sequence[Violation]) -> str:
    """Return the way out of an order that passes a limit even with nothing else in use."""
    return f"{_smaller(request, violations, now=False)}; or ask for a higher limit of {_limits(violations)}."


def when_refused(request: OrderRequest, violations: Sequence[Violation]) -> str:
    """Return the way out of an order that does not fit now in a project that does not hold orders."""
    return (
        f"{_smaller(request, violations, now=True)}; or order again when use has fallen, "
        f"or ask for a higher limit of {_limits(violations)}."
    )


def when_held(violations: Sequence[Violation]) -> str:
    """Return what a held order waits for, and the way out."""
    short = [f"{amount(it.short_by, it.dimension)} in {it.scope}" for it in violations if it.short_by]
    waits = f"Waits for {' and '.join(short)} more" if short else "Waits for older orders to be admitted first"
    return f"{waits}; release what is not needed, or ask for a higher limit of {_limits(violations)}."


def fitting_count(request: OrderRequest, violations: Sequence[Violation], *, now: bool) -> int:
    """Return the largest count that would pass: with what is left `now`, or with the whole limit."""
    return min((_count(request, it, it.used if now else 0) for it in violations), default=request.count)


def _count(request: OrderRequest, violation: Violation, used: int) -> int:
    if violation.dimension == "concurrent_orders":
        return 0
    return max(0, violation.limit - used) * request.count // violation.requested


def _smaller(request: OrderRequest, violations: Sequence[Violation], *, now: bool) -> str:
    count = fitting_count(request, violations, now=now)
    if 0 < count < request.count:
        return f"Order a count of at most {count}"
    if any(it.dimension.startswith("cards/") for it in violations):
        return "Order a smaller specification, or one without " + ", ".join(
            sorted({it.dimension.removeprefix("cards/") for it in violations if it.dimension.startswith("cards/")})
        )
    return "Order a smaller specification"


def _limits(violations: Sequence[Violation]) -> str:
    return " and ".join(f"{it.dimension} in {it.scope}" for it in violations)
