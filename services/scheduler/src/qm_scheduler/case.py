"""A shape before the fleet: the questions that the waiting reasons ask, each answered once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from qm_events.specs import WaitReason
from qm_scheduler.placement import anywhere, cards, fitting, most_on_one_node, place
from qm_scheduler.pool import CLASSES, OUT_OF_SERVICE, Pool, Sight
from qm_scheduler.view import Shape


@dataclass
class Case:
    """A shape before the fleet: the questions that the rules ask, each answered once."""

    shape: Shape
    pool: Pool
    next_end: Callable[[tuple[str, ...]], datetime | None] = lambda _: None
    served: bool = False
    """It is known that ends of leases alone would let it in."""
    standing: tuple[WaitReason, ...] | None = None
    """The reasons that hold whoever is before it, once they were worked out."""

    def fits(self, sight: Sight) -> bool:
        """Return whether all units fit in a view, with the required topology."""
        return place(self.pool.views[sight], self.shape) is not None

    @cached_property
    def exists(self) -> bool:
        """Whether the fleet could hold it at all, topology apart."""
        return self.possible or place(self.pool.views[Sight.ALL], anywhere(self.shape)) is not None

    @cached_property
    def fits_now(self) -> bool:
        """Whether it fits as things are."""
        return self.fits(Sight.FREE)

    @cached_property
    def fits_apart(self) -> bool:
        """Whether it fits as things are, topology apart."""
        if self.fits_now or not self.shape.required:
            return self.fits_now
        return place(self.pool.views[Sight.FREE], anywhere(self.shape)) is not None

    @cached_property
    def is_short(self) -> bool:
        """Whether it could be held and does not fit now: something must be repaired or end."""
        return self.possible and not self.fits_now

    @cached_property
    def repair_helps(self) -> bool:
        """Whether it would fit if all cards were well."""
        return self.fits(Sight.WELL)

    @cached_property
    def ends_help(self) -> bool:
        """Whether it would fit if all leases had ended."""
        return self.served or self.fits(Sight.IDLE)

    @cached_property
    def units_now(self) -> int:
        """How many units could be placed now, without what is kept for others; fewer than asked."""
        return fitting(self.pool.views[Sight.OPEN], self.shape)

    @cached_property
    def lacks(self) -> str:
        """What the fleet lacks for one unit, or for all."""
        shape, unit = self.shape, anywhere(self.shape)._replace(units=1)
        if not any(self.pool.count((name,), *CLASSES) for name in shape.accelerators):
            return "accelerators"
        less = {
            "units": unit,
            "traits": unit._replace(traits=()),
            "accelerator_memory_mib": unit._replace(card_memory_mib=0),
            "cpu_milli": unit._replace(cpu_milli=0),
            "memory_mib": unit._replace(memory_mib=0),
            "cards_per_unit": unit._replace(cards=1),
        }
        view = self.pool.views[Sight.ALL]
        return next((name for name, each in less.items() if place(view, each) is not None), "several")

    @cached_property
    def possible(self) -> bool:
        """Whether the fleet could hold it, in the topology that it requires."""
        return self.ends_help or self.fits(Sight.ALL)

    @cached_property
    def served_by_ends(self) -> tuple[str, ...]:
        """The types that ends of leases alone would give it; none if these would not let it in."""
        idle, unit = self.pool.views[Sight.IDLE], anywhere(self.shape)._replace(units=1)
        if place(idle, self.shape) is None:
            return ()
        return tuple(name for name in self.shape.accelerators if place(idle, unit, (name,)) is not None)

    @property
    def requested(self) -> int:
        """Cards in all units."""
        return self.shape.cards * self.shape.units

    @cached_property
    def free(self) -> int:
        """Free cards of the accepted kinds."""
        return cards(self.pool.views[Sight.FREE], self.shape)

    @property
    def largest_free(self) -> int:
        """The most free cards of one accepted kind on one node."""
        return most_on_one_node(self.pool.views[Sight.FREE], self.shape)

    @cached_property
    def cards_fit(self) -> bool:
        """Whether the free cards alone would do, CPU, memory and topology apart."""
        bare = anywhere(self.shape)._replace(cpu_milli=0, memory_mib=0)
        return self.fits_apart or (
            bare != anywhere(self.shape) and place(self.pool.views[Sight.FREE], bare) is not None
        )

    @property
    def short(self) -> tuple[str, ...]:
        """What there is too little of."""
        if not self.cards_fit:
            return ("cards",)
        shape, free = anywhere(self.shape), self.pool.views[Sight.FREE]
        without = {"cpu_milli": shape._replace(cpu_milli=0), "memory_mib": shape._replace(memory_mib=0)}
        return tuple(name for name, waived in without.items() if place(free, waived) is not None) or tuple(without)

    @property
    def sick_in_use(self) -> int:
        """Cards under a lease that would not serve again as they are."""
        there, usable = (cards(self.pool.views[sight], self.shape) for sight in (Sight.ALL, Sight.IDLE))
        known = (cause for cause in OUT_OF_SERVICE if cause != "cleaning")
        return max(there - usable - self.pool.count(self.shape.accelerators, *known), 0)
