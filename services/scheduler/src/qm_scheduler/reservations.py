"""Cards that are kept for a window of time: streams `reservation/<id>`, and the document that follows from them.

Where that is, is decided when it is made: on nodes that are not promised, not reserved in the same time, and free of
leases by its start. It moves when these nodes can no longer serve it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from qm_events import Event, EventData
from qm_events.envelope import utc_text
from qm_events.scheduler import KeptPlace, ReservationEnded, ReservationMade, ReservationMoved
from qm_events.specs import PlacedUnit, Violation
from qm_events.units import amount
from qm_scheduler.holds import Hold
from qm_scheduler.view import Pick, Shape
from qm_service.model import Context, Decider, Decision, Fold, Projection, Rejected

NEVER = datetime.min.replace(tzinfo=UTC)


def hold_key(reservation: str) -> str:
    """Return the name under which its place is kept, beside those of orders."""
    return f"reservation/{reservation}"


def is_reserved(key: str) -> bool:
    """Return whether a place is kept for a reservation, not for an order."""
    return key.startswith("reservation/")


@dataclass(frozen=True, slots=True)
class Reservation:
    """The state of a stream, and its document. Never made: `id` is empty."""

    id: str = ""
    tenant: str | None = None
    project: str | None = None
    places: tuple[KeptPlace, ...] = ()
    cards_per_unit: int = 1
    cpu_milli: int = 0
    memory_mib: int = 0
    starts_at: datetime = NEVER
    ends_at: datetime = NEVER
    reason: str = ""
    made_at: datetime = NEVER
    ended: str = ""
    """Why it is over; empty: it is not."""

    @property
    def is_maintenance(self) -> bool:
        """Whether it is for nobody."""
        return self.tenant is None

    @property
    def cards(self) -> int:
        """Cards that are kept."""
        return sum(place.units for place in self.places)

    def serves(self, tenant: str, project: str) -> bool:
        """Return whether orders of a project may run on it."""
        return self.tenant == tenant and self.project in (None, project)


PRIORITY = 1_001
"""Above that of every order: a reservation binds all."""


def hold_of(doc: Reservation | None, used: Mapping[str, Sequence[PlacedUnit]]) -> Hold | None:
    """Return what is kept for a reservation beside what its orders hold there."""
    if doc is None:
        return None
    holding: dict[tuple[str, str], int] = {}
    for unit in (unit for units in used.values() for unit in units):
        holding[unit.node, unit.accelerator] = holding.get((unit.node, unit.accelerator), 0) + len(unit.cards)
    picks = []
    for at in doc.places:
        taken = min(at.units, holding.get((at.node, at.accelerator), 0))
        holding[at.node, at.accelerator] = holding.get((at.node, at.accelerator), 0) - taken
        if at.units > taken:
            picks.append(Pick(at.node, (at.accelerator, at.card_memory_mib, ()), at.units - taken))
    types = tuple(dict.fromkeys(at.accelerator for at in doc.places))
    shape = Shape(types, 0, 1, doc.cpu_milli, doc.memory_mib, max(sum(p.units for p in picks), 1), None, False)
    return Hold(hold_key(doc.id), PRIORITY, shape, tuple(picks), doc.starts_at)


def shape_of_all(doc: Reservation) -> Shape:
    """Return the shape of a reservation as it was asked for."""
    each, first = doc.cards_per_unit, doc.places[0]
    types = tuple(dict.fromkeys(at.accelerator for at in doc.places))
    memory = first.card_memory_mib
    return Shape(types, memory, each, each * doc.cpu_milli, each * doc.memory_mib, doc.cards // each, None, False)


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep so much from then to then, on `nodes` or wherever it fits."""

    reservation: str
    tenant: str
    project: str | None
    shape: Shape
    starts_at: datetime
    ends_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Maintain:
    """Let nobody be on these nodes from then to then; who runs there and does not end before, is not thrown out."""

    reservation: str
    nodes: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Move:
    """Keep it elsewhere."""

    reservation: str
    places: tuple[KeptPlace, ...]


@dataclass(frozen=True, slots=True)
class EndReservation:
    """Keep nothing for it any more."""

    reservation: str
    cause: Literal["cancelled", "expired"]
    ended_at: datetime


def _over(ends_at: datetime, ctx: Context) -> Rejected | None:
    if ends_at > ctx.now:
        return None
    return Rejected("reservation-over", "The window lies in the past.", "Name a window that ends in the future.")


