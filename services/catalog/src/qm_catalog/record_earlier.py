"""What an order had before: cards that it gave up, and the environments on them, told by two topics."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from qm_catalog.request_record import Built, PastAllocation, PastEnvironment, Receipt, Record
from qm_events.specs import Probe


class EarlierView(BaseModel):
    """Cards that the order had before and gave up, and the environment on them."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    id: str
    cards: list[str]
    nodes: list[str]
    cause: Literal["preempted", "reclaimed", "replaced", "suspended"] | None
    why: str
    allocated_at: datetime | None
    ready_at: datetime | None
    """Null where it never was."""
    given_up_at: datetime | None
    """Billing stopped then."""
    returned_at: datetime | None
    quarantined: tuple[str, ...]
    probes: tuple[Probe, ...]
    error: str
    receipt: Receipt | None


def earlier_allocations(record: Record) -> tuple[EarlierView, ...]:
    """Return them in the order in which the order had them."""
    built: dict[str, PastEnvironment | Built] = {past.allocation: past for past in record.built.earlier}
    built.setdefault(record.built.allocation, record.built)
    return tuple(_past(past, built.get(past.allocation or "")) for past in record.placed.earlier)


def _past(past: PastAllocation, built: PastEnvironment | Built | None) -> EarlierView:
    told = past.given_up
    return EarlierView(
        id=past.allocation or "",
        cards=[card for unit in past.units for card in unit.cards],
        nodes=sorted({unit.node for unit in past.units}),
        cause=told.cause if told else None,
        why=told.why if told else "",
        allocated_at=past.allocated_at,
        ready_at=built.ready_at if built else None,
        given_up_at=told.at if told else None,
        returned_at=past.returned_at,
        quarantined=past.quarantined,
        probes=built.probes if built else (),
        error=built.error if built else "",
        receipt=built.receipt if built else None,
    )
