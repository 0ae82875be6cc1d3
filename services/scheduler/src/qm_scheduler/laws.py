"""When somebody may lose cards to another, and what that is said to cost. Every figure is a setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from qm_events.specs import ServiceModel

RESTART_SECONDS: Mapping[str, int] = {
    ServiceModel.BARE_METAL: 1_800,
    ServiceModel.VM: 300,
    ServiceModel.MAAS: 120,
    ServiceModel.KUBERNETES: 60,
}
"""How long an environment takes to come up again, for the cost alone: a server is installed anew (half an hour), a
machine boots and is proven, weights are loaded, a container starts. Orders of magnitude, not measurements."""
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Laws:
    """The figures; the defaults are those of the settings."""

    min_run_seconds: int = 600
    """Nobody is a victim before it held its cards for so long."""
    window_evictions: int = 32
    """So many evictions at most of one accelerator type …"""
    window_seconds: int = 600
    """… within this time."""
    evictions_a_day: int = 2
    """No order is evicted more often within 24 hours."""
    backoff_seconds: int = 300
    """A borrower that had to give cards back stays out for this long, doubled with each time within 24 hours …"""
    backoff_max_seconds: int = 3_600
    """… up to this."""
    progress_cap_seconds: int = 86_400
    """Work that is lost counts up to so much: who runs for weeks has saved it somewhere."""
    victim_cost: int = 600
    """Card-seconds for each victim, whatever its size: rather one than many."""
    again_cost: int = 7_200
    """Card-seconds for each eviction of the order within 24 hours: rather another than the same."""
    restart_seconds: Mapping[str, int] = field(default_factory=lambda: RESTART_SECONDS)

    def cost(self, cards: int, ran: timedelta, model: ServiceModel, recent: int) -> int:
        """Return what an eviction costs, in card-seconds."""
        lost = min(max(int(ran.total_seconds()), 0), self.progress_cap_seconds)
        return cards * (lost + self.restart_seconds[model]) + self.victim_cost + self.again_cost * recent

    def ripe_at(self, since: datetime) -> datetime:
        """Return when an allocation may be a victim: on a full minute, so that there is one look a minute at most."""
        return next_minute(since + timedelta(seconds=self.min_run_seconds))

    def spared_until(self, evicted: tuple[datetime, ...], now: datetime) -> datetime | None:
        """Return until when an order that was evicted at these times is no victim again; None: it may be one."""
        recent = recently(evicted, now)
        return recent[-self.evictions_a_day] + DAY if len(recent) >= self.evictions_a_day else None

    def window_until(self, evicted: tuple[datetime, ...], more: int, now: datetime) -> datetime | None:
        """Return until when a type that saw evictions at these times bears no `more` of them; None: it does."""
        window = timedelta(seconds=self.window_seconds)
        recent = [at for at in evicted if at + window > now]
        excess = len(recent) + more - self.window_evictions
        if excess <= 0:
            return None
        return recent[min(excess, len(recent)) - 1] + window if recent else now + window

    def out_until(self, reclaimed: tuple[datetime, ...]) -> datetime | None:
        """Return until when an order that had to give back what it borrowed at these times stays out."""
        if not reclaimed:
            return None
        last = reclaimed[-1]
        times = len(recently(reclaimed, last))
        seconds = min(self.backoff_seconds << min(times - 1, 20), self.backoff_max_seconds)
        return last + timedelta(seconds=seconds)


def next_minute(at: datetime) -> datetime:
    """Return the next full minute after a time."""
    return at.replace(second=0, microsecond=0) + timedelta(minutes=1)


def recently(times: tuple[datetime, ...], now: datetime) -> tuple[datetime, ...]:
    """Return those within a day before."""
    return tuple(at for at in times if at + DAY > now)
