"""Who waits, in which order, and for what: an index over the order documents.

Rank: the priority (each value is a band of its own), then the order of the band that a place is kept for, then the
share of the project (cards held by weight, the smallest first), then `submitted_at`, then order id. So projects take
turns within a band, and the orders of a project are served first come first served.

Orders that ask the same form a `Line`; what does not fit for the best ranked of a line fits for none of it. A line
*claims* the accelerator types that ends of leases alone would give it. An accelerator type is a `Lane`: all lines that
claim the type. A line that was tried in vain is asleep until a node offers as many cards of its types as its units
need, so a change wakes only those it can help; a line that claims nothing waits for the fleet to change, and holds up
nobody.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter
from typing import TypeVar

from sortedcontainers import SortedList

from qm_events.specs import WaitCode
from qm_scheduler.fifo import Seq
from qm_scheduler.heads import Heads
from qm_scheduler.standing import Level, Project, Standing
from qm_scheduler.view import Ask
from qm_scheduler.waiting import Waiting

Rank = tuple[Level, int, Seq]
"""Level, share of the project, `Seq`: the smaller comes first."""
Group = tuple[Level, str]
"""A level of a project."""
K = TypeVar("K")


@dataclass(slots=True, eq=False)
class Line:
    """The waiting orders that ask the same."""

    ask: Ask
    groups: dict[Group, SortedList] = field(default_factory=dict)
    """`Seq`s."""
    heads: Heads[Group] = field(default_factory=Heads)
    codes: dict[WaitCode | None, SortedList] = field(default_factory=dict)
    """`Seq`s, by the first reason that was told."""
    claims: tuple[str, ...] = ()
    vain: int = -1
    """The mark of the places that are kept (`Pool.mark`) at which none of them was open to it."""


@dataclass(slots=True)
class Lane:
    """Who claims an accelerator type."""

    fronts: Heads[Group] = field(default_factory=Heads)
    awake: dict[int, Heads[Line]] = field(default_factory=dict)
    """Cards of a unit -> lines that may fit, by their best ranked order."""
    asleep: dict[int, dict[Line, None]] = field(default_factory=dict)
    """The same, of those that were tried in vain."""


@dataclass(slots=True)
class Queue:
    """All waiting orders."""

    orders: dict[str, Waiting] = field(default_factory=dict)
    lines: dict[Ask, Line] = field(default_factory=dict)
    lanes: dict[str, Lane] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    standing: Standing = field(default_factory=Standing)
    scopes: dict[str, SortedList] = field(default_factory=dict)
    """`tenant/project` -> (level, `Seq`)."""

    # ---- orders

    def put(self, order: str, waiting: Waiting | None) -> None:
        """Follow one order, None = it waits no more."""
        old = self.orders.get(order)
        if old and waiting and old._replace(code=waiting.code) == waiting:
            codes = self.lines[old.ask].codes
            _take(codes, old.code, old.seq)
            codes.setdefault(waiting.code, SortedList()).add(waiting.seq)
            self.orders[order] = waiting
            return
        if old:
            self._remove(order, old)
        if waiting:
            self._add(order, waiting)

    def _add(self, order: str, waiting: Waiting) -> None:
        level, seq, ask, code, scope = waiting
        self.orders[order] = waiting
        self.scopes.setdefault(scope, SortedList()).add((level, seq))
        self.standing.add(ask.shape.accelerators, level, scope, (seq, ask.shape.shares))
        line = self.lines.setdefault(ask, Line(ask))
        line.codes.setdefault(code, SortedList()).add(seq)
        members = line.groups.setdefault((level, scope), SortedList())
        head = members[0] if members else None
        members.add(seq)
        self._rehead(line, (level, scope), head)

    def _remove(self, order: str, waiting: Waiting) -> None:
        level, seq, ask, code, scope = waiting
        del self.orders[order]
        _take(self.scopes, scope, (level, seq))
        self.standing.remove(ask.shape.accelerators, level, scope, (seq, ask.shape.shares))
        line = self.lines[ask]
        _take(line.codes, code, seq)
        members = line.groups[level, scope]
        head = members[0]
        members.remove(seq)
        self._rehead(line, (level, scope), head)
        if not members:
            del line.groups[level, scope]
        if not line.groups:
            self.claim(line, ())
            del self.lines[ask]

    # ---- heads

    def _rehead(self, line: Line, group: Group, old: Seq | None) -> None:
        members = line.groups[group]
        new = members[0] if members else None
        if new == old:
            return
        level, scope = group
        project = self.project(scope)
        if new is None:
            project.groups.pop((line.ask, level), None)
        else:
            project.groups[line.ask, level] = None
        self._rerank(line, group, None if new is None else (level, project.share, new))
        for name in line.claims:
            self._refront(name, group, old, new)

    def _rerank(self, line: Line, group: Group, rank: Rank | None) -> None:
        if not line.heads.put(group, rank):
            return
        for name in line.claims:
            awake = self.lanes[name].awake.get(line.ask.shape.least)
            if awake is not None and line in awake:
                awake.put(line, line.heads.top())

    def _refront(self, lane: str, group: Group, old: Seq | None, new: Seq | None) -> None:
        level, scope = group
        project = self.project(scope)
        heads = project.heads.setdefault((lane, level), SortedList())
        if old is not None:
            heads.remove(old)
        if new is not None:
            heads.add(new)
        if not heads:
            del project.heads[lane, level]
        self.lanes[lane].fronts.put(group, (level, project.share, heads[0]) if heads else None)

    def project(self, scope: str) -> Project:
        """Return what is known of a project, from the first time on."""
        found = self.projects.get(scope)
        if found is None:
            found = self.projects[scope] = Project()
        return found

    def weigh(self, scope: str, held: int = 0, weight: int | None = None) -> Sequence[str]:
        """Let a project hold `held` 1/126,000 of a card more, or give it another weight; return the lanes that this may
        reorder."""
        project = self.project(scope)
        before = project.share
        project.held += held
        project.weight = weight or project.weight
        share = project.share
        if share == before:
            return ()
        for ask, level in project.groups:
            line = self.lines[ask]
            self._rerank(line, (level, scope), (level, share, line.groups[level, scope][0]))
        for (name, level), heads in project.heads.items():
            self.lanes[name].fronts.put((level, scope), (level, share, heads[0]))
        return [name for name, _ in project.heads]

    # ---- lanes

    def claim(self, line: Line, claims: tuple[str, ...]) -> None:
        """Set the types that a line claims; it is tried again."""
        for name in line.claims:
            self._move(name, line, None)
            for group, members in line.groups.items():
                if members:
                    self._refront(name, group, members[0], None)
        line.claims = claims
        for name in claims:
            self.lanes.setdefault(name, Lane())
            for group, members in line.groups.items():
                self._refront(name, group, None, members[0])
            self._move(name, line, awake=True)

    def _move(self, lane: str, line: Line, awake: bool | None) -> None:
        cards, where = line.ask.shape.least, self.lanes[lane]
        if awake:
            where.awake.setdefault(cards, Heads()).put(line, line.heads.top())
        elif (lines := where.awake.get(cards)) is not None:
            lines.put(line, None)
            if not lines:
                del where.awake[cards]
        if awake is False:
            where.asleep.setdefault(cards, {})[line] = None
        elif cards in where.asleep:
            where.asleep[cards].pop(line, None)
            if not where.asleep[cards]:
                del where.asleep[cards]

    def sleep(self, line: Line, mark: int) -> None:
        """Leave the line alone until `wake`: it was tried in vain."""
        line.vain = mark
        for name in line.claims:
            self._move(name, line, awake=False)

    def rouse(self, line: Line) -> None:
        """Try a line again, on what is kept, too."""
        line.vain = -1
        for name in line.claims:
            self._move(name, line, awake=True)

    def wake(self, lane: str, cards: int) -> None:
        """Look again at the lines of a lane whose units need at most so many cards."""
        where = self.lanes.get(lane)
        if where is None:
            return
        for needed in [needed for needed in where.asleep if needed <= cards]:
            for line in list(where.asleep[needed]):
                for name in line.claims:
                    self._move(name, line, awake=True)

    def candidates(self, reach: Callable[[str], tuple[int, int]], mark: int) -> Iterator[tuple[Rank, Line]]:
        """Yield the best ranked order of those that are awake and within reach, for as long as whoever asks puts its
        line to sleep. `reach` tells for a lane the most cards that a node has open to all, and those that it keeps for
        some; `mark`: see `Line.vain`."""
        open_to_all, kept = list[Heads[Line]](), list[tuple[Rank, Line]]()
        for name, lane in self.lanes.items():
            if not lane.awake:
                continue
            most, most_kept = reach(name)
            for cards, lines in lane.awake.items():
                if cards <= most:
                    open_to_all.append(lines)
                elif cards <= most_kept:
                    kept += [(rank, line) for line, rank in lines.items() if line.vain != mark]
        kept.sort(key=_BY_RANK, reverse=True)
        while True:
            while kept and kept[-1][1].vain == mark:
                kept.pop()
            found = [best for lines in open_to_all if (best := lines.best())] + kept[-1:]
            if not found:
                return
            yield min(found, key=_BY_RANK)

    def front(self, lane: str) -> Rank | None:
        """Return the best ranked order of those that claim a type."""
        where = self.lanes.get(lane)
        return None if where is None else where.fronts.top()

    def is_behind(self, order: str) -> bool:
        """Return whether somebody is before an order for a type that it claims."""
        waiting = self.orders[order]
        return any(self.front(name)[2] != waiting.seq for name in self.lines[waiting.ask].claims)  # type: ignore[index]

    # ---- standing

    def ahead(self, order: str) -> tuple[int, int]:
        """Return how many orders that accept one of its types are due before it, as things are, and what they count in
        1/126,000 of a card."""
        level, seq, ask, _, scope = self.orders[order]
        return self.standing.ahead(ask.shape.accelerators, level, scope, (seq, ask.shape.shares), self.projects)

    def places(self) -> dict[str, tuple[int, int]]:
        """Return the same for all orders at once."""
        return self.standing.places(self.projects)

    def because(self, order: str) -> str:
        """Return why the front of a lane that an order is behind is before it."""
        waiting = self.orders[order]
        share = self.project(waiting.scope).share
        fronts = (self.front(name) for name in self.lines[waiting.ask].claims)
        first = min(front for front in fronts if front is not None and front[2] != waiting.seq)
        if first[0] != waiting.level:
            return "priority" if first[0][0] < waiting.level[0] else "kept_place"
        return "share" if first[1] < share else "submitted"

    def listed(
        self, scopes: Iterable[str] | None = None, after: tuple[Level, Seq] | None = None
    ) -> Iterator[tuple[Level, Seq]]:
        """Yield those who wait in these `tenant/project`s (None = all), by band and submission."""
        names = self.scopes if scopes is None else [scope for scope in scopes if scope in self.scopes]
        return merge(*(self.scopes[scope].irange(after, None, (False, True)) for scope in names))


_BY_RANK = itemgetter(0)


def _take(lists: dict[K, SortedList], key: K, item: object) -> None:
    lists[key].remove(item)
    if not lists[key]:
        del lists[key]
