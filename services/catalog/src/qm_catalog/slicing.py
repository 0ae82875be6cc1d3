"""From what an operator asks for of a card to what an order will carry: looked up in the accelerator types, once."""

from collections.abc import Sequence
from fractions import Fraction

from qm_catalog.forms import SliceForm, SpecificationForm
from qm_catalog.problems import UnknownReference
from qm_catalog.projections import AcceleratorItem
from qm_events.accelerators import Accelerator
from qm_events.specs import CatalogueStatus, Slice, Specification
from qm_service.model import Docs
from qm_service.problem import ValidationFailed


def specification_of(form: SpecificationForm, docs: Docs) -> Specification:
    """Return the specification of a form. Raises UnknownReference, ValidationFailed."""
    plain = form.model_dump(exclude={"description", "slice"}, exclude_none=True)
    if form.slice is None:
        return Specification(version=1, **plain)
    types = [_type(docs, name) for name in form.accelerators]
    cut, memory_mib = _share(form.slice.share_milli, types) if form.slice.share_milli else _cut(form.slice, types)
    return Specification(version=1, cards_per_unit=1, accelerator_memory_mib=memory_mib, slice=cut, **plain)


def _type(docs: Docs, name: str) -> Accelerator:
    known = docs.resident("accelerators")
    item: AcceleratorItem | None = known.get(name)
    if item is None or item.status is CatalogueStatus.RETIRED:
        why = "is retired" if item else "is not in the catalogue"
        raise UnknownReference(
            f"The accelerator type {name} {why}, so it is not known how it may be cut.",
            field="accelerators",
            choices=sorted(name for name, item in known.items() if item.status is CatalogueStatus.ACTIVE)[:50],
        )
    return item.accelerator


def _share(milli: int, types: Sequence[Accelerator]) -> tuple[Slice, int]:
    """Thousandths of the card with the least memory; every type must offer them."""
    if whole := [one.name for one in types if not one.shared]:
        raise ValidationFailed(
            f"Cards of {', '.join(whole)} are not shared.",
            field="slice.share_milli",
            remedy="Name a profile, or share the type.",
        )
    card = min(one.memory_mib for one in types)
    share = Fraction(milli, 1_000)
    resource = types[0].shared_resource
    ratio = f"{share.numerator}/{share.denominator}"
    return Slice(share=ratio, milli=milli, card_memory_mib=card, resource=resource), card * milli // 1_000


def _cut(asked: SliceForm, types: Sequence[Accelerator]) -> tuple[Slice, int]:
    """The profile as the first type has it; all must have it alike, for the order does not say which it will get."""
    first, places = types[0], [(one.positions, one.memory_mib, one.profile(asked.profile or "")) for one in types]
    if any(each != places[0] for each in places) or places[0][2] is None:
        common = set.intersection(*({one.profile for one in each.profiles} for each in types))
        raise UnknownReference(
            f"{', '.join(one.name for one in types)} have no profile {asked.profile} that is cut alike on all of them.",
            field="slice.profile",
            choices=sorted(common - {asked.profile}),
        )
    profile = places[0][2]
    cut = Slice(
        share=profile.share,
        profile=profile.profile,
        positions=first.positions,
        size=profile.size,
        starts=profile.starts,
        card_memory_mib=first.memory_mib,
        resource=profile.resource,
    )
    return cut, profile.memory_mib
