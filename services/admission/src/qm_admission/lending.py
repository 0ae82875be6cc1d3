"""What the projects of a tenant lend to one another. Pure memory, kept up to date with the ledger.

A limit is the nominal quota of a project. `borrow` says how much beyond it the project may use, `lend` how much of what
it does not use others may. What all of them borrow together is never more than what the others lend when it is taken.
A project that takes back its own while it is lent out is not refused for that; its claim says what it reclaims.
Nothing is summed at a claim: sums are kept by (tenant, dimension), so ten projects cost the same as 10,000.
"""

from collections import defaultdict
from collections.abc import Iterator

from qm_admission.quota import EMPTY, Quantities, Scope
from qm_admission.shares import CARDS
from qm_admission.shares import whole as whole_cards

Pool = tuple[str, str]
"""(tenant, dimension)."""


class Lending:
    """Per tenant and dimension: what is borrowed, and what could be lent."""

    def __init__(self) -> None:
        self._borrowed: dict[Pool, int] = defaultdict(int)
        self._lendable: dict[Pool, int] = defaultdict(int)

    def posted(self, name: str, old: Scope | None, new: Scope | None) -> Iterator[Pool]:
        """Follow the ledger of a project; yield the pools that may have more for others now."""
        old, new = old or EMPTY, new or EMPTY
        parent = name.rpartition("/")[0]
        if not parent or not (old.borrow or old.lend or new.borrow or new.lend):
            return
        for dimension in sorted({*old.borrow, *old.lend, *new.borrow, *new.lend}):
            pool = (parent, dimension)
            before = self._lendable[pool] - self._borrowed[pool]
            self._lendable[pool] += lendable(new, dimension) - lendable(old, dimension)
            self._borrowed[pool] += borrowed(new, dimension) - borrowed(old, dimension)
            if self._lendable[pool] - self._borrowed[pool] > before or new.borrow != old.borrow:
                yield pool

    def room(self, name: str, scope: Scope, dimension: str) -> int:
        """Return how much a project that is beyond its nominal quota can have borrowed in all, now."""
        pool = (name.rpartition("/")[0], dimension)
        others = self._lendable.get(pool, 0) - lendable(scope, dimension)
        return others - (self._borrowed.get(pool, 0) - borrowed(scope, dimension))

    def lent_out(self, name: str, scope: Scope, amounts: Quantities) -> dict[str, int]:
        """Return what of a claim is the project's own quota and lent out: the borrowers have to give it back."""
        found = {}
        for dimension in scope.lend:
            if amount := _count(amounts, dimension):
                used, limit = _count(scope.used, dimension), scope.limits.get(dimension, 0)
                own = min(amount, max(0, limit - used))
                free = self.room(name, scope, dimension) + _lendable(scope, dimension, used + amount)
                if short := min(own, max(0, -free)):
                    found[dimension] = short
        return found


def borrowed(scope: Scope, dimension: str) -> int:
    """Return what a project uses beyond its nominal quota, where it may borrow."""
    if dimension not in scope.borrow or dimension not in scope.limits:
        return 0
    return max(0, _count(scope.used, dimension) - scope.limits[dimension])


def beyond(scope: Scope, amounts: Quantities) -> dict[str, int]:
    """Return what of a claim is borrowed."""
    found = {}
    for dimension in scope.borrow:
        if (amount := _count(amounts, dimension)) and dimension in scope.limits:
            over = _count(scope.used, dimension) + amount - scope.limits[dimension]
            if over > 0:
                found[dimension] = min(amount, over)
    return found


def lendable(scope: Scope, dimension: str) -> int:
    """Return what a project could lend: of what it does not use, as much as it lends at all."""
    return _lendable(scope, dimension, _count(scope.used, dimension))


def _lendable(scope: Scope, dimension: str, used: int) -> int:
    if dimension not in scope.lend:
        return 0
    return min(scope.lend[dimension], max(0, scope.limits.get(dimension, 0) - used))


def _count(amounts: Quantities, dimension: str) -> int:
    """Return an amount in the unit of its limit: a part of a card is lent and borrowed as a card."""
    return whole_cards(amounts, dimension) if dimension.startswith(CARDS) else amounts.get(dimension, 0)
