"""Admission at a desk: its definition run on plain dicts, one fact at a time, without loop, log or database."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from qm_admission.consumers import ADMISSION
from qm_admission.domain import Vote
from qm_events import Event, EventData, new_event
from qm_events.catalog import MemberGranted, OrderCancelRequested, OrderSubmitted, ProjectRegistered, TenantRegistered
from qm_events.scheduler import AllocationAllocated
from qm_events.specs import OrderRequest, PlacedUnit, Role, ServiceModel, Specification
from qm_service.model import Act, Context, Rejected

START = datetime(2026, 6, 1, 8, tzinfo=UTC)
TENANT = "acme"
RESIDENT = {projection.name: projection.resident for projection in ADMISSION.projections}


def request(
    project: str = "vision", cards: int = 1, *, count: int = 1, types: Iterable[str] = ("a100",), **more: Any
) -> OrderRequest:
    specification = Specification(
        name="spec",
        version=1,
        accelerators=tuple(types),
        cards_per_unit=cards,
        accelerator_memory_mib=80_000,
        cpu_milli=more.pop("cpu_milli", 4_000),
        memory_mib=more.pop("memory_mib", 16_000),
    )
    given: dict[str, Any] = {"tenant": TENANT, "requester": "dev", "service_model": ServiceModel.VM} | more
    return OrderRequest(project=project, specification=specification, count=count, **given)


@dataclass
class Docs:
    """`qm_service.model.Docs` on dicts."""

    all: dict[str, dict[str, Any]] = field(default_factory=lambda: {p.name: {} for p in ADMISSION.projections})

    def get(self, projection: str, key: str) -> Any | None:
        return self.all[projection].get(key)

    def resident(self, projection: str) -> Mapping[str, Any]:
        resident = RESIDENT[projection]
        return {key: doc for key, doc in self.all[projection].items() if resident and resident(doc)}


class Desk:
    """The service as its facts make it. `restart` forgets all but them."""

    def __init__(self) -> None:
        self.now = START
        self.facts: list[Event[Any]] = []
        self.foreign: list[Event[Any]] = []
        self.restart()

    def restart(self) -> None:
        self.docs, self.index = Docs(), None
        self.states: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        for event in self.facts:
            self._evolve(event)
        for event in (*self.facts, *self.foreign):
            self._fold(event)
        assert ADMISSION.new_index
        self.index = ADMISSION.new_index()
        for projection in ADMISSION.projections:
            if projection.resident:
                for key, doc in sorted(self.docs.resident(projection.name).items()):
                    self.index.changed(projection.name, key, None, doc)

    def tell(self, data: EventData, stream: str, *, settle: bool = True) -> list[Any]:
        """Hear a fact of another service; return what admission says to it."""
        before = len(self.facts)
        version = self.versions[stream] = self.versions.get(stream, 0) + 1
        event = new_event(stream, version, self.now, "/test", data, tenant=TENANT)
        self.foreign.append(event)
        self._fold(event)
        if reaction := ADMISSION.reactions.get(type(data)):
            for act in reaction(event):
                self.act(act)
        if settle:
            self.settle()
        return [event.data for event in self.facts[before:]]

    def command(self, stream: str, command: Any, *, settle: bool = True) -> list[Any] | Rejected:
        """Ask over HTTP."""
        before = len(self.facts)
        if rejected := self.act(Act(stream, command)):
            return rejected
        if settle:
            self.settle()
        return [event.data for event in self.facts[before:]]

    def act(self, act: Act) -> Rejected | None:
        decider = {decider.kind: decider for decider in ADMISSION.deciders}[act.stream.partition("/")[0]]
        decision = decider.decide(self.states.get(act.stream, decider.initial), act.command, self.context())
        if isinstance(decision, Rejected):
            return decision
        for data in decision:
            version = self.versions.get(act.stream, 0) + 1
            event = new_event(act.stream, version, self.now, "/quartermaster/admission", data)
            self.facts.append(event)
            self._evolve(event)
            self._fold(event)
        return None

    def settle(self) -> None:
        for _ in range(10_000):
            acts = ADMISSION.settle(self.context())
            if not acts:
                return
            for act in acts:
                self.act(act)
        raise AssertionError("admission does not come to rest")

    def advance(self, **by: int) -> list[Any]:
        before = len(self.facts)
        self.now += timedelta(**by)
        self.settle()
        return [event.data for event in self.facts[before:]]

    def context(self) -> Context:
        return Context(self.now, self.docs, self.index)

    def _evolve(self, event: Event[Any]) -> None:
        decider = {decider.kind: decider for decider in ADMISSION.deciders}[event.subject.partition("/")[0]]
        self.versions[event.subject] = event.version
        self.states[event.subject] = decider.evolve(self.states.get(event.subject, decider.initial), event.data)

    def _fold(self, event: Event[Any]) -> None:
        for projection in ADMISSION.projections:
            fold, resident = projection.folds.get(type(event.data)), projection.resident
            for key in fold.keys(event) if fold else ():
                docs = self.docs.all[projection.name]
                old, new = docs.get(key), fold.apply(docs.get(key), event)
                docs.pop(key, None) if new is None else docs.update({key: new})
                live = [doc if doc is not None and resident(doc) else None for doc in (old, new)] if resident else []
                if self.index and any(doc is not None for doc in live):
                    self.index.changed(projection.name, key, *live)


def furnished() -> Desk:
    """A tenant with two projects and four people."""
    desk = Desk()
    desk.tell(TenantRegistered(tenant=TENANT, display_name="Acme"), "tenant/acme")
    for project in ("vision", "speech"):
        desk.tell(ProjectRegistered(tenant=TENANT, project=project, display_name=project), "tenant/acme")
    for subject, role, project in (
        ("dev", Role.DEVELOPER, "vision"),
        ("ann", Role.APPROVER, "vision"),
        ("bob", Role.APPROVER, None),
        ("kim", Role.VIEWER, "speech"),
    ):
        desk.tell(MemberGranted(tenant=TENANT, project=project, subject=subject, role=role), "tenant/acme")
    return desk


def submit(desk: Desk, order: str, asked: OrderRequest, **more: Any) -> list[Any]:
    """Submit one second after what came before, so that orders have an age."""
    desk.now += timedelta(seconds=1)
    submitted = OrderSubmitted(
        **{"order": order, "request": asked, "digest": f"digest-{order}", "submitted_at": desk.now} | more
    )
    return desk.tell(submitted, f"order/{order}")


def cancel(desk: Desk, order: str) -> list[Any]:
    return desk.tell(OrderCancelRequested(order=order, requested_at=desk.now), f"order/{order}")


def allocate(desk: Desk, order: str, asked: OrderRequest, accelerator: str = "a100") -> list[Any]:
    per_unit = asked.specification.cards_per_unit
    units = tuple(
        PlacedUnit(
            node="n1", accelerator=accelerator, cards=tuple(f"{order}-{unit}-{card}" for card in range(per_unit))
        )
        for unit in range(asked.count)
    )
    allocated = AllocationAllocated(
        order=order, allocation=f"al-{order}", request=asked, units=units, allocated_at=desk.now
    )
    return desk.tell(allocated, f"allocation/{order}")


def vote(desk: Desk, order: str, approver: str, verdict: str = "approve", **more: Any) -> list[Any] | Rejected:
    approval = desk.states[f"admission/{order}"].asked.approval
    return desk.command(
        f"admission/{order}",
        Vote(**{"order": order, "approval": approval, "verdict": verdict, "approver": approver} | more),
    )


def names(facts: Iterable[EventData] | Rejected) -> list[str]:
    assert not isinstance(facts, Rejected), facts
    return [fact.wire_type.removesuffix(".v1") for fact in facts]
