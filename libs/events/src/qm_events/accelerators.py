"""Accelerator types as data: memory, names of resources, and how a card may be cut.

A geometry divides a card into positions and says for each profile how many it takes and where it may begin: NVIDIA's
MIG placement tables as they are, and the templates of NPU vendors as aligned blocks of cores.
"""

from bisect import bisect_right
from fractions import Fraction

from pydantic import Field

from qm_events.specs import Position, ProfileName, ResourceName, Text, Value, check_places
from qm_events.units import SHARES_OF_A_CARD, DnsLabel, MemoryMib, Ratio


class SliceProfile(Value):
    """A slice that a card can be cut into."""

    profile: ProfileName
    size: int = Field(ge=1, le=64, strict=True)
    """Positions that it takes."""
    starts: tuple[Position, ...] = Field(min_length=1, max_length=64)
    """Where it may begin, in the order in which this is tried: what spoils the least for others first."""
    memory_mib: MemoryMib
    share: Ratio
    """What it counts of a card. Compute and memory of a slice may differ: this says which of them is charged."""
    resource: ResourceName | None = None
    """What Kubernetes calls it, `nvidia.com/mig-1g.10gb`."""


class Accelerator(Value):
    """An accelerator type of any vendor. A card is used in one way at a time: whole, cut by the geometry, or shared."""

    name: DnsLabel
    vendor: Text
    memory_mib: MemoryMib
    """Of one card."""
    resource: ResourceName | None = None
    """What Kubernetes calls a whole card, `nvidia.com/gpu`."""
    positions: int | None = Field(default=None, ge=1, le=64, strict=True)
    """Into which the geometry divides a card; null: it cannot be cut."""
    profiles: tuple[SliceProfile, ...] = Field(default=(), max_length=64)
    shared: bool = Field(default=False, strict=True)
    """Whether thousandths of a card are offered."""
    shared_resource: ResourceName | None = None
    """What Kubernetes calls a share of a card."""

    def profile(self, name: str) -> SliceProfile | None:
        """Return a profile by its name."""
        return next((one for one in self.profiles if one.profile == name), None)


def check_geometry(accelerator: Accelerator) -> None:
    """Raise ValueError for a geometry that no card can have."""
    if len({one.profile for one in accelerator.profiles}) < len(accelerator.profiles):
        raise ValueError("a profile is named twice")
    for one in accelerator.profiles:
        check_places(accelerator.positions or 0, one.size, one.starts)
        if SHARES_OF_A_CARD % Fraction(one.share).denominator:
            raise ValueError(f"{one.share} of a card is no whole number of parts of 1/{SHARES_OF_A_CARD}")
    if (most := largest_share(accelerator.profiles)) > 1:
        raise ValueError(f"slices that lie side by side count {most} of a card")


def largest_share(profiles: tuple[SliceProfile, ...]) -> Fraction:
    """Return the most that slices of a card count together, for all ways to cut it."""
    places = sorted((start + one.size, start, Fraction(one.share)) for one in profiles for start in one.starts)
    ends = [0] + [end for end, _, _ in places]
    best = [Fraction(0)]
    for at, (_, start, share) in enumerate(places):
        best.append(max(best[-1], share + best[bisect_right(ends, start, 0, at + 1) - 1]))
    return best[-1]
