"""The card-hours that an admitted order holds ahead: what is known of them, and their fold. Pure.

`holds` decides about them. Hours are held from admission on, follow the order when it becomes ready or is extended, and
are settled by the lines of metering: what a line says is used for good, and what was held for it is free again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from qm_admission.hours import Life, life_of
from qm_events import EventData
from qm_events.admission import OrderAdmitted, OrderResumed, OrderSuspended, QuotaClaimed
from qm_events.admission_quota import QuotaAdjusted, QuotaHoursEnding, QuotaHoursExhausted


@dataclass(frozen=True, slots=True)
class Hold:
    """The hours of one order."""

    life: Life | None = None
    """None: it was admitted before hours were held ahead."""
    ready_at: datetime | None = None
    ready_on: str = ""
    """The allocation on which it is."""
    covered_until: datetime | None = None
    """None: to the end of the order."""
    noticed: datetime | None = None
    """The end of cover of which a notice was given."""
    exhausted: bool = False
    looks_at: datetime | None = None
    lines: tuple[str, ...] = ()
    """The lines of metering that were settled."""
    billed: tuple[str, ...] = ()
    """The allocations of which a line said how their use ended; of old lines, that is not known."""
    given_up: tuple[str, ...] = ()
    """The allocations after which the order lives on."""
    closed: bool = False
    """The cards are back: nothing more is to be held."""
    suspended: bool = False

    @property
    def ended(self) -> bool:
        """Whether the bill is closed or the cards are back, for good as far as is known."""
        return self.closed or not set(self.billed) <= set(self.given_up)


def evolve(hold: Hold, data: EventData) -> Hold:
    """Return the hold after a fact that concerns it."""
    match data:
        case QuotaClaimed():
            return replace(hold, covered_until=data.covered_until, looks_at=data.looks_at)
        case OrderAdmitted():
            return replace(hold, life=life_of(data.request))
        case QuotaAdjusted():
            return _adjusted(hold, data)
        case QuotaHoursEnding():
            return replace(hold, noticed=data.covered_until, looks_at=data.looks_at)
        case QuotaHoursExhausted():
            return replace(hold, exhausted=True, looks_at=data.looks_at)
        case OrderSuspended():
            return replace(hold, suspended=True, looks_at=None)
        case OrderResumed():
            return replace(hold, suspended=False, exhausted=False, noticed=None, closed=False)
        case _:
            return hold


def _adjusted(hold: Hold, data: QuotaAdjusted) -> Hold:
    if data.cause in ("suspended", "placed"):
        return hold
    lines = hold.lines if data.record is None else (*hold.lines, data.record)
    if data.cause in ("used", "corrected", "closed"):
        ended = data.record is not None and not data.runs_on
        billed = (*hold.billed, data.allocation or "") if ended else hold.billed
        return replace(hold, lines=lines, billed=billed, closed=hold.closed or data.cause == "closed")
    life = hold.life
    if life and data.expires_at:
        life = replace(life, seconds=None, expires_at=data.expires_at)
    if data.cause == "given_up":
        hold = replace(hold, ready_at=None, closed=False, given_up=(*hold.given_up, data.allocation or ""))
    return replace(
        hold,
        life=life,
        ready_at=data.starts_at or hold.ready_at,
        ready_on=data.allocation or "" if data.starts_at else hold.ready_on,
        covered_until=data.covered_until,
        exhausted=hold.exhausted and data.covered_until == hold.covered_until,
        looks_at=data.looks_at,
    )


def claim_after(claim: Mapping[str, int], data: EventData) -> Mapping[str, int]:
    """Return what is held after a fact: what metering said is used is held no more, and is no part of it."""
    if not isinstance(data, QuotaAdjusted) or data.cause == "corrected":
        return claim
    taken = {} if data.cause == "used" else data.taken.values
    returned = data.returned.values
    names = dict.fromkeys((*claim, *taken))
    after = {name: claim.get(name, 0) + taken.get(name, 0) - returned.get(name, 0) for name in names}
    return {name: amount for name, amount in after.items() if amount}
