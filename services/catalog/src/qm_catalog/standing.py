"""What the sections of a record say together: which cards are those of now, whether it is over, when it will be."""

from datetime import datetime, timedelta

from qm_catalog.request_record import Built, Record


def promised_end(record: Record) -> datetime | None:
    """Return the instant at which the order ends by itself, or None while that is not known or never.

    A duration counts from the first READY, whatever became of those cards; an extension replaces whatever was promised
    before it.
    """
    asked, request = record.asked, record.asked.request
    if asked.extended_to or request is None:
        return asked.extended_to
    if request.duration_seconds is not None and (ready_at := first_ready_at(record.built)) is not None:
        return ready_at + timedelta(seconds=request.duration_seconds)
    return request.expires_at


def first_ready_at(built: Built) -> datetime | None:
    """Return when the first environment of the order was ready: an end that was promised stands."""
    every = (*(past.ready_at for past in built.earlier), built.ready_at)
    return min((at for at in every if at is not None), default=None)


def environment(record: Record) -> Built:
    """Return what there is on the cards of now: nothing where the topic `environments` tells of earlier ones still."""
    built = record.built
    return Built() if any(past.allocation == built.allocation for past in record.placed.earlier) else built


def holds_cards(record: Record) -> bool:
    """Tell whether cards are, or may be, held. They are let go only by `allocation.returned`."""
    built = environment(record)
    begun = record.placed.allocated_at or built.started_at or built.release_started_at
    return begun is not None and record.placed.returned_at is None


def finished(record: Record) -> bool:
    """Tell whether the order is at an end: it will never have cards, or all are back and the receipt is there."""
    if holds_cards(record):
        return False
    if record.placed.returned_at is not None:
        return environment(record).receipt is not None
    vetted, placed = record.vetted, record.placed
    return any((vetted.rejected_at, vetted.withdrawn_at, placed.withdrawn_at))
