"""What the writer keeps in memory: states of streams, documents, the index. Authoritative between two transactions,
because there is one fenced writer; dropped whole and loaded again after any failure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_events import Event
from qm_service.log import Position
from qm_service.model import Act, Fold, Index
from qm_service.plan import Plan
from qm_service.schema import Schema
from qm_service.store import SqlEventStore, chunks

BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
Key = tuple[str, str]
"""(projection, key)"""
Target = tuple[str, str, Fold[Any]]
"""(projection, key, how)"""


@dataclass(slots=True)
class Stream:
    """An own stream as of its last fact."""

    version: int
    state: Any
    time: datetime = BEGINNING
    traceparent: str | None = None


class Documents:
    """The documents of one projection: the resident ones, and a bounded cache of others, absent ones included."""

    def __init__(self, name: str, plan: Plan, index: Index | None) -> None:
        self.live: dict[str, Any] = {}
        self.cached: dict[str, Any | None] = {}
        self.whole = False
        """Every document is in memory: what is not here does not exist."""
        self._name = name
        self._resident = plan.projections[name].resident
        self._index = index

    def knows(self, key: str) -> bool:
        """Tell whether `get` can answer."""
        return self.whole or key in self.live or key in self.cached

    def get(self, key: str) -> Any | None:
        """Return a document, or None for none. Raises KeyError for one that was not loaded."""
        document = self.live.get(key)
        if document is not None:
            return document
        return self.cached.get(key) if self.whole else self.cached[key]

    def resident(self, document: Any | None) -> bool:
        """Tell whether a document stays in memory."""
        return document is not None and self._resident is not None and self._resident(document)

    def load(self, key: str, document: Any | None) -> None:
        """Take a document from the database."""
        if self.resident(document):
            self.live[key] = document
            if self._index is not None:
                self._index.changed(self._name, key, None, document)
        else:
            self.cached[key] = document

    def put(self, key: str, document: Any | None) -> None:
        """Take a changed document, None for one that is gone."""
        old = self.live.get(key)
        if self.resident(document):
            self.live[key] = new = document
            self.cached.pop(key, None)
        else:
            self.live.pop(key, None)
            self.cached[key] = document
            new = None
        if self._index is not None and (old is not None or new is not None):
            self._index.changed(self._name, key, old, new)


class View:
    """The documents, as decisions see them (`model.Docs`)."""

    def __init__(self, documents: Mapping[str, Documents]) -> None:
        self._documents = documents
        self._resident = {name: MappingProxyType(docs.live) for name, docs in documents.items()}

    def get(self, projection: str, key: str) -> Any | None:
        """Return a document or None. Raises KeyError for one that was not asked for beforehand."""
        return self._documents[projection].get(key)

    def resident(self, projection: str) -> Mapping[str, Any]:
        """Return all resident documents of a projection, by key."""
        return self._resident[projection]


@dataclass(slots=True)
class Memory:
    """All of it. `capacity` bounds each cache; residents are bounded by what is alive."""

    plan: Plan
    schema: Schema
    store: SqlEventStore
    capacity: int
    streams: dict[str, Stream] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    documents: dict[str, Documents] = field(default_factory=dict)
    positions: Position = field(default_factory=dict)
    parked: set[str] = field(default_factory=set)
    """Foreign streams of which a fact is parked: later ones wait behind it."""
    follow: dict[str, set[str]] = field(default_factory=dict)
    """Kind of own stream -> projections with a document of the same key: learned, so that they are loaded ahead."""
    index: Index | None = None
    view: View = field(init=False)

    def __post_init__(self) -> None:
        make = self.plan.definition.new_index
        self.index = make() if make else None
        self.documents = {name: Documents(name, self.plan, self.index) for name in self.plan.projections}
        self.view = View(self.documents)

    def targets(self, event: Event[Any]) -> list[Target]:
        """Return which documents a fact is folded into, and how."""
        folds = self.plan.folds.get(event.data.wire_type, ())
        return [(name, key, fold) for name, fold in folds for key in fold.keys(event)]

    def unknown(self, targets: Iterable[Target]) -> list[Key]:
        """Return the documents that have to be loaded before `fold`."""
        return [(name, key) for name, key, _ in targets if not self.documents[name].knows(key)]

    def fold(self, event: Event[Any], targets: Sequence[Target], changed: dict[Key, Any | None]) -> None:
        """Fold a fact into its documents, all or none; `changed` collects those that are not what they were."""
        folded: list[tuple[str, str, Any | None]] = []
        for name, key, fold in targets:
            old = self.documents[name].get(key)
            if (new := fold.apply(old, event)) is not old:
                folded.append((name, key, new))
        for name, key, new in folded:
            self.documents[name].put(key, new)
            changed[name, key] = new

    def has_seen(self, streams: Iterable[str]) -> bool:
        """Tell whether the last folded versions of these foreign streams are here."""
        return all(_touch(self.seen, name) for name in streams)

    def wanted(self, acts: Sequence[Act], keys: Iterable[Key] = ()) -> dict[Key, None]:
        """Return the documents that these acts may look at or change, and those of `keys`."""
        wanted = dict.fromkeys(keys)
        for act in acts:
            wanted |= dict.fromkeys(act.needs)
            kind, _, key = act.stream.partition("/")
            wanted |= {(name, key): None for name in self.follow.get(kind, ())}
        return wanted

    def has(self, acts: Sequence[Act], wanted: Iterable[Key]) -> bool:
        """Tell whether the streams of these acts, and these documents, are here: no transaction is needed then."""
        return all(_touch(self.streams, act.stream) for act in acts) and all(
            _touch(self.documents[name].cached, key) or self.documents[name].knows(key) for name, key in wanted
        )

    async def load(self, tx: AsyncConnection, acts: Sequence[Act], wanted: Iterable[Key]) -> None:
        """Load the streams of these acts, and these documents."""
        await self.load_streams(tx, [act.stream for act in acts])
        await self.load_documents(tx, wanted)

    async def load_residents(self, tx: AsyncConnection) -> None:
        """Load what has to be there before the first decision."""
        for name, documents in self.documents.items():
            table, adapter = self.schema.documents[name], self.plan.adapters[name]
            query = select(table.c.key, table.c.doc).where(table.c.resident).order_by(table.c.key)
            for key, raw in await tx.execute(query):
                documents.load(key, adapter.validate_json(raw))
            others = await tx.execute(select(table.c.key).where(~table.c.resident).limit(1))
            documents.whole = others.first() is None

    async def load_streams(self, tx: AsyncConnection, names: Iterable[str]) -> None:
        """Load streams that are not here; one without facts gets its initial state."""
        missing = [name for name in dict.fromkeys(names) if not _touch(self.streams, name)]
        folded = [name for name in missing if name.partition("/")[0] in self.plan.deciders]
        histories = await self.store.load_many(tx, folded) if folded else {}
        for name in folded:
            self.streams[name] = self._fold(name, histories.get(name, ()))
        if plain := [name for name in missing if name not in self.streams]:
            heads = await self.store.heads(tx, plain)
            for name in plain:
                version, time = heads.get(name, (0, BEGINNING))
                self.streams[name] = Stream(version, None, time)

    def _fold(self, name: str, history: Sequence[Any]) -> Stream:
        decider = self.plan.deciders[name.partition("/")[0]]
        state = decider.initial
        for event in history:
            state = decider.evolve(state, event.data)
        if not history:
            return Stream(0, state)
        return Stream(len(history), state, history[-1].time, history[-1].traceparent)

    async def load_seen(self, tx: AsyncConnection, names: Iterable[str]) -> None:
        """Load the last folded versions of foreign streams."""
        table = self.schema.seen
        for some in chunks([name for name in dict.fromkeys(names) if not _touch(self.seen, name)]):
            self.seen |= dict.fromkeys(some, 0)
            query = select(table.c.stream, table.c.version).where(table.c.stream.in_(some))
            self.seen |= {stream: version for stream, version in await tx.execute(query)}

    async def load_documents(self, tx: AsyncConnection, keys: Iterable[Key]) -> None:
        """Load documents that are not here; one that does not exist is remembered as absent."""
        missing: dict[str, dict[str, None]] = {}
        for name, key in keys:
            documents = self.documents[name]
            if not (_touch(documents.cached, key) or documents.knows(key)):
                missing.setdefault(name, {})[key] = None
        for name, wanted in missing.items():
            table, adapter, documents = self.schema.documents[name], self.plan.adapters[name], self.documents[name]
            for some in chunks(list(wanted)):
                query = select(table.c.key, table.c.doc).where(table.c.key.in_(some))
                found = {key: adapter.validate_json(raw) for key, raw in await tx.execute(query)}
                for key in some:
                    documents.load(key, found.get(key))

    def shrink(self) -> None:
        """Forget what was used longest ago. Only between two batches: within one, what was loaded stays."""
        caches: list[dict[str, Any]] = [self.streams, self.seen]
        for cache in caches:
            self._shrink(cache)
        for documents in self.documents.values():
            # Not before a document is forgotten, so that a batch that began with all of them ends with all of them.
            if any(document is not None for document in self._shrink(documents.cached)):
                documents.whole = False

    def _shrink(self, cache: dict[str, Any]) -> list[Any]:
        return [cache.pop(key) for key in list(islice(cache, max(len(cache) - self.capacity, 0)))]


def _touch(cache: dict[str, Any], key: str) -> bool:
    if key not in cache:
        return False
    cache[key] = cache.pop(key)
    return True
