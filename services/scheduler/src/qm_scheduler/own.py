"""Reasons that concern one line alone, whatever its shape: what was done for it, and when its time comes."""

from collections.abc import Iterator

from qm_events.specs import WaitCode, WaitReason
from qm_events.units import amount
from qm_scheduler.board import Board
from qm_scheduler.view import Ask


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
    if ask in board.parked and ask.after is not None:
        yield WaitReason(
            code=WaitCode.RECENTLY_RECLAIMED,
            figures={"not_before": ask.after.isoformat()},
            counterfactual=f"may be given cards from {ask.after:%Y-%m-%dT%H:%M:%SZ} on",
            remedy="Wait until then, or order within the quota of the project.",
        )