def _reserve(state: Reservation, command: Reserve, ctx: Context) -> Decision:
    if state.id:
        return []
    if refused := _over(command.ends_at, ctx):
        return refused
    tenant = ctx.docs.resident("tenants").get(command.tenant)
    if tenant is None or (command.project is not None and command.project not in tenant.projects):
        scope = "/".join(name for name in (command.tenant, command.project) if name)
        return Rejected("project-unknown", f"There is no {scope}.")
    found = ctx.index.window(
        command.shape, max(command.starts_at, ctx.now), command.ends_at, ctx.docs.resident("allocations")
    )
    if found.places is None:
        return _overbooked(command, found)
    each = command.shape.cards
    return [
        ReservationMade(
            reservation=command.reservation,
            tenant=command.tenant,
            project=command.project,
            places=found.places,
            cards_per_unit=each,
            cpu_milli=-(-command.shape.cpu_milli // each),
            memory_mib=-(-command.shape.memory_mib // each),
            starts_at=command.starts_at,
            ends_at=command.ends_at,
            reason=command.reason,
            made_at=ctx.now,
        )
    ]


def _overbooked(command: Reserve, found: Any) -> Rejected:
    asked, name = command.shape.cards * command.shape.units, command.shape.accelerators[0]
    figures = Violation(
        scope="fleet",
        dimension=f"cards/{name}",
        limit=found.total,
        used=found.total - found.free,
        requested=asked,
        short_by=max(asked - found.free, 0),
    )
    detail = f"{amount(asked, 'cards')} asked for; of {found.total} that could serve, {found.free} are to be had then."
    remedy = "Ask for less, or end leases and other reservations."
    if found.next_at is not None:
        length = command.ends_at - command.starts_at
        until = found.next_at + length
        remedy = f"The next window of this length that fits: {utc_text(found.next_at)} to {utc_text(until)}."
    return Rejected("reservation-overbooked", detail, remedy, (figures,))


def _maintain(state: Reservation, command: Maintain, ctx: Context) -> Decision:
    if state.id:
        return []
    if refused := _over(command.ends_at, ctx):
        return refused
    nodes = ctx.docs.resident("nodes")
    if missing := [name for name in command.nodes if name not in nodes]:
        return Rejected("node-unknown", f"Node {missing[0]} is not in the fleet.", "Register it first.")
    counts: dict[tuple[str, str, int], int] = {}
    for name in sorted(set(command.nodes)):
        for card in nodes[name].cards.values():
            key = (name, card.accelerator, card.memory_mib)
            counts[key] = counts.get(key, 0) + 1
    places = tuple(
        KeptPlace(node=node, accelerator=name, card_memory_mib=memory, units=count)
        for (node, name, memory), count in counts.items()
    )
    if not places:
        return Rejected("node-unknown", "These nodes have no cards.", "Cordon a node that has none.")
    return [
        ReservationMade(
            reservation=command.reservation,
            places=places,
            starts_at=command.starts_at,
            ends_at=command.ends_at,
            reason=command.reason,
            made_at=ctx.now,
        )
    ]


def _move(state: Reservation, command: Move, ctx: Context) -> Decision:
    if not state.id or state.ended or state.places == command.places:
        return []
    return [ReservationMoved(reservation=state.id, places=command.places, moved_at=ctx.now)]


def _end(state: Reservation, command: EndReservation, _: Context) -> Decision:
    if not state.id:
        return Rejected("reservation-unknown", f"There is no reservation {command.reservation}.")
    if state.ended:
        return []
    return [ReservationEnded(reservation=state.id, cause=command.cause, ended_at=command.ended_at)]


RULES: Mapping[type, Callable[[Reservation, Any, Context], Decision]] = {
    Reserve: _reserve,
    Maintain: _maintain,
    Move: _move,
    EndReservation: _end,
}


def _decide(state: Reservation, command: Any, ctx: Context) -> Decision:
    return RULES[type(command)](state, command, ctx)


def _made(_: Reservation, fact: ReservationMade) -> Reservation:
    kept = fact.model_dump(exclude={"reservation", "places"})
    return Reservation(id=fact.reservation, places=fact.places, **kept)


FACTS: Mapping[type[EventData], Callable[[Reservation, Any], Reservation]] = {
    ReservationMade: _made,
    ReservationMoved: lambda state, fact: replace(state, places=fact.places),
    ReservationEnded: lambda state, fact: replace(state, ended=fact.cause),
}


def _evolve(state: Reservation, fact: Any) -> Reservation:
    return FACTS[type(fact)](state, fact)


def _folded(doc: Reservation | None, event: Event[Any]) -> Reservation:
    return _evolve(doc or Reservation(), event.data)


RESERVATION = Decider("reservation", Reservation(), _decide, _evolve)
RESERVATIONS = Projection(
    "reservations",
    1,
    Reservation,
    {fact: Fold(_folded) for fact in FACTS},
    resident=lambda doc: not doc.ended,
)
