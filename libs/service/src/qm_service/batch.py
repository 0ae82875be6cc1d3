"""One step of the writer: work items in, changes out. Decides and folds in memory; writes nothing."""

import logging
from collections import deque
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from qm_events import Event, decode, encode, new_event
from qm_events.ids import PLATFORM
from qm_service.attributes import Attributes, asked_by, audit_of, caused_by, continued, idempotency_row
from qm_service.commands import SYSTEM, Cause, IdempotencyMismatch, Outcome, Refused, VersionConflict
from qm_service.database import Database, DatabaseUnavailable
from qm_service.items import Changes, Command, Input, Item
from qm_service.memory import Key, Memory, Stream, Target
from qm_service.model import Act, Context, Rejected
from qm_service.park import WAITS, ParkPolicy, failed_row, parked_row
from qm_service.store import Row, row_of
from qm_service.trace import consumed

_log = logging.getLogger(__name__)

_SETTLED = 250
"""After so many facts a batch settles no more; what is left is settled by the next one. So whoever calls meanwhile
waits for some tens of milliseconds, and not until the last of fifty thousand orders was told something."""


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
        self._used: dict[str, Any] = {}
        self._walks: dict[str | None, Event[Any]] = {}
        """Order -> its last fact in this batch."""

    async def run(self, items: Sequence[Item], *, settle: bool = True) -> Changes:
        """Handle all items in order, then settle. Raises what a rule raised; `current` tells at which item."""
        for item in items:
            if isinstance(item, Input):
                self._open(item)
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
        if item.error is not None or item.discard or not self._plan.handles(item.record.type):
            return
        try:
            item.event = decode(item.record.value, item.record.type)
            item.targets = self._memory.targets(item.event)
            reaction = self._plan.reactions.get(item.event.data.wire_type)
            item.acts = tuple(reaction(item.event)) if reaction else ()
        except Exception as error:
            item.fail(error)

    async def _prefetch(self, items: Sequence[Item]) -> None:
        acts: list[Act] = []
        keys: list[Key] = []
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
            keys += [(name, key) for name, key, _ in item.targets]
        unseen = keyed or not self._memory.has_seen(foreign)
        wanted = self._memory.wanted(acts, keys)
        if not unseen and self._memory.has(acts, wanted):
            return
        try:
            async with self._database.read() as tx:
                if unseen:
                    await self._load_seen(tx, foreign, keyed)
                await self._memory.load(tx, acts, wanted)
        except DatabaseUnavailable:
            raise
        except Exception:
            # Something stored cannot be read. Whoever needs it finds out, and is to blame; the others are not.
            _log.warning("loading ahead failed", exc_info=True)

    async def _load_seen(self, tx: AsyncConnection, foreign: Sequence[str], keyed: Collection[str]) -> None:
        table = self._memory.schema.idempotency
        await self._memory.load_seen(tx, foreign)
        if keyed:
            rows = await tx.execute(select(table).where(table.c.key.in_(keyed)))
            self._used = {row.key: row for row in rows}

    async def _load(self, acts: Sequence[Act]) -> None:
        wanted = self._memory.wanted(acts)
        if not self._memory.has(acts, wanted):
            async with self._database.read() as tx:
                await self._memory.load(tx, acts, wanted)

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
            self._set_aside(item, item.error or WAITS)
        elif record.version > last + 1:
            self._halt(item, f"{record.position}: version {record.version} of {record.subject} follows version {last}")
        elif record.version == last + 1:
            await self._fact(item)
        if place not in changes.halted:
            changes.positions[place] = record.offset + 1

    async def _redrive(self, item: Input, row: int) -> None:
        """Try a parked record again; the position of its partition is far beyond it and stays."""
        record, last = item.record, self._memory.seen[item.record.subject]
        if record.version > last + 1:
            return
        if record.version == last + 1:
            if item.error is not None:
                self._changes.failed.append(failed_row(row, item.error))
                return
            await self._fact(item)
            if item.discard:
                self._changes.discarded.append({"stream": record.subject, "version": record.version})
        self._changes.unparked[row] = record.subject

    async def _fact(self, item: Input) -> None:
        record = item.record
        self._memory.seen[record.subject] = self._changes.seen[record.subject] = record.version
        if item.event is None:
            return
        self._walks[item.event.correlation] = item.event
        with consumed(self._plan.definition.name, item.event, self._now):
            await self._fold(item.event)
            for act in item.acts:
                await self._act(act, caused_by(item.event, record.position))
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
        decision = await self._act(act, asked_by(cause))
        if isinstance(decision, Rejected):
            return Refused(decision)
        outcome = Outcome(act.stream, stream.version, decision)
        if decision and cause.idempotency is not None:
            row = idempotency_row(cause.idempotency, cause.request, act.stream, decision[0].version, stream.version)
            self._changes.idempotency.append(row)
            self._used[cause.idempotency] = Row(row)
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
        if act.needs:
            await self._load([act])
        decider = self._plan.deciders[act.stream.partition("/")[0]]
        now = max(self._now, stream.time)
        decision = decider.decide(stream.state, act.command, Context(now, self._memory.view, self._memory.index))
        if isinstance(decision, Rejected):
            return decision
        for name in ("tenant", "project", "correlation"):
            if (value := getattr(act, name)) is not None:
                attributes[name] = value
        continued(attributes, act.stream, stream, self._walks)
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
        stream.traceparent = event.traceparent
        self._walks[event.correlation] = event
        self._changes.events.append(event)
        self._changes.rows.append(row_of(event, encode(event)))
        return event

    async def _fold(self, event: Event[Any], *, own: bool = False) -> None:
        targets = self._memory.targets(event)
        if own:
            self._learn(event, targets)
        if unknown := self._memory.unknown(targets):
            async with self._database.read() as tx:
                await self._memory.load_documents(tx, unknown)
        self._memory.fold(event, targets, self._changes.documents)

    def _learn(self, event: Event[Any], targets: Sequence[Target]) -> None:
        kind, _, key = event.subject.partition("/")
        names = {name for name, target, _ in targets if target == key}
        self._memory.follow.setdefault(kind, set()).update(names)

    async def _follow(self) -> None:
        """Run the reactions to own facts, and to the facts that these lead to."""
        while self._pending:
            event = self._pending.popleft()
            reaction = self._plan.reactions.get(event.data.wire_type)
            for act in reaction(event) if reaction else ():
                await self._act(act, caused_by(event, event.input))

    async def _settle(self) -> None:
        settle = self._plan.definition.settle
        began = len(self._changes.events)
        while len(self._changes.events) < began + _SETTLED:
            acts = settle(Context(self._now, self._memory.view, self._memory.index))
            if not acts:
                return
            await self._load(acts)
            before = len(self._changes.events)
            for act in acts:
                await self._act(act, {"actor": SYSTEM})
                await self._follow()
            if len(self._changes.events) == before:
                return
        self._changes.unsettled = True

    async def _audit(self, command: Command, result: Outcome | Exception, before: int, after: int) -> None:
        cls = self._plan.audit
        if cls is None:
            return
        cause, tenant = command.cause, command.act.tenant or command.cause.tenant or PLATFORM
        name = f"audit-{self._plan.definition.name}/{tenant}"
        stream = await self._stream(name)
        data = audit_of(cls, command, result, before, after, self._now)
        attributes = {"tenant": tenant, "actor": cause.actor, "token": cause.token, "traceparent": cause.traceparent}
        event = self._append(name, stream, max(self._now, stream.time), data, attributes)
        await self._fold(event, own=True)
