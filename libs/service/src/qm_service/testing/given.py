"""Rules in three words: `given(DECIDER, *facts).when(command).then(*facts)`; and `folded(PROJECTION, *events)`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from qm_events import Event, EventData
from qm_service.model import Context, Decider, Decision, Projection, Rejected
from qm_service.testing.world import START

Documents = Mapping[str, Mapping[str, Any]]
"""Projection -> key -> document."""


class FixedDocs:
    """Documents that a test lays out (`model.Docs`)."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def get(self, projection: str, key: str) -> Any | None:
        """Return a document, or None."""
        return self.resident(projection).get(key)

    def resident(self, projection: str) -> Mapping[str, Any]:
        """Return all documents of a projection."""
        return self._documents.get(projection, {})


def context(now: datetime = START, docs: Documents | None = None, index: Any = None) -> Context:
    """Return what a decision sees."""
    return Context(now, FixedDocs(docs or {}), index)


@dataclass(frozen=True, slots=True)
class When:
    """What a command came to. `state`: of the stream, after it."""

    decision: Decision
    state: Any

    def then(self, *facts: EventData) -> Self:
        """Raise AssertionError unless exactly these facts follow."""
        assert list(self.facts) == list(facts)
        return self

    def nothing(self) -> Self:
        """Raise AssertionError unless nothing follows."""
        return self.then()

    def refused(self, code: str) -> Rejected:
        """Return the refusal. Raises AssertionError for facts or another code."""
        assert isinstance(self.decision, Rejected), f"not refused: {self.decision}"
        assert self.decision.code == code, self.decision
        return self.decision

    @property
    def facts(self) -> Sequence[Any]:
        """The facts. Raises AssertionError for a refusal."""
        assert not isinstance(self.decision, Rejected), f"refused: {self.decision}"
        return self.decision


@dataclass(frozen=True, slots=True)
class Given:
    """A stream with its facts so far."""

    decider: Decider[Any]
    state: Any

    def when(self, command: Any, *, now: datetime = START, docs: Documents | None = None, index: Any = None) -> When:
        """Decide the command."""
        decision = self.decider.decide(self.state, command, context(now, docs, index))
        state = self.state
        if not isinstance(decision, Rejected):
            for data in decision:
                state = self.decider.evolve(state, data)
        return When(decision, state)


def given(decider: Decider[Any], *facts: EventData) -> Given:
    """Return a stream of which these are the facts."""
    state = decider.initial
    for data in facts:
        state = decider.evolve(state, data)
    return Given(decider, state)


def folded(projection: Projection[Any], *events: Event[Any]) -> dict[str, Any]:
    """Return the documents that a projection makes of events, in this order."""
    documents: dict[str, Any] = {}
    folds = {cls.wire_type: fold for cls, fold in projection.folds.items()}
    for event in events:
        fold = folds.get(event.data.wire_type)
        for key in fold.keys(event) if fold else ():
            document = fold.apply(documents.get(key), event) if fold else None
            if document is None:
                documents.pop(key, None)
            else:
                documents[key] = document
    return documents
