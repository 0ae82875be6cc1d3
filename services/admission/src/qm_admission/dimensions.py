"""What can be limited, in which unit, and why a limit is refused. Pure."""

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from qm_admission.quota import PER_ACCELERATOR, Quantities
from qm_events.units import DnsLabel
from qm_service.model import Rejected

DIMENSIONS: Mapping[str, str] = {
    "cards": "whole cards",
    "cards/<accelerator>": "whole cards of one accelerator type",
    "accelerator_memory_mib": "MiB of accelerator memory",
    "cpu_milli": "thousandths of a CPU",
    "memory_mib": "MiB of main memory",
    "concurrent_orders": "orders from admission to release",
}
NOT_ENFORCED = "card_hours_month"
"""Named by the API, but no limit on it is accepted: a limit that is not enforced would be a lie."""
LARGEST_LIMIT = 10**15
"""Below 2**53, so that every reader of JSON sees the same number."""

_ACCELERATOR: TypeAdapter[str] = TypeAdapter(DnsLabel)


def refuse_limits(limits: Quantities) -> Rejected | None:
    """Return why these limits cannot be set, or None."""
    if NOT_ENFORCED in limits:
        return Rejected(
            "quota-dimension-not-enforced",
            f"a limit on {NOT_ENFORCED} is not enforced in this release, so none is accepted",
            f"leave {NOT_ENFORCED} out; limit cards instead",
        )
    if unknown := sorted(name for name in limits if not _known(name)):
        return Rejected("quota-dimension-unknown", f"no such dimension: {', '.join(unknown)}", known_dimensions())
    if wrong := sorted(name for name, limit in limits.items() if not 0 <= limit <= LARGEST_LIMIT):
        return Rejected("quota-limit-out-of-range", f"out of range: {', '.join(wrong)}", f"0 to {LARGEST_LIMIT}")
    return None


def known_dimensions() -> str:
    """Return the dimensions and their units, in words."""
    return "dimensions are " + ", ".join(f"{name} ({unit})" for name, unit in DIMENSIONS.items())


def _known(name: str) -> bool:
    if not name.startswith(PER_ACCELERATOR):
        return name in DIMENSIONS
    try:
        return bool(_ACCELERATOR.validate_python(name.removeprefix(PER_ACCELERATOR)))
    except ValidationError:
        return False
