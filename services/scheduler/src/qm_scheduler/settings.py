"""The settings of the scheduler: when somebody may lose cards to another. `laws` says what each figure does."""

from typing import Any

from pydantic import Field

from qm_scheduler.laws import RESTART_SECONDS, Laws
from qm_service.settings import Settings as Common

DEFAULT = Laws()


class Settings(Common):
    """What the scheduler needs beside the settings of every service."""

    eviction_min_run_seconds: int = Field(default=DEFAULT.min_run_seconds, ge=0)
    eviction_window_evictions: int = Field(default=DEFAULT.window_evictions, ge=1, le=256)
    eviction_window_seconds: int = Field(default=DEFAULT.window_seconds, ge=1)
    eviction_evictions_a_day: int = Field(default=DEFAULT.evictions_a_day, ge=1, le=256)
    eviction_backoff_seconds: int = Field(default=DEFAULT.backoff_seconds, ge=0)
    eviction_backoff_max_seconds: int = Field(default=DEFAULT.backoff_max_seconds, ge=0)
    eviction_progress_cap_seconds: int = Field(default=DEFAULT.progress_cap_seconds, ge=0)
    eviction_victim_cost: int = Field(default=DEFAULT.victim_cost, ge=0)
    eviction_again_cost: int = Field(default=DEFAULT.again_cost, ge=0)
    eviction_restart_seconds: dict[str, int] = Field(default_factory=lambda: {**RESTART_SECONDS})
    """By service model; one that is left out keeps its default."""

    @property
    def laws(self) -> Laws:
        """Return the figures as the rules take them."""
        figures: dict[str, Any] = {
            name.removeprefix("eviction_"): value for name, value in self if name.startswith("eviction_")
        }
        return Laws(**{**figures, "restart_seconds": {**RESTART_SECONDS, **self.eviction_restart_seconds}})
