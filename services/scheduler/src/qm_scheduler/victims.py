"""The choice of victims: the least cost for which a place then exists, among the nodes that the index offers.

Whoever loses a card loses all: a gang goes as a whole. Of a few candidates the choice is exact; of many, the cheapest
are taken until there is a place, and those that it does not need are spared again. A node that is kept for somebody
else gives nothing: what ends there is his.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from itertools import islice

from qm_events.specs import TopologyLevel
from qm_scheduler.holds import freed
from qm_scheduler.laws import Laws, recently
from qm_scheduler.loose import Candidate, Loose, Who, first, held_on
from qm_scheduler.placement import capacity, cards, place
from qm_scheduler.pool import Pool, Sight, usable
from qm_scheduler.view import Ask, Kinds, Pick, Room, Shape, View, seat

NODES_MAX = 64
"""So many nodes are offered."""
GROUPS_MAX = 8
"""So many racks or domains are looked at."""
EXACT_MAX = 10
"""Up to so many candidates every set is considered."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who wants a place."""

    ask: Ask
    who: Who

    @property
    def due(self) -> Mapping[str, int]:
        """What borrowers owe it, in cards by dimension."""
        return dict(self.ask.right.due)


@dataclass(frozen=True, slots=True)
class Plan:
    """A place, and who has to leave for it."""

    picks: tuple[Pick, ...]
    victims: tuple[Candidate, ...]
    cost: int
    """Card-seconds."""


