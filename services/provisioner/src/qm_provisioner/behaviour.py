"""How a step of a simulated twin misbehaves."""

from pydantic import BaseModel, ConfigDict, Field

_Times = Field(default=0, ge=0, le=1_000)


class Behaviour(BaseModel):
    """The faults of one step, of `undo:<step>` or of `probe:<check>`. Counts are by name: each order has its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    delay_seconds: float = Field(default=0.0, ge=0.0, le=10 * 86_400.0, allow_inf_nan=False)
    """How long after the answer it takes to be there (or gone)."""
    fail_times: int = _Times
    """So many calls fail before any effect; the next one succeeds."""
    fail_for_good: bool = False
    """Every call is refused, and says that it always will be."""
    hang: bool = False
    """No call is ever answered."""
    answer_twice: bool = False
    """The call is carried out twice: two things with one name."""
    lose_answers: int = _Times
    """So many calls take effect, but their answer is lost."""
    lie_about_ready: bool = False
    """It says that all is done: a thing that does not work, or (undo) one that is still there."""


NORMAL = Behaviour()
"""Of whatever was not told otherwise."""
