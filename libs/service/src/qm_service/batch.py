"""One step of the writer: work items in, changes out. Decides and folds in memory; writes nothing."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select

from qm_events import Event, decode, encode, new_event
from qm_events.ids import PLATFORM
from qm_service.commands import Cause, IdempotencyMismatch, Outcome, Refused, VersionConflict
from qm_service.database import Database
from qm_service.log import Position, Record
from qm_service.memory import Key, Memory, Stream
from qm_service.model import Act, Context, Rejected, key_of_stream
from qm_service.park import ParkPolicy, parked_row
from qm_service.store import row_of

_ROUNDS = 200
"""How often one batch settles; what is left then is settled by the next one."""

Attributes = dict[str, Any]
"""Of the envelope: who and what caused a fact."""


@dataclass(slots=True, eq=False)
class Command:
    """A command of a caller, who waits for `answer`."""

    act: Act
    cause: Cause
    answer: asyncio.Future[Outcome]
    expected: int | None = None
    refusal: str | None = None
    """The code with which the call was refused before it came here: to be audited, not carried out."""


@dataclass(slots=True, eq=False)
class Input:
    """A record of the log, or of the parked ones."""

    record: Record
    parked: int | None = None
    """Its row among the parked ones."""
    error: str | None = None
    """What it failed with when it was tried."""
    event: Event[Any] | None = None
    acts: Sequence[Act] = ()


Item = Command | Input


@dataclass(slots=True)
class Changes:
    """What one transaction has to write, and whom to tell."""

    events: list[Event[Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    documents: dict[Key, Any | None] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    positions: Position = field(default_factory=dict)
    idempotency: list[dict[str, Any]] = field(default_factory=list)
    parked: list[dict[str, Any]] = field(default_factory=list)
    unparked: list[int] = field(default_factory=list)
    halted: dict[tuple[str, int], str] = field(default_factory=dict)
    answers: list[tuple[Command, Outcome | Exception]] = field(default_factory=list)
    unsettled: bool = False

    def any(self) -> bool:
        """Tell whether there is something to write."""
        return bool(self.rows or self.documents or self.seen or self.positions or self.parked or self.unparked)


class Batch:
    """Runs items against the memory, which it changes in place: after an exception the memory is worthless."""

    def __init__(self, memory: Memory, database: Database, now: datetime, policy: ParkPolicy) -> None:
        self.current: Item | None = None
        """What it was at when it failed; None = settling, or between two items."""
        self._memory = memory
        self._plan = memory.plan
        self._database = database
        self._now = now
        self._policy = policy
        self._changes = Changes()
        self._pending: deque[Event[Any]] = deque()
        self._used: Mapping[str, Any] = {}

    async def run(self, items: Sequence[Item], *, settle: bool = True) -> Changes:
        """Handle all items in order, then settle. Raises what a rule raised; `current` tells at which item."""
        for item in items:
            self.current = item
            if isinstance(item, Input):
                self._open(item)
        self.current = None
        await self._prefetch(items)
        for item in items:
            self.current = item
            if isinstance(item, Command):
                await self._command(item)
            elif item.parked is None:
                await self._input(item)
            else:
                await self._redrive(item, item.parked)
        self.current = None
        if settle:
            await self._settle()
        return self._changes

    def _open(self, item: Input) -> None:
        """Decode what a rule here handles, and ask the reaction which streams it is about."""
        if item.error is not None or not self._plan.handles(item.record.type):
            return
        item.event = decode(item.record.value, item.record.type)
        reaction = self._plan.reactions.get(item.event.data.wire_type)
        item.acts = tuple(reaction(item.event)) if reaction else ()

    async def _prefetch(self, items: Sequence[Item]) -> None:
        acts: list[Act] = []
        keys: dict[Key, None] = {}
        keyed: set[str] = set()
        foreign: list[str] = []
        for item in items:
            if isinstance(item, Command):
                acts.append(item.act)
                if item.cause.idempotency is not None:
                    keyed.add(item.cause.idempotency)
                continue
            foreign.append(item.record.subject)
            acts += item.acts
            if item.event is not None:
                for name, fold in self._plan.folds.get(item.event.data.wire_type, ()):
                    keys |= {(name, key): None for key in fold.keys(item.event)}
        await self._load(acts, keys, foreign)
        if keyed:
            table = self._memory.schema.idempotency
            async with self._database.read() as tx:
                rows = await tx.execute(select(table).where(table.c.key.in_(keyed)))
                self._used = {row.key: row for row in rows}

    async def _load(self, acts: Sequence[Act], keys: Iterable[Key] = (), foreign: Sequence[str] = ()) -> None:
        memory = self._memory
        wanted = dict.fromkeys(keys)
        for act in acts:
            wanted |= dict.fromkeys(act.needs)
            kind, _, key = act.stream.partition("/")
            wanted |= {(name, key): None for name in memory.follow.get(kind, ())}
        if memory.has_all([act.stream for act in acts], wanted, foreign):
            return
        async with self._database.read() as tx:
            await memory.load_streams(tx, [act.stream for act in acts])
            await memory.load_documents(tx, wanted)
            await memory.load_seen(tx, foreign)

    async def _stream(self, name: str) -> Stream:
        if name not in self._memory.streams:
            async with self._database.read() as tx:
                await self._memory.load_streams(tx, [name])
        return self._memory.streams[name]

    async def _input(self, item: Input) -> None:
        record, memory, changes = item.record, self._memory, self._changes
        place = (record.topic, record.partition)
        if place in changes.halted or record.offset < memory.positions[place]:
            return
        memory.positions[place] = record.offset + 1
        last = memory.seen[record.subject]
        if record.version > last and (item.error is not None or record.subject in memory.parked):
            self._set_aside(item, item.error or "waits behind an earlier fact of its stream")
        elif record.version > last + 1:
            self._halt(item, f"{record.position}: version {record.version} of {record.subject} follows version {last}")
        elif record.version == last + 1:
            await self._fact(item)
        if place not in changes.halted:
            changes.positions[place] = record.offset + 1

    async def _redrive(self, item: Input, row: int) -> None:
        """Try a parked record again; the position of its partition is far beyond it and stays."""
        last = self._memory.seen[item.record.subject]
        if item.error is not None or item.record.version > last + 1:
            return
        if item.record.version == last + 1:
            await self._fact(item)
        self._changes.unparked.append(row)

    async def _fact(self, item: Input) -> None:
        record = item.record
        self._memory.seen[record.subject] = self._changes.seen[record.subject] = record.version
        if item.event is None:
            return
        await self._fold(item.event)
        for act in item.acts:
            await self._act(act, _caused_by(item.event, record.position))
        await self._follow()

    def _set_aside(self, item: Input, error: str) -> None:
        if self._policy is ParkPolicy.HALT_PARTITION:
            self._halt(item, error)
            return
        self._changes.parked.append(parked_row(item.record, error, self._now))
        self._memory.parked.add(item.record.subject)

    def _halt(self, item: Input, error: str) -> None:
        place = (item.record.topic, item.record.partition)
        self._memory.positions[place] = item.record.offset
        self._changes.halted[place] = error

    async def _command(self, command: Command) -> None:
        cause, stream = command.cause, await self._stream(command.act.stream)
        before = stream.version
        result = await self._carry_out(command, stream)
        if cause.action is not None:
            await self._audit(command, result, before, stream.version)
        self._changes.answers.append((command, result))

    async def _carry_out(self, command: Command, stream: Stream) -> Outcome | Exception:
        act, cause = command.act, command.cause
        if command.refusal is not None:
            return Outcome(act.stream, stream.version, ())
        if (used := self._used.get(cause.idempotency or "")) is not None:
            return await self._again(used, cause)
        if command.expected is not None and command.expected != stream.version:
            return VersionConflict(act.stream, command.expected, stream.version)
        decision = await self._act(act, _asked_by(cause))
        if isinstance(decision, Rejected):
            return Refused(decision)
        outcome = Outcome(act.stream, stream.version, decision)
        if decision and cause.idempotency is not None:
            row = idempotency_row(cause.idempotency, cause.request, act.stream, decision[0].version, stream.version)
            self._changes.idempotency.append(row)
            self._used = {**self._used, cause.idempotency: _Row(row)}
        await self._follow()
        return outcome

    async def _again(self, used: Any, cause: Cause) -> Outcome | Exception:
        if used.request != (cause.request or ""):
            return IdempotencyMismatch(f"the key was used for {used.stream} with another body")
        if mine := [e for e in self._changes.events if e.subject == used.stream and e.idempotency == cause.idempotency]:
            return Outcome(used.stream, used.last_version, mine, replayed=True)
        async with self._database.read() as tx:
            events = await self._memory.store.load(tx, used.stream, used.first_version - 1, used.last_version)
        return Outcome(used.stream, used.last_version, events, replayed=True)

    async def _act(self, act: Act, attributes: Attributes) -> list[Event[Any]] | Rejected:
        stream = self._memory.streams.get(act.stream) or await self._stream(act.stream)
        decider = self._plan.deciders[act.stream.partition("/")[0]]
        now = max(self._now, stream.time)
        decision = decider.decide(stream.state, act.command, Context(now, self._memory.view, self._memory.index))
        if isinstance(decision, Rejected):
            return decision
        for name in ("tenant", "project", "correlation"):
            if (value := getattr(act, name)) is not None:
                attributes[name] = value
        made: list[Event[Any]] = []
        for data in decision:
            event = self._append(act.stream, stream, now, data, attributes)
            stream.state = decider.evolve(stream.state, data)
            made.append(event)
            await self._fold(event, own=True)
        self._pending.extend(made)
        return made

    def _append(self, name: str, stream: Stream, now: datetime, data: Any, attributes: Attributes) -> Event[Any]:
        event = new_event(name, stream.version + 1, now, self._plan.source, data, **attributes)
        stream.version += 1
        stream.time = now
        self._changes.events.append(event)
        self._changes.rows.append(row_of(event, encode(event)))
        return event

    async def _fold(self, event: Event[Any], *, own: bool = False) -> None:
        for name, fold in self._plan.folds.get(event.data.wire_type, ()):
            if own and fold.keys is key_of_stream:
                self._memory.follow.setdefault(event.subject.partition("/")[0], set()).add(name)
            documents = self._memory.documents[name]
            for key in fold.keys(event):
                if not documents.knows(key):
                    async with self._database.read() as tx:
                        await self._memory.load_documents(tx, [(name, key)])
                old = documents.get(key)
                new = fold.apply(old, event)
                if new is not old:
                    documents.put(key, new)
                    self._changes.documents[name, key] = new

    async def _follow(self) -> None:
        """Run the reactions to own facts, and to the facts that these lead to."""
        while self._pending:
            event = self._pending.popleft()
            reaction = self._plan.reactions.get(event.data.wire_type)
            for act in reaction(event) if reaction else ():
                await self._act(act, _caused_by(event, event.input))

    async def _settle(self) -> None:
        settle = self._plan.definition.settle
        for _ in range(_ROUNDS):
            acts = settle(Context(self._now, self._memory.view, self._memory.index))
            if not acts:
                return
            await self._load(acts)
            before = len(self._changes.events)
            for act in acts:
                await self._act(act, {"actor": "system"})
                await self._follow()
            if len(self._changes.events) == before:
                return
        self._changes.unsettled = True

    async def _audit(self, command: Command, result: Outcome | Exception, before: int, after: int) -> None:
        cause, cls = command.cause, self._plan.audit
        if cls is None:
            return
        tenant = command.act.tenant or cause.tenant or PLATFORM
        name = f"audit-{self._plan.definition.name}/{tenant}"
        code = command.refusal or _code(result)
        stream = await self._stream(name)
        data = cls(
            actor=cause.actor,
            token=cause.token,
            action=cause.action or "",
            resource=command.act.stream,
            decision="allowed" if code is None else "refused",
            code=code,
            before_version=before,
            after_version=after,
            audited_at=self._now,
        )
        attributes = {"tenant": tenant, "actor": cause.actor, "token": cause.token, "traceparent": cause.traceparent}
        event = self._append(name, stream, max(self._now, stream.time), data, attributes)
        await self._fold(event, own=True)


class _Row:
    """A row that is not written yet, read like one that is."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


def idempotency_row(key: str, request: str | None, stream: str, first: int, last: int) -> dict[str, Any]:
    """Return the row that remembers what a keyed call led to."""
    return {"key": key, "request": request or "", "stream": stream, "first_version": first, "last_version": last}


def _code(result: Outcome | Exception) -> str | None:
    if isinstance(result, Refused):
        return result.rejected.code
    if isinstance(result, VersionConflict):
        return "version-conflict"
    return "idempotency-mismatch" if isinstance(result, IdempotencyMismatch) else None


def _asked_by(cause: Cause) -> Attributes:
    return {
        "tenant": cause.tenant,
        "project": cause.project,
        "correlation": cause.correlation,
        "actor": cause.actor,
        "token": cause.token,
        "idempotency": cause.idempotency,
        "request": cause.request,
        "traceparent": cause.traceparent,
    }


def _caused_by(event: Event[Any], position: str | None) -> Attributes:
    return {
        "tenant": event.tenant,
        "project": event.project,
        "correlation": event.correlation,
        "causation": event.id,
        "input": position,
        "actor": "system",
        "traceparent": event.traceparent,
    }