@dataclass(slots=True)
class Search:
    """One choice; `again_at` tells when time alone may bring another answer."""

    pool: Pool
    loose: Loose
    laws: Laws
    asker: Asker
    evictions: Mapping[str, tuple[datetime, ...]]
    """When orders were evicted lately, by accelerator type."""
    now: datetime
    coming: Sequence[str] = ()
    """Nodes on which others are giving cards back: as soon as those of victims, so nobody has to leave for as many."""
    again_at: datetime | None = None
    costs: dict[str, int] = field(default_factory=dict)
    """Of the candidates that the laws leave, by allocation."""

    def plan(self) -> Plan | None:
        """Return the choice, None where there is no lawful one now."""
        view, shape = self.pool.views[Sight.OPEN], self.asker.ask.shape
        with view.changing() as put:
            for name, room in self.pool.for_whom(self.asker.ask, self.asker.who.priority, self.now).items():
                put(seat(name), room)
            for name in self.coming:
                self._free(put, view, name, self.pool.cleaning)
            plans = [plan for trial in self._trials(shape) if (plan := self._try(view, trial)) is not None]
        best = min(plans, key=_order, default=None)
        return best if best is not None and self._bears(best) else None

    # ---- where

    def _trials(self, shape: Shape) -> Iterator[list[bytes]]:
        """Yield sets of nodes that may become roomy enough together."""
        view = self.loose.view(self.asker.who)
        kinds = view.kinds_for(shape, shape.accelerators)
        level = shape.within if shape.required else None
        if level in (TopologyLevel.RACK, TopologyLevel.DOMAIN):
            yield from islice(_groups(view, shape, kinds, level), GROUPS_MAX)
            return
        least = shape.cards * (shape.units if level is TopologyLevel.NODE else 1)
        offered = (seat(room.node) for kind in kinds for room in view.best_fit(kind, least))
        if shape.units > 1 and level is None:
            offered = (key for key in view.most_first(kinds) if capacity(view.rooms[key], shape, kinds))
            yield first(offered, NODES_MAX)
            return
        roomy = (key for key in offered if capacity(view.rooms[key], shape, kinds) >= (shape.units if level else 1))
        yield from ([key] for key in first(roomy, NODES_MAX))

    # ---- who

    def _try(self, view: View, trial: Sequence[bytes]) -> Plan | None:
        names = [self.loose.view(self.asker.who).rooms[key].node for key in trial]
        lawful = sorted(
            (each for each in self.loose.there(names, self.asker.who) if self._is_lawful(each)),
            key=lambda each: (self.costs[each.allocation], seat(each.allocation)),
        )
        for some in self._stages(lawful):
            chosen = self._cheapest(view, some, trial)
            if chosen is not None:
                victims, picks = chosen
                return Plan(tuple(picks), tuple(victims), sum(self.costs[each.allocation] for each in victims))
        return None

    def _stages(self, lawful: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
        """Yield whom to consider, one set after the other: who borrows most has to give back first."""
        due = self.asker.due
        scopes = {each.scope for each in lawful if each.owes(self.asker.who)}
        ranked = sorted(scopes, key=lambda scope: (-self.loose.over_nominal(scope, due), seat(scope)))
        for count in range(1, len(ranked) + 1):
            yield [each for each in lawful if each.owes(self.asker.who) and each.scope in ranked[:count]]
        if any(each.yields_to(self.asker.who) for each in lawful):
            yield lawful

    def _is_lawful(self, each: Candidate) -> bool:
        ripe_at = self.laws.ripe_at(each.since)
        until = self.laws.spared_until(each.evicted, self.now)
        if ripe_at <= self.now and until is None:
            recent = len(recently(each.evicted, self.now))
            self.costs[each.allocation] = self.laws.cost(each.size, self.now - each.since, each.model, recent)
            return True
        self._look_again(max(ripe_at, until or ripe_at))
        return False

    def _look_again(self, at: datetime) -> None:
        self.again_at = min(at, self.again_at or at)

    def _bears(self, plan: Plan) -> bool:
        """Return whether the types of a plan bear so many evictions now."""
        for name in sorted({name for each in plan.victims for name in each.cards}):
            more = sum(name in each.cards for each in plan.victims)
            until = self.laws.window_until(self.evictions.get(name, ()), more, self.now)
            if until is not None:
                self._look_again(until)
                return False
        return True

    def _owe_enough(self, chosen: Iterable[Candidate]) -> bool:
        """Return whether borrowers give back no more than is owed, but for the last of them: he leaves as a whole."""
        debts = [each for each in chosen if not each.yields_to(self.asker.who)]
        return not debts or any(self._covers(debts, name, count) for name, count in self.asker.due.items())

    def _covers(self, debts: Sequence[Candidate], dimension: str, due: int) -> bool:
        sums = [each.borrowed.get(dimension, 0) for each in debts]
        return min(sums) > 0 and sum(sums) - max(sums) < due

    # ---- whether

    def _place(self, view: View, shape: Shape, chosen: Sequence[Candidate]) -> list[Pick] | None:
        """Return the place that is there when these have left."""
        with view.changing() as put:
            for name in dict.fromkeys(name for each in chosen for name in each.nodes):
                self._free(put, view, name, [each.allocation for each in chosen])
            return place(view, shape)

    def _free(self, put: Callable[[bytes, Room], None], view: View, name: str, allocations: Iterable[str]) -> None:
        node, room = self.pool.nodes.get(name), view.rooms.get(seat(name))
        if node is not None and room is not None and not self._is_kept(name):
            gone = held_on(node, allocations)
            put(seat(name), freed(room, node, gone, usable))

    def _is_kept(self, name: str) -> bool:
        asker = self.asker
        there = self.pool.kept.get(name, {}).values()
        return any(hold.binds(asker.ask, asker.who.priority, self.now) for hold in there)

    def _cheapest(
        self, view: View, some: Sequence[Candidate], trial: Sequence[bytes]
    ) -> tuple[Sequence[Candidate], list[Pick]] | None:
        """Return the cheapest of these for which there is a place; they come by cost."""
        shape = self.asker.ask.shape

        def placed(those: Sequence[Candidate]) -> list[Pick] | None:
            return self._place(view, shape, those)

        if placed(some) is None:
            return None
        if len(some) > EXACT_MAX:
            chosen = _spared(some, placed)
            return (chosen, placed(chosen) or []) if self._owe_enough(chosen) else None
        short = self._short(view, shape, trial)
        for those in _by_cost([self.costs[each.allocation] for each in some]):
            chosen = [some[index] for index in those]
            if sum(each.size for each in chosen) < short or not self._owe_enough(chosen):
                continue
            if (picks := placed(chosen)) is not None:
                return chosen, picks
        return None

    def _short(self, view: View, shape: Shape, trial: Sequence[bytes]) -> int:
        """Return how many cards are missing at least; it spares looking for a place that cannot be."""
        if len(trial) > 1 or trial[0] not in view.rooms:
            return shape.cards * shape.units - cards(view, shape)
        return shape.cards - sum(view.rooms[trial[0]].free.values())


def _spared(
    some: Sequence[Candidate], placed: Callable[[Sequence[Candidate]], list[Pick] | None]
) -> Sequence[Candidate]:
    """Return the cheapest ones for which there is a place, without those that it does not need."""
    count = bisect_left(range(1, len(some) + 1), 1, key=lambda count: placed(some[:count]) is not None) + 1
    chosen = list(some[:count])
    for each in reversed(some[:count]):
        fewer = [other for other in chosen if other is not each]
        if fewer and placed(fewer) is not None:
            chosen = fewer
    return chosen


def _by_cost(costs: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all sets of indexes of an ascending list, the cheapest first."""
    heap: list[tuple[int, tuple[int, ...]]] = [(costs[0], (0,))] if costs else []
    while heap:
        cost, those = heappop(heap)
        yield those
        last = those[-1]
        if last + 1 < len(costs):
            heappush(heap, (cost + costs[last + 1], (*those, last + 1)))
            heappush(heap, (cost + costs[last + 1] - costs[last], (*those[:-1], last + 1)))


def _groups(view: View, shape: Shape, kinds: Kinds, level: TopologyLevel) -> Iterator[list[bytes]]:
    """Yield the nodes of each rack or domain, the one with the most cards first, on each the roomiest nodes first."""
    totals = view.totals[level]
    sums = {key: sum(totals.get(key, {}).get(kind, 0) for kind in kinds) for key in view.groups[level]}
    for group in sorted(sums, key=lambda key: (-sums[key], key)):
        there = sorted(view.groups[level][group], key=lambda key: (-capacity(view.rooms[key], shape, kinds), key))
        yield first((key for key in there if capacity(view.rooms[key], shape, kinds)), NODES_MAX)


def _order(plan: Plan) -> tuple[int, int, tuple[bytes, ...]]:
    return plan.cost, len(plan.victims), tuple(seat(each.allocation) for each in plan.victims)
