"""What can be limited, in which unit, and why a limit is refused. Pure."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError

from qm_admission.quota import HOURS, PER_ACCELERATOR, Quantities
from qm_admission.shares import CARD_SHARES, SHARES
from qm_events.units import DnsLabel
from qm_service.model import Rejected

DIMENSIONS: Mapping[str, str] = {
    "cards": "whole cards",
    "cards/<accelerator>": "whole cards of one accelerator type",
    "accelerator_memory_mib": "MiB of accelerator memory",
    "cpu_milli": "thousandths of a CPU",
    "memory_mib": "MiB of main memory",
    "concurrent_orders": "orders from admission to release",
    "card_hours_month": "card-hours in a calendar month of the tenant's zone",
}
LARGEST_LIMIT = 10**15
"""Below 2**53, so that every reader of JSON sees the same number."""
LARGEST_HOURS = 10**9
"""A million cards all month; in card-microseconds it fits 64 bits."""

_ACCELERATOR: TypeAdapter[str] = TypeAdapter(DnsLabel)


def refuse_limits(limits: Quantities) -> Rejected | None:
    """Return why these limits cannot be set, or None."""
    if unknown := sorted(name for name in limits if not _known(name)):
        detail = "; ".join(f"no such dimension: {name}{_meant(name)}" for name in unknown)
        return Rejected("quota-dimension-unknown", detail, known_dimensions())
    if wrong := sorted(name for name, limit in limits.items() if not 0 <= limit <= _largest(name)):
        rule = ", ".join(f"{name}: 0 to {_largest(name)} {unit_of(name)}" for name in wrong)
        return Rejected("quota-limit-out-of-range", f"out of range: {', '.join(wrong)}", rule)
    return None


def refuse_lending(limits: Quantities, borrow: Quantities, lend: Quantities, project: str | None) -> Rejected | None:
    """Return why this cannot be borrowed or lent, or None."""
    if refused := refuse_limits(borrow) or refuse_limits(lend):
        return refused
    named = sorted({*borrow, *lend})
    if named and project is None:
        return _lending("a tenant has nobody to borrow from or to lend to", "set it on the projects of the tenant")
    if HOURS in named:
        return _lending(f"{HOURS} cannot be borrowed or lent", f"move the limit of {HOURS} from one project to another")
    if unlimited := [name for name in named if name not in limits]:
        detail = f"not limited, so nothing of it is the project's own: {', '.join(unlimited)}"
        return _lending(detail, "give each of them a limit, or leave it out of borrow and lend")
    if more := [name for name in lend if lend[name] > limits[name]]:
        return _lending(f"more is lent than the limit: {', '.join(more)}", "lend at most the limit")
    return None


def refuse_reports(limits: Quantities, report_only: tuple[str, ...]) -> Rejected | None:
    """Return why these limits cannot be report-only, or None."""
    if strangers := sorted(set(report_only) - set(limits)):
        detail = f"report_only names what has no limit: {', '.join(strangers)}"
        return Rejected("quota-report-only-unknown", detail, "name dimensions of limits only")
    return None


def unit_of(name: str) -> str:
    """Return the unit of a dimension that is known, in words."""
    if name.startswith(CARD_SHARES):
        return f"shares of 1/{SHARES} of a card"
    return DIMENSIONS["cards/<accelerator>" if name.startswith(PER_ACCELERATOR) else name]


def known_dimensions() -> str:
    """Return the dimensions and their units, in words."""
    return "dimensions are " + ", ".join(f"{name} ({unit})" for name, unit in DIMENSIONS.items())


def whole_number(name: str, value: Any) -> str | None:
    """Return what is wrong with a quantity that came from outside, its unit named; None where it is a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    unit = f" of {unit_of(name)}" if _known(name) else ""
    return f"{name} takes a whole number{unit}, written as a number without a unit"


def _known(name: str) -> bool:
    if not name.startswith(PER_ACCELERATOR):
        return name in DIMENSIONS
    try:
        return bool(_ACCELERATOR.validate_python(name.removeprefix(PER_ACCELERATOR)))
    except ValidationError:
        return False


def _meant(name: str) -> str:
    near = get_close_matches(name, DIMENSIONS, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}, in {DIMENSIONS[near[0]]}?)" if near else ""


def _largest(name: str) -> int:
    return LARGEST_HOURS if name == HOURS else LARGEST_LIMIT


def _lending(detail: str, remedy: str) -> Rejected:
    return Rejected("quota-lending-invalid", detail, remedy)
