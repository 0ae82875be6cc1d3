"""When and where cards can be kept for a window of time, if leases end as promised.

What counts is who is there when the window begins: a lease that ends later is in the way, whatever it does then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from qm_events.scheduler import KeptPlace
from qm_scheduler.fleet import Node
from qm_scheduler.placement import cards, place
from qm_scheduler.pool import Pool, Sight, is_usable, usable
from qm_scheduler.reservations import Reservation, is_reserved
from qm_scheduler.view import Kind, Pick, Room, Shape, seat

TRIES_MAX = 128
"""How many ends of leases and of reservations are looked at for the next window."""
Ends = Sequence[Iterable[tuple[datetime, str]]]


class Window(NamedTuple):
    """The answer to a request for a window."""

    places: tuple[KeptPlace, ...] | None
    """None: it does not fit."""
    total: int
    """Cards that could serve, whoever has them now."""
    free: int
    """Of these, to be had in the window."""
    next_at: datetime | None = None
    """When the next window of the length begins that fits."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Who is where until when; `ends` are the leases by type, `docs` their orders."""

    pool: Pool
    ends: Ends
    docs: Mapping[str, Any]
    reservations: Mapping[str, Reservation]

    def find(self, shape: Shape, start: datetime, end: datetime) -> Window:
        """Return whether cards can be kept from `start` to `end`, and else when."""
        view, length = self.pool.views[Sight.IDLE], end - start
        total, nodes = cards(view, shape), self.pool.nodes
        booked = self._booked()
        with view.changing() as put:
            for name, node in nodes.items():
                if node.holdings or name in booked or name in self.pool.kept:
                    put(seat(name), self._room(node, booked.get(name, ()), start, end))
            free = cards(view, shape)
            if (picks := place(view, shape)) is not None:
                return Window(_places(picks, shape.cards), total, free)
            for at, names in self._changes(start):
                for name in {*names, *booked} & nodes.keys():
                    put(seat(name), self._room(nodes[name], booked.get(name, ()), at, at + length))
                if place(view, shape) is not None:
                    return Window(None, total, free, at)
        return Window(None, total, free)

    def _booked(self) -> dict[str, list[tuple[Reservation, KeptPlace]]]:
        found: dict[str, list[tuple[Reservation, KeptPlace]]] = {}
        for each in self.reservations.values():
            for at in each.places:
                found.setdefault(at.node, []).append((each, at))
        return found

    def _changes(self, start: datetime) -> Iterator[tuple[datetime, list[str]]]:
        """Yield when something is over after `start`, and on which nodes."""
        leases = ((at, [unit.node for unit in self.docs[order].units]) for at, order in merge(*self.ends) if at > start)
        windows = sorted(
            (each.ends_at, [at.node for at in each.places])
            for each in self.reservations.values()
            if each.ends_at > start
        )
        return islice(merge(leases, windows, key=lambda each: each[0]), TRIES_MAX)

    def _room(
        self, node: Node, booked: Iterable[tuple[Reservation, KeptPlace]], start: datetime, end: datetime
    ) -> Room:
        """Return what a node has to give from then to then."""
        room, taken = self.pool.views[Sight.ALL].rooms[seat(node.node)], _Taken(node)
        for allocation, holding in node.holdings.items():
            if self._stays(allocation, start):
                taken.add(usable(node, allocation), holding.cpu_milli, holding.memory_mib)
        for card in node.cards.values():
            if card.parts and is_usable(node, card) and any(self._stays(each, start) for each in card.holders):
                taken.add(((card.accelerator, card.memory_mib, node.traits),), 0, 0)
        for key, hold in self.pool.kept.get(node.node, {}).items():
            if not is_reserved(key):
                kept, units = hold.needs(room)
                kinds = (kind for kind, count in kept.items() for _ in range(count))
                taken.add(kinds, units * hold.shape.cpu_milli, units * hold.shape.memory_mib)
        for each, at in booked:
            if each.starts_at < end and each.ends_at > start:
                kind = (at.accelerator, at.card_memory_mib, node.traits)
                taken.add((kind,) * at.units, at.units * each.cpu_milli, at.units * each.memory_mib)
        left = {kind: count for kind, count in taken.free.items() if count > 0}
        return room._replace(
            free=left, cut={}, cpu_milli=room.cpu_milli - taken.cpu_milli, memory_mib=room.memory_mib - taken.memory_mib
        )

    def _stays(self, allocation: str, until: datetime) -> bool:
        over_at = self.pool.ends.get(allocation)
        return allocation not in self.pool.cleaning and (over_at is None or over_at > until)


class _Taken:
    """What of a node somebody else has."""

    def __init__(self, node: Node) -> None:
        self.free: dict[Kind, int] = {}
        self.cpu_milli = self.memory_mib = 0
        for card in node.cards.values():
            if is_usable(node, card):
                kind = (card.accelerator, card.memory_mib, node.traits)
                self.free[kind] = self.free.get(kind, 0) + 1

    def add(self, kinds: Iterable[Kind], cpu_milli: int, memory_mib: int) -> None:
        """Take cards of these kinds, one for each, and what goes with them."""
        for kind in kinds:
            self.free[kind] = self.free.get(kind, 0) - 1
        self.cpu_milli += cpu_milli
        self.memory_mib += memory_mib


def _places(picks: Sequence[Pick], cards_per_unit: int) -> tuple[KeptPlace, ...]:
    return tuple(
        KeptPlace(
            node=pick.node, accelerator=pick.kind[0], card_memory_mib=pick.kind[1], units=pick.units * cards_per_unit
        )
        for pick in picks
    )
