"""Slices for tests: the placement tables of an NVIDIA H100 and of a vendor's templates, and thousandths of a card."""

from collections.abc import Mapping
from fractions import Fraction

from qm_events.accelerators import Accelerator, SliceProfile
from qm_events.specs import Slice

_MIG: Mapping[str, tuple[int, tuple[int, ...], str]] = {
    "1g.10gb": (1, (6, 5, 4, 3, 2, 1, 0), "1/7"),
    "1g.20gb": (2, (6, 4, 2, 0), "1/7"),
    "2g.20gb": (2, (4, 2, 0), "2/7"),
    "3g.40gb": (4, (4, 0), "3/7"),
    "4g.40gb": (4, (0,), "4/7"),
    "7g.80gb": (8, (0,), "1/1"),
}
_TEMPLATES: Mapping[str, tuple[int, tuple[int, ...], str]] = {
    "vir01": (1, tuple(range(7, -1, -1)), "1/8"),
    "vir02": (2, (6, 4, 2, 0), "1/4"),
    "vir04": (4, (4, 0), "1/2"),
}


def _type(name: str, vendor: str, table: Mapping[str, tuple[int, tuple[int, ...], str]]) -> Accelerator:
    profiles = tuple(
        SliceProfile(profile=profile, size=size, starts=starts, memory_mib=10_240 * size, share=share)
        for profile, (size, starts, share) in table.items()
    )
    return Accelerator(name=name, vendor=vendor, memory_mib=81_920, positions=8, profiles=profiles, shared=True)


H100 = _type("h100", "NVIDIA", _MIG)
NPU = _type("npu", "another", _TEMPLATES)


def profile(name: str, of: Accelerator = H100) -> Slice:
    """Return a slice by its profile, as the catalogue resolves it."""
    one = of.profile(name)
    assert one is not None
    return Slice(
        share=one.share,
        profile=name,
        positions=of.positions,
        size=one.size,
        starts=one.starts,
        card_memory_mib=of.memory_mib,
    )


def milli(thousandths: int) -> Slice:
    """Return a share of a card."""
    share = Fraction(thousandths, 1_000)
    return Slice(share=f"{share.numerator}/{share.denominator}", milli=thousandths, card_memory_mib=H100.memory_mib)
