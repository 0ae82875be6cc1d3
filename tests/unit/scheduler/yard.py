"""A scheduler in one object for tests: the same definition, run without a database, one input at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from qm_events import Event, EventData, new_event
from qm_events.admission import OrderAdmitted, OrderResumed, OrderSuspended
from qm_events.catalog import OrderCancelRequested
from qm_events.provisioner import (
    EnvironmentFailed,
    EnvironmentQuarantined,
    EnvironmentReady,
    EnvironmentReleased,
    EnvironmentReleaseStarted,
    EnvironmentValidated,
)
from qm_events.scheduler import AllocationAllocated, AllocationWaiting, CardSpec, NodeRegistered
from qm_events.specs import (
    Amounts,
    EndCause,
    Health,
    OrderRequest,
    ServiceModel,
    Slice,
    Specification,
    Topology,
    TopologyLevel,
    WaitCode,
    WaitReason,
)
from qm_scheduler.board import Board
from qm_scheduler.consumers import SCHEDULER
from qm_scheduler.domain import Preempt
from qm_scheduler.fleet import Node, Observation
from qm_scheduler.inventory import Clear, Cordon, Describe, Observe, Retire, Seen, Uncordon
from qm_scheduler.own import own_reasons
from qm_scheduler.projections import LIVE, OrderDoc
from qm_scheduler.reasons import explain
from qm_service.directory import TENANTS, TenantDoc
from qm_service.model import Act, Context, Rejected

START = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)
MIB = 1024
DECIDERS = {decider.kind: decider for decider in SCHEDULER.deciders}
_PROJECTIONS = {projection.name: projection for projection in LIVE}


def request(
    accelerators: Sequence[str] = ("h100",),
    cards: int = 1,
    count: int = 1,
    cpu: int = 0,
    memory: int = 0,
    *,
    priority: int = 0,
    within: str | None = None,
    required: bool = True,
    card_memory: int = 80 * MIB,
    project: str = "vision",
    traits: Sequence[str] = (),
    cut: Slice | None = None,
    **more: Any,
) -> OrderRequest:
    """Return what an order asks for."""
    spec = Specification(
        name="spec",
        version=1,
        accelerators=tuple(accelerators),
        cards_per_unit=cards,
        accelerator_memory_mib=card_memory,
        cpu_milli=cpu,
        memory_mib=memory,
        traits=tuple(traits) or None,
        slice=cut,
    )
    return OrderRequest(
        tenant="acme",
        project=project,
        requester="ada",
        specification=spec,
        service_model=ServiceModel.VM,
        count=count,
        priority=priority,
        topology=Topology(within=TopologyLevel(within), required=required) if within else None,
        **more,
    )


def node_fact(
    node: str, cards: Mapping[str, int] | Sequence[CardSpec], cpu: int = 96_000, memory: int = 512 * MIB, **place: Any
) -> NodeRegistered:
    """Return the description of a node; `cards` by type, or one by one."""
    if isinstance(cards, Mapping):
        cards = [
            CardSpec(card=f"{node}-{kind}-{n}", accelerator=kind, memory_mib=80 * MIB)
            for kind, count in cards.items()
            for n in range(count)
        ]
    return NodeRegistered(node=node, cpu_milli=cpu, memory_mib=memory, cards=tuple(cards), **place)


class Docs:
    """The documents of a yard."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, Any]] = {name: {} for name in _PROJECTIONS}

    def get(self, projection: str, key: str) -> Any | None:
        return self.all[projection].get(key)

    def resident(self, projection: str) -> Mapping[str, Any]:
        if projection == TENANTS:
            return {"acme": TenantDoc(display_name="Acme", projects=dict.fromkeys(("maps", "speech", "vision"), "p"))}
        keep = _PROJECTIONS[projection].resident
        return _Resident(self.all[projection], keep)


class _Resident(dict[str, Any]):
    """Refuses what would not be in memory."""

    def __init__(self, docs: Mapping[str, Any], keep: Any) -> None:
        self.docs, self.keep = docs, keep

    def __getitem__(self, key: str) -> Any:
        doc = self.docs[key]
        if not self.keep(doc):
            raise KeyError(key)
        return doc

    def __contains__(self, key: object) -> bool:
        return key in self.docs and bool(self.keep(self.docs[str(key)]))

    def items(self) -> Any:
        return {key: doc for key, doc in self.docs.items() if self.keep(doc)}.items()


