"""How much of what is asked for still fits in what is left of a node: fragmentation as FGD measures it, in integers.

A card is fragmented for a shape as far as units of the shape cannot use what is left of it (Weng et al., "Beware of
Fragmentation", USENIX ATC'23). Of a node, what is usable is summed over all shapes, each weighed by how many units are
asked for; what a placement adds to the fragments rates the node. As their scheduler does, the rating is cut to 101
levels of a logistic curve: coarse levels and a fixed order of nodes pack better than exact ratings do.

What is usable adds up card by card, for a shape that takes a part of a card is satisfied by any card with so much
left: two sums over tables, by CPU and by thousandths left, answer what would else be a loop over all shapes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from decimal import Decimal

from qm_events.scheduler import ExpectedUnits
from qm_scheduler.cuts import MILLI

LEVELS = 100
_SCALE = 10**9
_CURVE = tuple(int((Decimal(level) / Decimal(LEVELS - level)).ln() * _SCALE) for level in range(1, LEVELS))
"""From which value on the logistic curve, of whole cards by weight, has passed each hundredth."""

Tables = tuple[list[int], list[list[int]], list[list[int]]]
"""CPU from which on more shapes can run; for each such step, by thousandths left on a card: what of these is usable, by
weight; by number of untouched cards: the weight of units of several cards that they satisfy."""


class Fragments:
    """The shapes that are asked for, as tables by accelerator type."""

    def __init__(self, shapes: Sequence[ExpectedUnits]) -> None:
        self.shapes = shapes
        self.weight = sum(each.units for each in shapes)
        self.shared = frozenset(name for each in shapes if each.share_milli for name in each.accelerators)
        """Types of which parts are asked for."""
        self._levels = [-(-self.weight * MILLI * value // _SCALE) for value in _CURVE]
        self._tables: dict[str, Tables] = {}

    def level(
        self, accelerator: str, cpu: tuple[int, int], untouched: int, rest: Sequence[int], take: int
    ) -> tuple[int, int]:
        """Return the level, 0 to 99, of taking `take` thousandths, and of how much left on a card they are taken.

        `cpu` is what the node has before and after, `rest` what is left on its cards that are shared already. 1,000 and
        more are whole cards. That it fits is taken for granted.
        """
        steps, singles, several = self._tables.get(accelerator) or self._build(accelerator)
        before, after = bisect_right(steps, cpu[0]), bisect_right(steps, cpu[1])
        now, then, many = singles[before], singles[after], several[after]
        fixed = take * self.weight - untouched * now[MILLI] - _several(several[before], untouched)
        fixed -= sum([now[left] for left in rest])
        kept = sum([then[left] for left in rest])
        if not 0 < take < MILLI:
            left = untouched - take // MILLI
            return bisect_right(self._levels, fixed + kept + left * then[MILLI] + _several(many, left)), MILLI
        best = (-1, 0)
        whole, all_untouched = untouched * then[MILLI], _several(many, untouched)
        for left in sorted({left for left in rest if left >= take}):
            gain = fixed + kept - then[left] + then[left - take] + whole + all_untouched
            best = max(best, (bisect_right(self._levels, gain), -left))
        if untouched:
            gain = fixed + kept + whole - then[MILLI] + then[MILLI - take] + _several(many, untouched - 1)
            best = max(best, (bisect_right(self._levels, gain), -MILLI))
        return best[0], -best[1]

    def _build(self, accelerator: str) -> Tables:
        mine = [each for each in self.shapes if accelerator in each.accelerators]
        steps = sorted({each.cpu_milli for each in mine})
        most = max((each.cards for each in mine), default=0)
        singles, several = [[0] * (MILLI + 1)], [[0] * (most + 1)]
        for step in steps:
            served = [each for each in mine if each.cpu_milli <= step]
            alone = [(each.share_milli or MILLI, each.units) for each in served if each.cards == 1]
            singles.append([left * weight for left, weight in enumerate(_summed(alone, MILLI))])
            several.append(_summed([(each.cards, each.units) for each in served if each.cards > 1], most))
        tables = self._tables[accelerator] = (steps, singles, several)
        return tables


def _summed(weights: Iterable[tuple[int, int]], most: int) -> list[int]:
    """Return for each size up to `most` the weight of what is not larger."""
    found, total = [0] * (most + 1), 0
    for size, weight in weights:
        found[size] += weight
    for size, weight in enumerate(found):
        total += weight
        found[size] = total
    return found


def _several(weights: Sequence[int], untouched: int) -> int:
    return MILLI * untouched * weights[min(untouched, len(weights) - 1)]
