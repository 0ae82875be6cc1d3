"""Who waits for what, and whose turn it is. Pure memory.

Fairness. A held order stands in one line for each (scope, dimension) that was in its way when it was last examined,
ordered by submission, then by id. Nobody takes from a dimension at a scope in whose line somebody older stands; so a
small order passes a held bigger one only where that one waits for something that the small one does not take. As every
order takes cards, an order that moves to a common line keeps its age and cannot be passed for ever.
Age counts among those who wait: an order that fits when it is heard of, with nobody waiting, is admitted at once,
though an older one may still be on its way, as topics promise no order between orders.

Only what can change an answer wakes anybody: more room wakes the head of the line, a head that leaves wakes the next,
new rules of a scope wake all that wait under it. The oldest of the woken is examined first, one at a time.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from heapq import heappop, heappush

from qm_admission.quota import EMPTY, HOURS, Ahead, Scope
from qm_admission.shares import counted_as

Place = tuple[datetime, str]
"""(submitted_at, order): the rank in every line."""
Spot = tuple[str, str]
"""(scope, dimension): what a line waits for."""


class Line:
    """Places in order. Leaving is lazy: the heap forgets a place when it comes to the top."""

    __slots__ = ("_heap", "_places")

    def __init__(self) -> None:
        self._heap: list[Place] = []
        self._places: set[Place] = set()

    def join(self, place: Place) -> None:
        """Stand where age says."""
        self._places.add(place)
        heappush(self._heap, place)

    def leave(self, place: Place) -> None:
        """Give the place up."""
        self._places.discard(place)

    def head(self) -> Place | None:
        """Return the oldest, or None."""
        while self._heap and self._heap[0] not in self._places:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class Lines:
    """All lines of all scopes, and who was woken."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, Line]] = {}
        self._under: dict[str, set[Place]] = defaultdict(set)
        self.woken: list[Place] = []
        """A heap of those who are to be examined; some may be in it twice, or have left."""

    def ahead_of(self, place: Place) -> Ahead:
        """Return whether somebody older than `place` stands in the line of (scope, dimension)."""

        def ahead(scope: str, dimension: str) -> bool:
            lines = self._lines.get(scope)
            if not lines:
                return False
            if dimension.startswith(HOURS):
                # Who waited for a month that is over now waits for this one, and is about to be examined.
                found = [line for name, line in lines.items() if name.startswith(HOURS) and name <= dimension]
            else:
                found = [lines[name] for name in counted_as(dimension) if name in lines]
            return any(head is not None and head < place for line in found if (head := line.head()))

        return ahead

    def wake(self, place: Place) -> None:
        """Have a place examined: its time has come."""
        heappush(self.woken, place)

    def wake_head(self, scope: str, dimension: str) -> None:
        """Have the oldest in a line examined: there may be more for it."""
        line = self._lines.get(scope, {}).get(dimension)
        if line and (head := line.head()):
            heappush(self.woken, head)

    def enter(self, place: Place, path: Iterable[str], spots: Iterable[Spot]) -> None:
        """Stand in the lines of these spots; `path` are the scopes whose rules concern the order."""
        for scope in path:
            self._under[scope].add(place)
        for scope, dimension in spots:
            self._lines.setdefault(scope, {}).setdefault(dimension, Line()).join(place)
        # After a restart this looks at everybody once: whoever was woken and not yet examined when it stopped.
        heappush(self.woken, place)

    def quit(self, place: Place, path: Iterable[str], spots: Iterable[Spot]) -> None:
        """Leave the lines of these spots; who comes up to the head is woken."""
        for scope in path:
            self._under[scope].discard(place)
        for scope, dimension in spots:
            line = self._lines[scope][dimension]
            was_head = line.head() == place
            line.leave(place)
            head = line.head()
            if head is None:
                self._drop(scope, dimension)
            elif was_head:
                heappush(self.woken, head)

    def _drop(self, scope: str, dimension: str) -> None:
        del self._lines[scope][dimension]
        if not self._lines[scope]:
            del self._lines[scope]

    def posted(self, name: str, old: Scope | None, new: Scope | None) -> None:
        """Follow the ledger of a scope: wake those whose answer may be another now."""
        # Not known before = nothing limited, nothing used. At the start scopes are loaded before anybody waits.
        old, new = old or EMPTY, new or EMPTY
        if _rules(old) != _rules(new):
            for place in self._under.get(name, ()):
                heappush(self.woken, place)
            return
        for dimension, line in self._lines.get(name, {}).items():
            head = line.head()
            if head and any(new.used.get(one, 0) < old.used.get(one, 0) for one in counted_as(dimension)):
                heappush(self.woken, head)

    def next_woken(self) -> Place | None:
        """Return the oldest of the woken, once."""
        if not self.woken:
            return None
        place = heappop(self.woken)
        while self.woken and self.woken[0] == place:
            heappop(self.woken)
        return place


def _rules(scope: Scope) -> tuple[object, ...]:
    return scope.limits, scope.over_quota, scope.report_only, scope.borrow, scope.lend, scope.priority_at_most
