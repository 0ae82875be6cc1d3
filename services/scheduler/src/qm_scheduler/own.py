"""Reasons that concern one line alone, whatever its shape: what was done for it, when its time comes."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from qm_events.envelope import utc_text
from qm_events.specs import WaitCode, WaitReason
from qm_events.units import amount
from qm_scheduler.board import Board
from qm_scheduler.holds import Hold
from qm_scheduler.placement import place
from qm_scheduler.pool import Sight
from qm_scheduler.reasons import reason_of
from qm_scheduler.reservations import PRIORITY, Reservation, is_reserved
from qm_scheduler.view import Ask, seat


def own_reasons(board: Board, ask: Ask) -> tuple[WaitReason, ...]:
    """Return the reasons of a line that no other line has."""
    found = (*_evictions(board, ask), *(_of_its_own(board, ask) if ask.reservation else _of_others(board, ask)))
    if found or ask not in board.parked or ask.after is None:
        return found
    return (_out(ask.after),)


def _evictions(board: Board, ask: Ask) -> Iterator[WaitReason]:
    hold = board.pool.holds.get(ask.owner)
    leaving = [board.leaving[each] for each in hold.victims if each in board.leaving] if hold else []
    if hold and leaving:
        cards = sum(len(unit.cards) for doc in leaving for unit in doc.units)
        yield reason_of(
            WaitCode.WAITING_FOR_PREEMPTION,
            f"is served when {amount(cards, 'cards')} that others give up for it are clean",
            "Nothing to do: the place is kept, and it starts when the cards are clean.",
            cards_awaited=cards,
            orders_leaving=len(leaving),
            expected_at=utc_text(hold.until) if hold.until else None,
        )


def _out(until: datetime) -> WaitReason:
    return reason_of(
        WaitCode.RECENTLY_RECLAIMED,
        f"may be given cards from {_at(until)} on",
        "Wait until then, or order within the quota of the project.",
        not_before=utc_text(until),
    )


def _of_its_own(board: Board, ask: Ask) -> Iterator[WaitReason]:
    """Hold if its own reservation has not begun, or is used up."""
    booked = board.reservations[ask.reservation.partition("/")[2]]
    if booked.starts_at > board.now:
        yield reason_of(
            WaitCode.RESERVATION_NOT_STARTED,
            f"is served from {_at(booked.starts_at)} on, when its reservation begins",
            "Wait until then, or order without the reservation.",
            reservation=booked.id,
            starts_at=utc_text(booked.starts_at),
        )
    elif ask not in board.parked and place(board.pool.reserved(ask.reservation), ask.shape) is None:
        yield _used(
            f"fits when other orders of its reservation of {amount(booked.cards, 'cards')} end",
            "Wait, or order without the reservation.",
            ask,
            booked.cards,
            booked.ends_at,
        )


def _of_others(board: Board, ask: Ask) -> Iterator[WaitReason]:
    """Hold if it would fit now but for what is reserved for others, or for nobody."""
    pool = board.pool
    binding = [hold for key, hold in pool.holds.items() if is_reserved(key) and hold.binds(ask, -PRIORITY, board.now)]
    if not binding or place(pool.views[Sight.FREE], ask.shape) is None or _fits_beside(board, ask, binding):
        return
    maintained = [hold for hold in binding if _booked(board, hold).is_maintenance]
    if maintained and _fits_beside(board, ask, [hold for hold in binding if hold not in maintained]):
        docs = [_booked(board, hold) for hold in maintained]
        until = min(doc.ends_at for doc in docs)
        yield reason_of(
            WaitCode.MAINTENANCE_WINDOW,
            f"may fit when maintenance ends, at {_at(until)}",
            "Wait until the maintenance ends, order another type, or order for a time that ends before it.",
            starts_at=utc_text(min(doc.starts_at for doc in docs)),
            ends_at=utc_text(until),
        )
        return
    until = min(_booked(board, hold).ends_at for hold in binding)
    yield _used(
        f"may fit when a reservation ends, at {_at(until)}; what is free is reserved",
        "Order for a time that ends before the reservation begins, or another type.",
        ask,
        sum(pick.units for hold in binding for pick in hold.picks),
        until,
    )


def _used(counterfactual: str, remedy: str, ask: Ask, reserved: int, until: datetime) -> WaitReason:
    return reason_of(
        WaitCode.CAPACITY_IN_USE,
        counterfactual,
        remedy,
        requested=ask.shape.cards * ask.shape.units,
        reserved=reserved,
        short=["cards"],
        next_end=utc_text(until),
    )


def _booked(board: Board, hold: Hold) -> Reservation:
    return board.reservations[hold.order.partition("/")[2]]


def _fits_beside(board: Board, ask: Ask, binding: Sequence[Hold]) -> bool:
    pool, view = board.pool, board.pool.views[Sight.FREE]
    with view.changing() as put:
        for name in {pick.node for hold in binding for pick in hold.picks} & pool.nodes.keys():
            here = [hold for hold in binding if hold.order in pool.kept[name]]
            put(seat(name), pool.left_on(pool.nodes[name], view.rooms[seat(name)], here))
        return place(view, ask.shape) is not None


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
