"""Reading the topics of others: at most one batch ahead of the writer, from positions that only the database knows."""

from collections.abc import Sequence

from sqlalchemy import select

from qm_service.database import Database
from qm_service.log import EventLog, Position, PositionLost, Record, first_positions
from qm_service.plan import Plan
from qm_service.schema import Schema
from qm_service.writes import REPLAY, Writes, load_cursor, load_positions


class ReplayNeeded(Exception):
    """The database is empty but the own topics are not, or a replay did not come to its end: rebuild it first, or facts
    would be decided twice."""


class Inputs:
    """The reading end. `halted`: partitions that are not read, and why."""

    def __init__(self, plan: Plan, log: EventLog) -> None:
        self.position: Position = {}
        self.halted: dict[tuple[str, int], str] = {}
        self.at_end = not plan.inputs
        self._log = log

    @property
    def reads(self) -> bool:
        """There is a partition that is read."""
        return self.position.keys() - self.halted.keys() != set()

    def reset(self, position: Position) -> None:
        """Read on from here, also where it was halted: what was read ahead is void."""
        self.position = dict(position)
        self.halted = {}

    def halt(self, halted: dict[tuple[str, int], str]) -> None:
        """Read these partitions no further."""
        self.halted |= halted
        for place in halted:
            self.position.pop(place, None)

    async def read(self, limit: int, wait_seconds: float) -> Sequence[Record]:
        """Return the next records. Raises LogUnavailable, PositionLost."""
        position = {place: offset for place, offset in self.position.items() if place not in self.halted}
        if not position:
            return ()
        records = await self._log.read(position, limit, wait_seconds)
        self.at_end = not records
        for record in records:
            self.position[record.topic, record.partition] = record.offset + 1
        return records


async def seed(plan: Plan, schema: Schema, database: Database, log: EventLog, writes: Writes) -> None:
    """Give a topic that was never read its first position.

    Raises PositionLost for a partition without a position in a topic that was read before; ReplayNeeded.
    """
    async with database.read() as tx:
        positions = await load_positions(tx, schema)
        facts = (await tx.execute(select(schema.events.c.id).limit(1))).first()
        half = await load_cursor(tx, schema, REPLAY) is not None
    if half:
        raise ReplayNeeded(f"a replay of {plan.definition.name} goes on or was broken off: then replay it with --drop")
    fresh = not positions and facts is None
    if fresh:
        ends = await log.ends([topic.name for topic in plan.own])
        if any(ends.values()):
            raise ReplayNeeded(f"the database of {plan.definition.name} is empty, its topics are not: replay it first")
    wanted = first_positions(plan.inputs)
    known = {topic for topic, _ in positions}
    lost = [
        f"{topic}/{partition}" for topic, partition in wanted if topic in known and (topic, partition) not in positions
    ]
    if lost:
        raise PositionLost(f"{', '.join(lost)}: no position, though others of the topic have one")
    new = {place: 0 for place in wanted if place[0] not in known}
    if new or fresh:
        async with database.write() as tx:
            await writes.positions(tx, new)
            if fresh:
                await writes.built(tx, plan.definition.projections)
