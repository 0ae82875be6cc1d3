"""What only the embedded product can do: move the time, break a card."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from qm_client.embedded.clock import StoredClock
from qm_client.embedded.settle import NotSettled
from qm_events import UtcTime
from qm_events.envelope import utc_text
from qm_service.caller import Access
from qm_service.clock import Clock
from qm_service.problem import ProblemError, ServiceUnavailable, ValidationFailed, problems

_STEPS = 100_000
LAST = datetime(2500, 1, 1, tzinfo=UTC)
"""The clock goes no further: orders that begin then still end within the calendar."""


class ClockIsNotManual(ProblemError):
    """The product runs on wall time."""

    code, status, title = "clock-is-not-manual", 409, "The clock cannot be moved"
    remedy = "Start with `qm up --clock manual`."


class ClockRunsForward(ProblemError):
    """The instant lies before the present one."""

    code, status, title = "clock-runs-forward", 409, "The clock cannot be moved back"
    remedy = "Name a later instant."


class ClockMove(BaseModel):
    """Where to move the clock: to an instant or by a span (ISO 8601); neither = stand, but come to rest."""

    model_config = ConfigDict(extra="forbid")

    now: UtcTime | None = None
    advance: Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(days=36_525))] | None = None

    @model_validator(mode="after")
    def one_of_both(self) -> "ClockMove":
        """Refuse a move that says both."""
        if self.now is not None and self.advance is not None:
            raise ValueError("give `now` or `advance`, not both")
        return self


class ClockReply(BaseModel):
    """What time it is."""

    now: datetime
    mode: Literal["manual"]


def sim_routes(clock: Clock, settle: Callable[[], Awaitable[None]]) -> APIRouter:
    """Return the routes. `settle` returns when the product has come to rest at the present instant."""
    router = APIRouter()

    @router.post("/sim/clock", responses=problems(ClockIsNotManual, ClockRunsForward))
    async def move_clock(body: ClockMove, access: Access) -> ClockReply:
        """Move the time, stopping wherever something is due, and return when all that follows has happened."""
        access.check()
        if not isinstance(clock, StoredClock):
            raise ClockIsNotManual("The product runs on wall time.")
        target = body.now or clock.now() + (body.advance or timedelta(0))
        if target > LAST:
            raise ValidationFailed(f"{utc_text(target)} is after {utc_text(LAST)}.", field="now or advance")
        if target < clock.now():
            raise ClockRunsForward(f"It is {utc_text(clock.now())}.", field="now")
        try:
            await _move(clock, target, settle)
        except NotSettled as error:
            raise ServiceUnavailable(str(error)) from error
        return ClockReply(now=clock.now(), mode="manual")

    return router


async def _move(clock: StoredClock, target: datetime, settle: Callable[[], Awaitable[None]]) -> None:
    for _ in range(_STEPS):
        await settle()
        due = clock.next_due()
        if due is None or due > target:
            break
        # What is due but does not happen would stop the time for ever: pass it by the smallest step.
        clock.set(due if due > clock.now() else clock.now() + timedelta(microseconds=1))
    clock.set(target)
    await settle()
