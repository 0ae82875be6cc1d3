"""Reasons that concern one line alone, whatever its shape: what was done for it, and when its time comes."""

from collections.abc import Iterator, Sequence

from qm_events.specs import WaitCode, WaitReason
from qm_events.units import amount
from qm_scheduler.board import Board
from qm_scheduler.holds import Hold
from qm_scheduler.placement import place
from qm_scheduler.pool import Sight
from qm_scheduler.reservations import PRIORITY, Reservation, is_reserved
from qm_scheduler.view import Ask, seat


def own_reasons(board: Board, ask: Ask) -> tuple[WaitReason, ...]:
    """Return the reasons of a line that no other line has, by rank."""
    return tuple(_found(board, ask))


def _found(board: Board, ask: Ask) -> Iterator[WaitReason]:
    hold = board.pool.holds.get(ask.owner)
    leaving = [board.leaving[each] for each in hold.victims if each in board.leaving] if hold else []
    if hold and leaving:
        cards = sum(len(unit.cards) for doc in leaving for unit in doc.units)
        yield WaitReason(
            code=WaitCode.WAITING_FOR_PREEMPTION,
            figures={
                "cards_awaited": cards,
                "orders_leaving": len(leaving),
                "expected_at": hold.until.isoformat() if hold.until else None,
            },
            counterfactual=f"is served when {amount(cards, 'cards')} that others give up for it are clean",
            remedy="Nothing to do: the place is kept, and it starts when the cards are clean.",
        )
    yield from _of_reservations(board, ask)
    booked = board.reservations.get(ask.reservation.partition("/")[2])
    if booked is not None and booked.starts_at > board.now:
        yield WaitReason(
            code=WaitCode.RESERVATION_NOT_STARTED,
            figures={"reservation": booked.id, "starts_at": booked.starts_at.isoformat()},
            counterfactual=f"is served from {booked.starts_at:%Y-%m-%dT%H:%M:%SZ} on, when its reservation begins",
            remedy="Wait until then, or order without the reservation.",
        )
    elif booked is not None and place(board.pool.reserved(ask.reservation), ask.shape) is None:
        yield WaitReason(
            code=WaitCode.CAPACITY_IN_USE,
            figures={"requested": ask.cards, "reserved": booked.cards, "short": ["cards"], "next_end": None},
            counterfactual=f"fits when other orders of its reservation of {amount(booked.cards, 'cards')} end",
            remedy="Wait, or order without the reservation.",
        )
    elif ask in board.parked and ask.after is not None:
        yield WaitReason(
            code=WaitCode.RECENTLY_RECLAIMED,
            figures={"not_before": ask.after.isoformat()},
            counterfactual=f"may be given cards from {ask.after:%Y-%m-%dT%H:%M:%SZ} on",
            remedy="Wait until then, or order within the quota of the project.",
        )


def _of_reservations(board: Board, ask: Ask) -> Iterator[WaitReason]:
    """Hold if it would fit now but for what is reserved for others, or for nobody."""
    if ask.reservation:
        return
    pool = board.pool
    binding = [hold for key, hold in pool.holds.items() if is_reserved(key) and hold.binds(ask, -PRIORITY, board.now)]
    if not binding or place(pool.views[Sight.FREE], ask.shape) is None or _fits_beside(board, ask, binding):
        return
    maintained = [hold for hold in binding if _booked(board, hold).is_maintenance]
    if maintained and _fits_beside(board, ask, [hold for hold in binding if hold not in maintained]):
        docs = [_booked(board, hold) for hold in maintained]
        starts_at, until = min(doc.starts_at for doc in docs), min(doc.ends_at for doc in docs)
        yield WaitReason(
            code=WaitCode.MAINTENANCE_WINDOW,
            figures={"starts_at": starts_at.isoformat(), "ends_at": until.isoformat()},
            counterfactual=f"may fit when maintenance ends, at {until:%Y-%m-%dT%H:%M:%SZ}",
            remedy="Wait until the maintenance ends, order another type, or order for a time that ends before it.",
        )
        return
    until = min(_booked(board, hold).ends_at for hold in binding)
    reserved = sum(pick.units for hold in binding for pick in hold.picks)
    yield WaitReason(
        code=WaitCode.CAPACITY_IN_USE,
        figures={"requested": ask.cards, "reserved": reserved, "short": ["cards"], "next_end": until.isoformat()},
        counterfactual=f"may fit when a reservation ends, at {until:%Y-%m-%dT%H:%M:%SZ}; what is free is reserved",
        remedy="Order for a time that ends before the reservation begins, or another type.",
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
