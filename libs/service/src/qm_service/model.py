"""How a service is written: pure functions and tables, run by `qm_service.runtime`.

A service is one `Definition`. Its own facts live in streams; a `Decider` per kind of stream says what a command leads
to (`decide`) and what a fact changes (`evolve`). `reactions` turn facts of others into commands. A `Projection` folds
facts, own and foreign, into documents, one row a key. `settle` looks at the whole after each batch (place what fits,
expire what is due) and answers with more commands.

All of it runs inside one writer, one batch of inputs at a time, in ONE database transaction: facts, documents and input
positions. So a function here sees every fact before it and no half of one; it never waits, reads a clock or calls out.
This module is pure itself and the only one of the chassis that a domain module may import.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from qm_events import Event, EventData
from qm_events.specs import Violation

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A command that leads to nothing. `code` names a problem class of the service; nothing was changed."""

    code: str
    detail: str
    remedy: str = ""
    violations: tuple[Violation, ...] = ()


Decision = Sequence[EventData] | Rejected


class Docs(Protocol):
    """The documents as of this moment of the batch."""

    def get(self, projection: str, key: str) -> Any | None:
        """Return a document that is resident, or whose key a fact or an `Act` of this batch named; else None.

        A document that exists but was not asked for beforehand raises KeyError: silence would be a wrong answer.
        """

    def resident(self, projection: str) -> Mapping[str, Any]:
        """Return all resident documents of a projection, by key."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a decision may look at beside its own state."""

    now: datetime
    """The time of the decision; never before the last fact of the stream."""
    docs: Docs
    index: Any = None
    """What `Definition.new_index` made, kept in step with the resident documents."""


class Act(NamedTuple):
    """A command for a stream of this service. What is None is taken from the fact that caused it."""

    stream: str
    command: Any
    tenant: str | None = None
    project: str | None = None
    correlation: str | None = None
    needs: Sequence[tuple[str, str]] = ()
    """(projection, key) of non-resident documents that `decide` will read."""


@dataclass(frozen=True, slots=True)
class Decider(Generic[S]):
    """The rules of one kind of stream (`order` in `order/<id>`)."""

    kind: str
    initial: S
    decide: Callable[[S, Any, Context], Decision]
    evolve: Callable[[S, Any], S]
    """(state, data of the fact) -> state. An unlawful fact of the own stream raises: that stops the stream, loudly."""


Reaction = Callable[[Event[Any]], Sequence[Act]]


def key_of_stream(event: Event[Any]) -> Sequence[str]:
    """Return the key of the fact's stream: the order for all order topics."""
    return (event.key,)


@dataclass(frozen=True, slots=True)
class Fold(Generic[T]):
    """What one type of fact does to documents: for each key, the old one in, the new one out; None = none."""

    apply: Callable[[T | None, Event[Any]], T | None]
    keys: Callable[[Event[Any]], Sequence[str]] = key_of_stream


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """An indexed SQL column that is derived from the document, for lists and filters."""

    type: type
    """str, int, bool or datetime."""
    of: Callable[[T], Any]


@dataclass(frozen=True, slots=True)
class Projection(Generic[T]):
    """A table of documents, one a key, each a fold of facts. Rebuilt at will; the table is `p_<name>_v<version>`.

    A fold may not depend on the order of facts from different topics: only facts of one key on one topic are ordered.
    """

    name: str
    version: int
    model: Any
    """The type of a document: a frozen pydantic model or dataclass. Its JSON is the row and the hash."""
    folds: Mapping[type[EventData], Fold[T]]
    columns: Mapping[str, Column[T]] = field(default_factory=dict)
    resident: Callable[[T], bool] | None = None
    """Which documents stay in memory (and feed the index): the live ones. None = read on demand, cached."""


class Index(Protocol):
    """A structure over resident documents that answers `settle` and `decide` without a scan."""

    def changed(self, projection: str, key: str, old: Any | None, new: Any | None) -> None:
        """Follow one document; called for every resident one at load with old None."""


def no_acts(_: Context) -> Sequence[Act]:
    """The `settle` of a service that has nothing to settle."""
    return ()


@dataclass(frozen=True, slots=True)
class Definition:
    """A service, whole."""

    name: str
    deciders: Sequence[Decider[Any]]
    projections: Sequence[Projection[Any]]
    reactions: Mapping[type[EventData], Reaction]
    """Facts of others, and own facts that call for more, to commands."""
    settle: Callable[[Context], Sequence[Act]] = no_acts
    """Called after each batch and tick until it returns nothing; finds its work through the index, never by a scan."""
    due: Callable[[Context], datetime | None] = lambda _: None
    """When `settle` wants to run next though nothing happens; None = never."""
    new_index: Callable[[], Index] | None = None
