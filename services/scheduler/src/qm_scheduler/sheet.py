"""What `settle` and the routes look at: pool, queue, ends of leases, reservations, and what has to be looked at again
because of a change. It follows from the resident documents alone (`board`), so it is never stored.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

from sortedcontainers import SortedList

from qm_events.specs import PlacedUnit
from qm_scheduler.case import Case
from qm_scheduler.laws import Laws
from qm_scheduler.loose import Loose
from qm_scheduler.placement import place, place_for
from qm_scheduler.pool import Change, Pool, Sight
from qm_scheduler.projections import OrderDoc
from qm_scheduler.queue import Line, Queue
from qm_scheduler.reasons import Ahead
from qm_scheduler.reservations import NEVER, Reservation, hold_key, is_reserved
from qm_scheduler.view import Ask, Shape
from qm_scheduler.windows import Calendar, Window
from qm_scheduler.workload import Demand


@dataclass(slots=True)
class Sheet:
    """The whole as `settle` sees it."""

    pool: Pool = field(default_factory=Pool)
    queue: Queue = field(default_factory=Queue)
    leases: dict[str, SortedList] = field(default_factory=dict)
    """accelerator -> (end, order) of the leases on its cards."""
    returning: dict[str, dict[str, None]] = field(default_factory=dict)
    """accelerator -> orders whose cards of it are being given back."""
    seen: dict[str, None] = field(default_factory=dict)
    """Lanes of which figures or the order changed since reasons were told."""
    news: dict[Ask, None] = field(default_factory=dict)
    """Lines of which some may have been told no reason yet, or another than holds now."""
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Order -> those before it and their cards, as they were when it began to be told to very many."""
    fronts: dict[str, str | None] = field(default_factory=dict)
    """Lane -> the order that was at its front when reasons were last told."""
    impaired: dict[tuple[str, str], None] = field(default_factory=dict)
    """(node, card) of cards in use of which the health changed."""
    lasting: set[str] = field(default_factory=set)
    """Types of which other cards could serve than before."""
    demand: Demand = field(default_factory=Demand)
    suspect: dict[str, None] = field(default_factory=dict)
    """Orders whose promise may not hold any more, or may be bettered."""
    laws: Laws = field(default_factory=Laws)
    loose: Loose = field(init=False)
    eager: dict[Ask, None] = field(default_factory=dict)
    """Lines of which the first has to be asked whether somebody should leave for it."""
    look_at: datetime | None = None
    """When time alone may change the answer to that."""
    in_vain: bool = False
    """Somebody asked so, and nobody had to leave: what others get and give up may change that within a minute."""
    leaving: dict[str, OrderDoc] = field(default_factory=dict)
    """Allocations that are given up and not yet back, with their orders."""
    timed: SortedList = field(default_factory=lambda: SortedList(key=itemgetter(0)))
    """(time, line) of lines that may be placed from then on."""
    now: datetime = NEVER
    """When `settle` looked last."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    used: dict[str, dict[str, tuple[PlacedUnit, ...]]] = field(default_factory=dict)
    """Reservation -> allocation -> what orders that named it hold."""
    naming: dict[str, dict[str, OrderDoc]] = field(default_factory=dict)
    """Reservation -> waiting orders that name it."""
    parked: set[Ask] = field(default_factory=set)
    """Those whose time has not come; they claim nothing."""

    def __post_init__(self) -> None:
        self.loose = Loose(self.pool)

    def home_of(self, card: str) -> str | None:
        """Return the node of a card."""
        return self.pool.homes.get(card)

    def next_end(self, accelerators: tuple[str, ...]) -> datetime | None:
        """Return when the first lease on cards of these types ends, as far as is known."""
        ends = (self.leases[name][0][0] for name in accelerators if self.leases.get(name))
        return min(ends, default=None)

    def case(self, shape: Shape) -> Case:
        """Return a shape with what decides whether it fits."""
        return Case(shape, self.pool, self.next_end)

    def claims(self, ask: Ask) -> tuple[str, ...]:
        """Return the types that a line claims now."""
        return () if ask in self.parked else self.case(ask.shape).served_by_ends

    def wake(self, now: datetime) -> None:
        """Let in whose time has come, and ask again whom time may have helped."""
        self.now = now
        while self.timed and self.timed[0][0] <= now:
            ask = self.timed.pop(0)[1]
            self.parked.discard(ask)
            if (line := self.queue.lines.get(ask)) is not None:
                self._claim_anew(line)
        if self.look_at is not None and self.look_at <= now:
            self.look_at, self.in_vain = None, False
            self.eager.update(dict.fromkeys(self.queue.lines))

    def window(
        self, shape: Shape, start: datetime, end: datetime, docs: Mapping[str, Any], without: str = ""
    ) -> Window:
        """Return where cards can be kept for a window of time; `docs` are the resident allocations."""
        leases = [self.leases.get(name, ()) for name in shape.accelerators]
        others = {name: each for name, each in self.reservations.items() if name != without}
        return Calendar(self.pool, leases, docs, others).find(shape, start, end)

    def reserved(self, now: datetime) -> dict[str, int]:
        """Return by type how many free cards are kept for reservations that have begun."""
        found: dict[str, int] = {}
        for name in (name for name, doc in self.reservations.items() if doc.starts_at <= now):
            for room in self.pool.reserved(hold_key(name)).rooms.values():
                for kind, count in room.free.items():
                    found[kind[0]] = found.get(kind[0], 0) + count
        return found

    def look_again(self, at: datetime | None) -> None:
        """Ask again at a time."""
        if at is not None:
            self.look_at = min(at, self.look_at or at)

    @property
    def due(self) -> datetime | None:
        """When `settle` has something to do though nothing happens."""
        times = [each.ends_at for each in self.reservations.values()]
        times += [self.timed[0][0]] if self.timed else []
        # Nobody waits: nobody has to be asked.
        return min([*times, self.look_at] if self.look_at and self.queue.orders else times, default=None)

    def case_of(self, line: Line) -> Case:
        """Return the shape of a line, with what is known of it already."""
        return Case(line.ask.shape, self.pool, self.next_end, served=bool(line.claims))

    def line(self, order: str) -> Ahead | None:
        """Return who is before an order, or None if nobody is in its way."""
        if self.lasting:
            self.reclaim()
        queue = self.queue
        return Ahead(*queue.ahead(order), queue.because(order)) if queue.is_behind(order) else self.kept_from(order)

    def is_behind(self, order: str) -> bool:
        """Return whether somebody must be served before an order."""
        return self.queue.is_behind(order) or self.kept_from(order) is not None

    def kept_from(self, order: str) -> Ahead | None:
        """Return for whom, though not before it, what would do for an order is kept; None: for nobody."""
        waiting = self.queue.orders[order]
        priority = -waiting.level[0]
        binding = [
            hold
            for key, hold in self.pool.holds.items()
            if not is_reserved(key) and hold.binds(waiting.ask, priority, self.now)
        ]
        if not binding or waiting.ask.reservation or place(self.pool.views[Sight.FREE], waiting.ask.shape) is None:
            return None
        if place_for(self.pool, waiting.ask, priority, self.now) is not None:
            return None
        return Ahead(len(binding), sum(hold.shape.shares for hold in binding), "kept_place")

    def note(self, change: Change) -> None:
        """Remember what a change may alter."""
        self.seen.update(dict.fromkeys(change.seen))
        self.lasting |= change.lasting
        for name, cards in change.gained.items():
            self.queue.wake(name, cards)

    def reclaim(self) -> None:
        """Let all who accept cards of which others could serve now claim anew."""
        changed, self.lasting = self.lasting, set()
        for ask, line in self.queue.lines.items():
            if not changed.isdisjoint(ask.shape.accelerators):
                self._claim_anew(line)
        self.doubt_types(changed)

    def _claim_anew(self, line: Line) -> None:
        before = line.claims
        self.queue.claim(line, self.claims(line.ask))
        self.news[line.ask] = None
        # Behind a line that claims a type no more somebody else is at the front.
        self.seen.update(dict.fromkeys((*before, *line.claims)))

    def doubt(self, holder: OrderDoc) -> None:
        """Let promises be looked at again of places where this order holds cards, or did."""
        for unit in holder.units:
            self.suspect.update(dict.fromkeys(self.pool.kept.get(unit.node, ())))

    def doubt_types(self, types: Collection[str]) -> None:
        """Look again at what is kept of these types: it may not hold any more, or be bettered."""
        for order, hold in self.pool.holds.items():
            if not set(hold.shape.accelerators).isdisjoint(types):
                self.suspect[order] = None
