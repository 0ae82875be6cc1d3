"""What is asked for by shape, as learned: stream `workload/fleet`, and the document that follows from it.

Shared cards are rated by it (`fragments`), so it is a fact: a decision follows from the log alone. It is learned anew
when what waits and runs has become another by half, not with every order, for then every rating has to be worked out
again.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from qm_events import Event
from qm_events.scheduler import ExpectedUnits, WorkloadLearned
from qm_events.specs import OrderRequest
from qm_service.model import Context, Decider, Decision, Fold, Projection

SHAPES_MAX = 256
"""The shapes that most is asked for of; the others decide little."""
LEAST = 16
"""Units by which it must have become another."""
Key = tuple[tuple[str, ...], int, int, int]
"""Accelerators, cards, thousandths of a card (0: whole), CPU."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The state of the stream, and its document."""

    shapes: tuple[ExpectedUnits, ...] = ()


@dataclass(frozen=True, slots=True)
class Learn:
    """This is asked for now."""

    shapes: tuple[ExpectedUnits, ...]


@dataclass(slots=True)
class Demand:
    """What waits and runs, beside what was learned last."""

    units: Counter[Key] = field(default_factory=Counter)
    learned: Counter[Key] = field(default_factory=Counter)
    told: tuple[ExpectedUnits, ...] = ()
    parts: int = 0
    """Units of shared cards."""
    drift: int = 0
    """By how many units the two differ."""

    def add(self, request: OrderRequest, sign: int) -> None:
        """Count an order (1), or no longer (-1). Slices by geometry are placed without it."""
        key = _key(request)
        if key is None:
            return
        self.drift -= abs(self.units[key] - self.learned[key])
        self.units[key] += sign * request.count
        self.drift += abs(self.units[key] - self.learned[key])
        self.parts += sign * request.count if key[2] else 0
        if not self.units[key]:
            del self.units[key]

    def learn(self, shapes: Iterable[ExpectedUnits]) -> None:
        """Follow what was learned."""
        self.told = tuple(shapes)
        self.learned = Counter({_key_of(shape): shape.units for shape in self.told})
        self.drift = sum(abs(self.units[key] - self.learned[key]) for key in {*self.units, *self.learned})

    def news(self) -> tuple[ExpectedUnits, ...] | None:
        """Return what is to be learned, if it has become another; nothing is as long as nobody shares a card."""
        if not self.parts or (self.learned and self.drift <= max(LEAST, self.learned.total() // 2)):
            return None
        most = sorted(self.units.items(), key=lambda each: (-each[1], each[0]))[:SHAPES_MAX]
        shapes = tuple(
            ExpectedUnits(accelerators=types, cards=cards, share_milli=milli or None, cpu_milli=cpu, units=units)
            for (types, cards, milli, cpu), units in most
        )
        return None if shapes == self.told else shapes


def _key(request: OrderRequest) -> Key | None:
    spec = request.specification
    if spec.slice is not None and spec.slice.milli is None:
        return None
    return (
        tuple(sorted(spec.accelerators)),
        spec.cards_per_unit,
        spec.slice.milli or 0 if spec.slice else 0,
        spec.cpu_milli,
    )


def _key_of(shape: ExpectedUnits) -> Key:
    return shape.accelerators, shape.cards, shape.share_milli or 0, shape.cpu_milli


def _decide(state: Workload, command: Learn, ctx: Context) -> Decision:
    return [] if state.shapes == command.shapes else [WorkloadLearned(shapes=command.shapes, learned_at=ctx.now)]


def _folded(_: Workload | None, event: Event[Any]) -> Workload:
    return Workload(event.data.shapes)


WORKLOAD = Decider("workload", Workload(), _decide, lambda _, fact: Workload(fact.shapes))
WORKLOADS = Projection("workloads", 1, Workload, {WorkloadLearned: Fold(_folded)}, resident=lambda _: True)
