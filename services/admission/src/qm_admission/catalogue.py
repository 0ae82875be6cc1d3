"""The specifications that can be ordered, as the directory tells them: only to name a smaller one. Pure.

An order carries its own specification, resolved by the catalog; nothing is claimed by what is known here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qm_events import Event
from qm_events.catalog import CatalogueItemStatusChanged, SpecificationPublished
from qm_events.specs import CatalogueStatus, Specification
from qm_service.model import Fold, Projection

NAME = "specifications"


@dataclass(frozen=True, slots=True)
class Item:
    """A specification in its latest version; without one, only its status was told."""

    specification: Specification | None = None
    status: CatalogueStatus = CatalogueStatus.ACTIVE


class Specifications:
    """Those on sale, by accelerator type."""

    def __init__(self) -> None:
        self._by_type: dict[str, dict[str, Specification]] = {}

    def changed(self, name: str, new: Item | None) -> None:
        """Follow one document."""
        for known in self._by_type.values():
            known.pop(name, None)
        if new and new.specification and new.status is CatalogueStatus.ACTIVE:
            for accelerator in new.specification.accelerators:
                self._by_type.setdefault(accelerator, {})[name] = new.specification

    def serving(self, accelerators: Iterable[str]) -> Sequence[Specification]:
        """Return those that take one of these types, by name."""
        found = {name: one for kind in accelerators for name, one in self._by_type.get(kind, {}).items()}
        return [found[name] for name in sorted(found)]


def _published(item: Item | None, event: Event[SpecificationPublished]) -> Item:
    item, published = item or Item(), event.data.specification
    if item.specification and item.specification.version >= published.version:
        return item
    return replace(item, specification=published)


def _changed(item: Item | None, event: Event[CatalogueItemStatusChanged]) -> Item | None:
    if event.data.kind != "specification":
        return item
    return replace(item or Item(), status=event.data.status)


def _name(event: Event[Any]) -> Sequence[str]:
    return (event.data.specification.name,)


def _changed_name(event: Event[CatalogueItemStatusChanged]) -> Sequence[str]:
    return (event.data.name,) if event.data.kind == "specification" else ()


def _always(_: object) -> bool:
    return True


SPECIFICATIONS: Projection[Any] = Projection(
    name=NAME,
    version=1,
    model=Item,
    folds={
        SpecificationPublished: Fold(_published, _name),
        CatalogueItemStatusChanged: Fold(_changed, _changed_name),
    },
    resident=_always,
)
