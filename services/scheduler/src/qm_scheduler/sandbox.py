"""The scheduler run on a copy of what it knows: the same rules and the same index, with no effect on the live one.

Documents are values that are never changed in place, so a copy is a dict of references.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from qm_events import new_event
from qm_scheduler.allocation import Allocation
from qm_scheduler.board import Board
from qm_scheduler.domain import DECIDERS
from qm_scheduler.fleet import Node
from qm_scheduler.projections import LIVE, OrderDoc
from qm_scheduler.settle import settle
from qm_scheduler.workload import Workload
from qm_service.model import Act, Context, Rejected

_DECIDERS = {decider.kind: decider for decider in DECIDERS}
_PROJECTIONS = {projection.name: projection for projection in LIVE}
STEPS_MAX = 100_000
"""Placements, promises and explanations of one run."""


@dataclass
class Sandbox:
    """A copy of the resident documents, and the index over it."""

    now: datetime
    docs: dict[str, dict[str, Any]]
    board: Board = field(default_factory=Board)
    states: dict[str, Any] = field(default_factory=dict)
    placed: list[str] = field(default_factory=list)
    """Orders, in the order in which they got their cards."""

    def __post_init__(self) -> None:
        for name in _PROJECTIONS:
            for key, doc in self.docs[name].items():
                self.board.changed(name, key, None, doc)

    def get(self, projection: str, key: str) -> Any | None:
        """Return a document."""
        return self.docs[projection].get(key)

    def resident(self, projection: str) -> Mapping[str, Any]:
        """Return the documents of a projection."""
        return self.docs[projection]

    def context(self) -> Context:
        """Return what a decision looks at."""
        return Context(self.now, self, self.board)

    def ask(self, act: Act) -> Rejected | None:
        """Carry out one command; return why it was refused."""
        kind, _, key = act.stream.partition("/")
        decider = _DECIDERS[kind]
        state = self.states.get(act.stream) or self._state(kind, key)
        answer = decider.decide(state, act.command, self.context())
        if isinstance(answer, Rejected):
            return answer
        for data in answer:
            state = self.states[act.stream] = decider.evolve(state, data)
            self._fold(new_event(act.stream, 1, self.now, "/quartermaster/sandbox", data))
            if data.wire_type.startswith("allocation.allocated"):
                self.placed.append(key)
        return None

    def _state(self, kind: str, key: str) -> Any:
        if kind == "node":
            return self.docs["nodes"].get(key, Node())
        if kind == "workload":
            return self.docs["workloads"].get(key, Workload())
        doc: OrderDoc | None = self.docs["allocations"].get(key)
        if doc is None:
            return Allocation()
        code = doc.reasons[0].code if doc.reasons else None
        return Allocation(doc.phase, doc.request, code, grants=doc.grants, allocation=doc.allocation, units=doc.units)

    def _fold(self, event: Any) -> None:
        for name, projection in _PROJECTIONS.items():
            fold = projection.folds.get(type(event.data))
            if fold is None:
                continue
            for key in fold.keys(event):
                old = self.docs[name].get(key)
                new = self.docs[name][key] = fold.apply(old, event)
                self.board.changed(name, key, old, new)

    def settle(self) -> None:
        """Place and explain until nothing is left to do."""
        for _ in range(STEPS_MAX):
            acts = settle(self.context())
            if not acts:
                return
            for act in acts:
                self.ask(act)
