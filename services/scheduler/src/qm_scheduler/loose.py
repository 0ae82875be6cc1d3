"""Who may lose cards to whom, and which nodes that would make roomier: an index, so that no choice scans the fleet.

The rank that decides is (in quota, priority): a victim is strictly lower than the one that it makes room for, so nobody
can be evicted in a circle. Two ways lead there: a *preemptible* order gives way to a higher priority, if it is not in
quota where the other one borrows; and what is *borrowed* goes back to a project of the tenant that takes its own.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from qm_events.specs import ServiceModel
from qm_scheduler.fleet import Node
from qm_scheduler.holds import freed
from qm_scheduler.pool import Pool, Sight, usable
from qm_scheduler.projections import OrderDoc
from qm_scheduler.view import Right, View, lent_cards, seat

VIEWS_MAX = 32
"""For so many kinds of askers a view is kept in step; the oldest is made again when it is asked for."""


class Who(NamedTuple):
    """All that decides from whom an order may take cards."""

    priority: int
    in_quota: bool
    reclaims_in: str
    """The tenant whose borrowers owe it cards; empty: none does."""


def who_is(priority: int, right: Right) -> Who:
    """Return this of an order."""
    return Who(priority, not right.owes_in, right.owed_in)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An allocation that may be asked to give its cards up."""

    order: str
    allocation: str
    tenant: str
    scope: str
    priority: int
    preemptible: bool
    borrowed: Mapping[str, int]
    cards: Mapping[str, int]
    """By accelerator type."""
    nodes: tuple[str, ...]
    model: ServiceModel
    since: datetime
    evicted: tuple[datetime, ...]

    @property
    def size(self) -> int:
        """Cards in all."""
        return sum(self.cards.values())

    def yields_to(self, who: Who) -> bool:
        """Return whether it gives way because of its priority."""
        return self.preemptible and self.priority < who.priority and (who.in_quota or bool(self.borrowed))

    def owes(self, who: Who) -> bool:
        """Return whether it borrows from the tenant that wants its own."""
        return bool(self.borrowed) and self.tenant == who.reclaims_in


def candidate_of(doc: OrderDoc | None) -> Candidate | None:
    """Return an order as a possible victim; None: it is none."""
    if doc is None or not doc.may_give_up or doc.allocated_at is None:
        return None
    borrowed = lent_cards(doc.borrowed)
    if doc.asked.specification.slice is not None or not (borrowed or doc.asked.preemptible):
        # The others on its cards stay: nothing whole becomes free.
        return None
    cards: dict[str, int] = {}
    for unit in doc.units:
        cards[unit.accelerator] = cards.get(unit.accelerator, 0) + len(unit.cards)
    return Candidate(
        doc.order,
        doc.allocation,
        doc.tenant,
        f"{doc.tenant}/{doc.project}",
        doc.asked.priority,
        doc.asked.preemptible,
        borrowed,
        cards,
        tuple(dict.fromkeys(unit.node for unit in doc.units)),
        doc.asked.service_model,
        doc.allocated_at,
        doc.evicted,
    )


@dataclass(slots=True)
class Loose:
    """All candidates, and for each kind of asker a view of the nodes with some: what would be free without them."""

    pool: Pool
    candidates: dict[str, Candidate] = field(default_factory=dict)
    """By allocation."""
    on_node: dict[str, dict[str, Candidate]] = field(default_factory=dict)
    """node -> allocation -> candidate."""
    over: dict[str, dict[str, int]] = field(default_factory=dict)
    """`tenant/project` -> dimension -> what its running orders borrow."""
    views: dict[Who, View] = field(default_factory=dict)

    def put(self, allocation: str, new: Candidate | None) -> None:
        """Follow one allocation; None: it is no candidate (any more)."""
        old = self.candidates.pop(allocation, None)
        for each, sign in ((old, -1), (new, 1)):
            self._owe(each, sign)
        if new is not None:
            self.candidates[allocation] = new
        for name in dict.fromkeys((*(old.nodes if old else ()), *(new.nodes if new else ()))):
            there = self.on_node.setdefault(name, {})
            there.pop(allocation, None)
            if new is not None and name in new.nodes:
                there[allocation] = new
            if not there:
                del self.on_node[name]
            self.refresh(name)

    def _owe(self, candidate: Candidate | None, sign: int) -> None:
        if candidate is not None:
            scope = self.over.setdefault(candidate.scope, {})
            for name, count in candidate.borrowed.items():
                scope[name] = scope.get(name, 0) + sign * count

    def refresh(self, name: str) -> None:
        """Follow one node."""
        for who, view in self.views.items():
            self._show(view, who, name)

    def _show(self, view: View, who: Who, name: str) -> None:
        node, key = self.pool.nodes.get(name), seat(name)
        leaving = [
            each.allocation for each in self.on_node.get(name, {}).values() if each.yields_to(who) or each.owes(who)
        ]
        free = self.pool.views[Sight.FREE].rooms.get(key)
        if node is None or free is None or not leaving:
            if key in view.rooms:
                view.put(key, None)
            return
        room = freed(free, node, held_on(node, leaving), usable)
        if view.rooms.get(key) != room:
            view.put(key, room)

    def view(self, who: Who) -> View:
        """Return the nodes on which such an asker may find victims, without these."""
        if (known := self.views.get(who)) is not None:
            return known
        if len(self.views) >= VIEWS_MAX:
            del self.views[next(iter(self.views))]
        view = self.views[who] = View()
        for name in self.on_node:
            self._show(view, who, name)
        return view

    def may_take(self, who: Who) -> bool:
        """Return whether there is anybody from whom such an asker may take cards, whatever the laws say of the time."""
        return bool(self.candidates) and bool(self.view(who).rooms)

    def over_nominal(self, scope: str, dimensions: Iterable[str]) -> int:
        """Return how much a project is beyond its nominal quota, the most of these dimensions."""
        return max((self.over.get(scope, {}).get(name, 0) for name in dimensions), default=0)

    def there(self, names: Iterable[str], who: Who) -> Iterator[Candidate]:
        """Yield each candidate on these nodes once."""
        seen: dict[str, None] = {}
        for name in names:
            for allocation, each in self.on_node.get(name, {}).items():
                if allocation not in seen and (each.yields_to(who) or each.owes(who)):
                    seen[allocation] = None
                    yield each


def held_on(node: Node, allocations: Iterable[str]) -> list[str]:
    """Return those that hold something there; the facts of an allocation and of its nodes come one after the other."""
    there = allocations if isinstance(allocations, set) else set(allocations)
    return [allocation for allocation in node.holdings if allocation in there]


def first(keys: Iterable[bytes], most: int) -> list[bytes]:
    """Return so many different ones."""
    return list(islice(dict.fromkeys(keys), most))
