"""Facts for readers without Kafka: which of them a caller may see, what is shown, and how far he has come.

The feed of one order is read from the projection `facts`; its cursor is the last version seen of each section of the
record. The feed of everything is read from the log; its cursor is the offset to read next of each partition. Both
follow from the topics alone, so a cursor outlives any rebuild, and nothing that was read is read again.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from qm_catalog.projections import FACTS, Fact
from qm_catalog.request_record import Record
from qm_events.ids import PLATFORM
from qm_events.registry import TOPICS
from qm_events.specs import Role
from qm_service.access import PLATFORM_ROLES
from qm_service.caller import Principal
from qm_service.log import EventLog, Position, first_positions
from qm_service.log import Record as LogRecord
from qm_service.reader import Reader

Json = dict[str, Any]
Cursor = tuple[int, ...]

ORDER_TOPICS = {
    "orders": "asked",
    "admissions": "vetted",
    "allocations": "placed",
    "environments": "built",
    "usage": "metered",
}
"""Topic -> section of the record, in the order of the numbers in the cursor of an order."""

_HIDDEN = ("token", "idempotency", "request")
"""Bookkeeping of calls."""
_AUDITORS = frozenset({Role.TENANT_ADMIN, *PLATFORM_ROLES})
_PLACES: Sequence[tuple[str, int]] = tuple(first_positions(TOPICS))
_SCAN = 5_000
"""Records that one page looks at, at most: a page of a caller who may see little is short, never slow."""
_BATCH = 500
_FACTS_MAX = 100_000


@dataclass(slots=True)
class Slice:
    """Some facts, each with the cursor after it; `more` tells whether there may be more at once."""

    cursor: Cursor
    more: bool = False
    facts: list[tuple[Json, Cursor]] = field(default_factory=list)


def shown(body: Json) -> Json:
    """Return a fact as the feed shows it."""
    return {name: value for name, value in body.items() if name not in _HIDDEN}


def may_see(caller: Principal, body: Json) -> bool:
    """Tell whether the caller may see a fact: he has a role where it belongs; calls of others are for auditors."""
    roles = caller.roles(body.get("tenant") or PLATFORM, body.get("project"))
    return bool(roles & _AUDITORS if ".access_audited." in body["type"] else roles)


# ---- one order


def versions(record: Record) -> Cursor:
    """Return the cursor that has seen every fact of a record."""
    return tuple(getattr(record, section).version for section in ORDER_TOPICS.values())


async def facts_of_order(docs: Reader, order: str, after: Cursor, limit: int) -> Slice:
    """Return the next facts of an order: by time, those of one topic in order."""
    seen = dict(zip(ORDER_TOPICS, after, strict=True))
    rows: list[tuple[str, Fact]] = await docs.page(FACTS, {"order": order}, limit=_FACTS_MAX)
    numbered = [(_place(fact), number, fact) for number, fact in _numbered(rows)]
    new = sorted((row for row in numbered if row[1] > seen[row[2].topic]), key=lambda row: (row[0], row[1]))
    found = Slice(after, more=len(new) > limit)
    for _, number, fact in new[:limit]:
        seen[fact.topic] = number
        found.cursor = tuple(seen.values())
        found.facts.append((shown(orjson.loads(fact.body)), found.cursor))
    return found


def _numbered(rows: Sequence[tuple[str, Fact]]) -> Iterator[tuple[int, Fact]]:
    """Yield each fact with its number in its topic. Usage has a stream for each allocation: one writer tells them all,
    so that their times number them."""
    usage = sorted((row for row in rows if row[1].topic == "usage"), key=lambda row: (row[1].time, row[0]))
    yield from ((number, fact) for number, (_, fact) in enumerate(usage, 1))
    yield from ((fact.version, fact) for _, fact in rows if fact.topic != "usage")


_ORDER_OF_TOPICS = list(ORDER_TOPICS)


def _place(fact: Fact) -> tuple[datetime, int]:
    return fact.time, _ORDER_OF_TOPICS.index(fact.topic)


# ---- everything


def cursor_of(position: Position) -> Cursor:
    """Return the cursor of a place in the log."""
    return tuple(position[place] for place in _PLACES)


async def facts_of_log(log: EventLog, caller: Principal, after: Cursor, limit: int) -> Slice:
    """Return the next facts that the caller may see. Raises LogUnavailable, PositionLost."""
    position, found = dict(zip(_PLACES, after, strict=True)), Slice(after)
    for _ in range(_SCAN // _BATCH):
        records = await log.read(position, _BATCH)
        for record in records:
            position[record.topic, record.partition] = record.offset + 1
            _take(found, record, caller, position)
            if len(found.facts) == limit:
                return Slice(cursor_of(position), True, found.facts)
        if not records:
            return Slice(cursor_of(position), False, found.facts)
    return Slice(cursor_of(position), True, found.facts)


def _take(found: Slice, record: LogRecord, caller: Principal, position: Position) -> None:
    # Somebody else may have put bytes on a topic that are no fact; they are nobody's to see.
    with suppress(orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        body = orjson.loads(record.value)
        if may_see(caller, body):
            found.facts.append((shown(body), cursor_of(position)))