@dataclass
class Yard:
    """`yard.order("o1", request())` submits and settles; `yard.facts` is all that was decided."""

    board: Board = field(default_factory=Board)
    docs: Docs = field(default_factory=Docs)
    states: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    now: datetime = START
    facts: list[Event[Any]] = field(default_factory=list)
    settled: bool = True

    # ---- inputs

    def node(self, node: str, cards: Any, **more: Any) -> None:
        self.ask(f"node/{node}", Describe(node_fact(node, cards, **more)))

    def order(
        self,
        order: str,
        asked: OrderRequest,
        *,
        at: int | None = None,
        settle: bool = True,
        borrowed: int = 0,
        reclaims: int = 0,
    ) -> None:
        """`at`: seconds after START at which it was submitted (default: one after all before). `borrowed`, `reclaims`:
        cards."""
        submitted = self.tick() if at is None else START + timedelta(seconds=at)
        fact = OrderAdmitted(
            order=order,
            request=asked,
            digest="d",
            submitted_at=submitted,
            borrowed=Amounts(values={"cards": borrowed}) if borrowed else None,
            reclaims=Amounts(values={"cards": reclaims}) if reclaims else None,
        )
        self.hear(f"admission/{order}", fact, settle=settle)

    def cancel(self, order: str) -> None:
        self.hear(f"order/{order}", OrderCancelRequested(order=order, requested_at=self.tick()))

    def release_started(self, order: str) -> None:
        fact = EnvironmentReleaseStarted(
            order=order, allocation=self.doc(order).allocation, cause=EndCause.RELEASED, started_at=self.tick()
        )
        self.hear(f"environment/{order}", fact)

    def ready(self, order: str) -> None:
        fact = EnvironmentReady(order=order, allocation=self.doc(order).allocation, endpoint={}, ready_at=self.tick())
        self.hear(f"environment/{order}", fact)

    def give_back(self, order: str, suspect: Sequence[str] = (), *, settle: bool = True) -> None:
        clean = tuple(dict.fromkeys(card for card in self.cards(order) if card not in suspect))
        fact = EnvironmentValidated(
            order=order,
            allocation=self.doc(order).allocation,
            clean=clean,
            suspect=tuple(suspect),
            validated_at=self.tick(),
        )
        self.hear(f"environment/{order}", fact, settle=settle)

    def give_back_dirty(self, order: str) -> None:
        fact = EnvironmentQuarantined(
            order=order,
            allocation=self.doc(order).allocation,
            cards=self.cards(order),
            step="wipe",
            error="timed out",
            quarantined_at=self.tick(),
        )
        self.hear(f"environment/{order}", fact)

    def preempt(self, order: str, cause: Any = "preempted") -> Sequence[EventData] | Rejected:
        command = Preempt(order, self.doc(order).allocation, cause, "the law asks for it")
        return self.ask(f"allocation/{order}", command)

    def gone(self, order: str, allocation: str) -> None:
        """Nothing is left of an environment that could not be cleaned."""
        fact = EnvironmentReleased(
            order=order,
            allocation=allocation,
            cause=EndCause.PREEMPTED,
            outcome="quarantined",
            lines=(),
            digest="",
            released_at=self.tick(),
        )
        self.hear(f"environment/{order}", fact)

    def suspend(self, order: str) -> None:
        at = self.tick()
        fact = OrderSuspended(order=order, scopes=("acme",), why="no hours are left", renews_at=at, suspended_at=at)
        self.hear(f"admission/{order}", fact)

    def resume(self, order: str) -> None:
        self.hear(f"admission/{order}", OrderResumed(order=order, resumed_at=self.tick()))

    def broken(self, order: str, **more: Any) -> None:
        fact = EnvironmentFailed(
            order=order, allocation=self.doc(order).allocation, step="verify", error="no", failed_at=self.tick(), **more
        )
        self.hear(f"environment/{order}", fact)

    def health(self, node: str, card: str | None, health: str, *, source: str = "dcgm", at: int | None = None) -> None:
        seen = self.tick() if at is None else START + timedelta(seconds=at)
        self.ask(f"node/{node}", Observe((Seen(card, source, Observation(Health(health), "", "", seen)),)))

    def cordon(self, node: str) -> None:
        self.ask(f"node/{node}", Cordon("kernel"))

    def uncordon(self, node: str) -> None:
        self.ask(f"node/{node}", Uncordon())

    def retire(self, node: str) -> Sequence[EventData] | Rejected:
        return self.ask(f"node/{node}", Retire("sold"))

    def clear(self, node: str, card: str) -> None:
        self.ask(f"node/{node}", Clear(card))

    # ---- answers

    def doc(self, order: str) -> OrderDoc:
        found: OrderDoc = self.docs.all["allocations"][order]
        return found

    def state(self, node: str) -> Node:
        found: Node = self.docs.all["nodes"][node]
        return found

    def cards(self, order: str) -> tuple[str, ...]:
        return tuple(card for unit in self.doc(order).units for card in unit.cards)

    def placed(self, order: str) -> bool:
        return bool(self.doc(order).units)

    def nodes_of(self, order: str) -> list[str]:
        return [unit.node for unit in self.doc(order).units]

    def codes(self, order: str) -> list[WaitCode]:
        """All reasons that hold now."""
        return [reason.code for reason in self.why(order)]

    def why(self, order: str) -> tuple[WaitReason, ...]:
        ask = self.board.queue.orders[order].ask
        return explain(self.board.case(ask.shape), self.board.line(order), own_reasons(self.board, ask))

    def told(self, order: str) -> list[WaitCode]:
        """First reasons as they were told, in time."""
        waits = (event.data for event in self.facts if isinstance(event.data, AllocationWaiting))
        return [fact.reasons[0].code for fact in waits if fact.order == order]

    def grants(self) -> list[AllocationAllocated]:
        return [event.data for event in self.facts if isinstance(event.data, AllocationAllocated)]

    # ---- machinery

    def tick(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def ask(self, stream: str, command: Any, *, settle: bool = True) -> Sequence[EventData] | Rejected:
        answer = self.act(Act(stream, command))
        if settle:
            self.settle()
        return answer

    def hear(self, stream: str, data: EventData, *, settle: bool = True) -> None:
        version = self.versions[stream] = self.versions.get(stream, 0) + 1
        event = new_event(stream, version, self.now, "/quartermaster/other", data)
        self.fold(event)
        self.react(event)
        if settle:
            self.settle()

    def act(self, act: Act) -> Sequence[EventData] | Rejected:
        decider = DECIDERS[act.stream.partition("/")[0]]
        state = self.states.get(act.stream, decider.initial)
        answer = decider.decide(state, act.command, self.context())
        if isinstance(answer, Rejected):
            return answer
        for data in answer:
            state = self.states[act.stream] = decider.evolve(state, data)
            version = self.versions[act.stream] = self.versions.get(act.stream, 0) + 1
            event = new_event(act.stream, version, self.now, "/quartermaster/scheduler", data)
            self.facts.append(event)
            self.fold(event)
            self.react(event)
        return answer

    def fold(self, event: Event[Any]) -> None:
        for name, projection in _PROJECTIONS.items():
            fold = projection.folds.get(type(event.data))
            for key in fold.keys(event) if fold else ():
                self._fold_one(name, projection, key, fold, event)

    def _fold_one(self, name: str, projection: Any, key: str, fold: Any, event: Event[Any]) -> None:
        old = self.docs.all[name].get(key)
        new = fold.apply(old, event)
        self.docs.all[name].pop(key, None)
        if new is not None:
            self.docs.all[name][key] = new
        before, after = (doc if doc is not None and projection.resident(doc) else None for doc in (old, new))
        if before is not None or after is not None:
            self.board.changed(name, key, before, after)

    def react(self, event: Event[Any]) -> None:
        reaction = SCHEDULER.reactions.get(type(event.data))
        for act in reaction(event) if reaction else ():
            self.act(act)

    def context(self, board: Board | None = None) -> Context:
        return Context(self.now, self.docs, board or self.board)

    def settle(self) -> None:
        for _ in range(1_000_000):
            acts = SCHEDULER.settle(self.context())
            if not acts:
                return
            before = len(self.facts)
            for act in acts:
                self.act(act)
            assert len(self.facts) > before, "an act led to nothing: it will come again for ever"
        raise AssertionError("does not settle")

    def fresh_board(self, *, nodes_first: bool = True) -> Board:
        """Return the index as a restart would build it, in whichever order documents are read."""
        board = Board()
        for name, projection in _PROJECTIONS.items() if nodes_first else reversed(_PROJECTIONS.items()):
            for key, doc in self.docs.all[name].items():
                assert projection.resident is not None
                if projection.resident(doc):
                    board.changed(name, key, None, doc)
        return board
