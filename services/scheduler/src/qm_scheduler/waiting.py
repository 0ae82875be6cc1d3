"""What the queue keeps of an order document."""

from collections.abc import Mapping
from typing import NamedTuple

from qm_events.specs import WaitCode
from qm_scheduler.fifo import Seq
from qm_scheduler.projections import OrderDoc
from qm_scheduler.reservations import Reservation, hold_key
from qm_scheduler.standing import Level
from qm_scheduler.view import Ask, right_of, shape_of


class Waiting(NamedTuple):
    """One waiting order."""

    level: Level
    seq: Seq
    ask: Ask
    code: WaitCode | None
    """The first reason that was told; None = none yet."""
    scope: str
    """`tenant/project`."""


def waiting_of(doc: OrderDoc | None, reservations: Mapping[str, Reservation] | None = None) -> Waiting | None:
    """Return what the queue keeps of a document; None = it does not wait.

    A reservation that is over, or that is not of the project, is as if it had not been named; one is of whole cards.
    """
    if doc is None or not doc.is_waiting or doc.request is None or doc.submitted_at is None:
        return None
    kept = doc.promise is not None
    named = (reservations or {}).get(doc.request.reservation or "")
    whole = doc.request.specification.slice is None
    booked = named if named and whole and named.serves(doc.tenant, doc.project) else None
    after = [at for at in (doc.not_before, booked.starts_at if booked else None) if at]
    return Waiting(
        (-doc.request.priority, 0 if kept else 1),
        (doc.submitted_at, doc.order),
        Ask(
            shape_of(doc.request),
            doc.request.duration_seconds,
            doc.request.expires_at,
            doc.order if kept else "",
            max(after, default=None),
            right_of(doc.tenant, doc.borrowed, doc.reclaims),
            hold_key(booked.id) if booked else "",
        ),
        doc.reasons[0].code if doc.reasons else None,
        f"{doc.tenant}/{doc.project}",
    )
