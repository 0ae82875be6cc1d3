"""The log in one SQLite file, for a start without servers. Durable, shared by processes, nothing to run.

Appends that come while a commit runs are gathered and go into the next one: the disk is asked to sync once for many
publishers. Offsets have no holes here; nobody should rely on that.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from qm_events.registry import Topic
from qm_service.log import LogUnavailable, Message, Position, Record, TopicMisconfigured
from qm_service.log_rules import shares, target_of

LIMIT_SECONDS = 10.0
BUSY_SECONDS = 5.0
POLL_SECONDS = 0.1
"""How late a record of another process may be seen; those of this process wake the reader at once."""
WAITING_MESSAGES = 50_000
"""More than these are refused rather than kept in memory."""

_OFFSET_BITS = 40
_OFFSET = (1 << _OFFSET_BITS) - 1

# `place` is the id of the partition and the offset in one integer: the table needs no other index.
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA wal_autocheckpoint = 4000;
CREATE TABLE IF NOT EXISTS partitions (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL, head INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, partition));
CREATE TABLE IF NOT EXISTS records (
    place INTEGER PRIMARY KEY, type TEXT NOT NULL, subject TEXT NOT NULL, version INTEGER NOT NULL,
    value BLOB NOT NULL);
"""

T = TypeVar("T")
Row = tuple[int, str, str, int, bytes]
"""Partition id, type, subject, version, value."""


class SqliteLog:
    """An EventLog in the file at `path`. Many processes may share the file; one object serves one event loop.

    `durable=False`: no append waits for the disk; a killed process loses nothing then, a machine without power may.
    """

    def __init__(self, path: Path | str, *, durable: bool = True) -> None:
        self._writer = _FileThread(_File(Path(path), durable=durable))
        # A read takes microseconds and waits for nobody; a hop to a thread would take longer.
        self._reader = _File(Path(path), durable=durable)
        self._ids: dict[str, list[int]] = {}
        self._heads: dict[int, int] = {}
        """What is known without asking the file: other processes may be further."""
        self._turn = 0
        self._grown = asyncio.Event()
        self._rows: list[Row] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._committing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Nothing to do: the file, and its folder, are made with the first use."""

    async def close(self) -> None:
        """Commit what was handed over and let go of the file."""
        if self._committing:
            await self._committing
        await self._writer.close()
        self._reader.close()

    async def ensure_topics(self, topics: Iterable[Topic]) -> None:
        """Create what is missing. Raises TopicMisconfigured for another number of partitions."""
        wanted = list(topics)
        await self._writer.run(_create, wanted)
        for topic in wanted:
            if (there := len(await self._partitions(topic.name))) != topic.partitions:
                raise TopicMisconfigured(f"{topic.name}: partitions is {there}, must be {topic.partitions}")

    async def publish(self, messages: Sequence[Message]) -> None:
        """Append all in one commit, shared with whoever publishes at the same time."""
        for topic in {message.topic for message in messages}:
            await self._partitions(topic)
        if len(self._rows) + len(messages) > WAITING_MESSAGES:
            raise LogUnavailable(f"more than {WAITING_MESSAGES} messages wait to be written")
        for m in messages:
            ids = self._ids[m.topic]
            self._rows.append((ids[target_of(m, len(ids))], m.type, m.subject, m.version, m.value))
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit())
        await done

    async def read(self, position: Position, limit: int, wait_seconds: float = 0.0) -> list[Record]:
        """Return up to `limit` records from `position` on. Raises PositionLost."""
        topics = {topic for topic, _ in position}
        loop = asyncio.get_running_loop()
        until, look = loop.time() + wait_seconds, 0.0
        while True:
            grown, ends = self._grown, await self._known_ends(topics)
            # A commit of this process wakes all readers, few of which it concerns: they do not ask the file each time.
            if loop.time() >= look and not _settled(position, ends):
                ends, look = await self.ends(topics), loop.time() + POLL_SECONDS
            if found := await self._take(position, ends, limit):
                return found
            if (left := until - loop.time()) <= 0:
                return []
            with suppress(TimeoutError):
                await asyncio.wait_for(grown.wait(), min(left, POLL_SECONDS))

    async def ends(self, topics: Iterable[str]) -> Position:
        """Return the offset after the last record of every partition."""
        self._learn(self._reader.use(_heads))
        return await self._known_ends(topics)

    async def starts(self, topics: Iterable[str]) -> Position:
        """Return 0 for every partition: nothing is ever deleted."""
        return {(topic, i): 0 for topic in topics for i, _ in enumerate(await self._partitions(topic))}

    async def blocked(self) -> Position:
        """Return nothing: what is not committed has no offset yet."""
        return {}

    async def _partitions(self, topic: str) -> list[int]:
        if topic not in self._ids:
            if not (found := self._reader.use(_partition_ids, topic)):
                raise LogUnavailable(f"topic {topic} is missing")
            self._ids[topic] = found
        return self._ids[topic]

    async def _known_ends(self, topics: Iterable[str]) -> Position:
        ids = [(topic, i, at) for topic in topics for i, at in enumerate(await self._partitions(topic))]
        return {(topic, i): self._heads.get(at, 0) for topic, i, at in ids}

    def _learn(self, heads: Mapping[int, int]) -> None:
        # The two threads answer in any order: an older answer must not undo a newer one.
        self._heads |= {at: head for at, head in heads.items() if head > self._heads.get(at, 0)}

    async def _take(self, position: Position, ends: Position, limit: int) -> list[Record]:
        self._turn += 1
        wanted = [
            (topic, partition, (self._ids[topic][partition] << _OFFSET_BITS) + position[topic, partition], count)
            for (topic, partition), count in shares(position, ends, limit, self._turn).items()
        ]
        return self._reader.use(_records, wanted) if wanted else []

    async def _commit(self) -> None:
        while self._waiting:
            rows, waiting, self._rows, self._waiting = self._rows, self._waiting, [], []
            error = None
            try:
                self._learn(await self._writer.run(_append, rows))
            except LogUnavailable as failure:
                error = failure
            for done in waiting:
                if not done.done():
                    done.set_exception(error) if error else done.set_result(None)
            self._grown.set()
            self._grown = asyncio.Event()
        self._committing = None


def _settled(position: Position, ends: Position) -> bool:
    """Return whether `ends`, which may be old, has something to read and does not contradict `position`."""
    behind = [ends[at] - offset for at, offset in position.items() if at in ends]
    return max(behind, default=0) > 0 and min(behind) >= 0


class _File:
    """A connection, opened when needed and again after an error."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self.path = path
        self._synchronous = "FULL" if durable else "OFF"
        self._db: sqlite3.Connection | None = None

    def use(self, work: Callable[..., T], *args: object) -> T:
        """Return `work(connection, *args)`. Raises LogUnavailable."""
        try:
            if self._db is None:
                self._db = _open(self.path)
                self._db.execute(f"PRAGMA synchronous = {self._synchronous}")
            return work(self._db, *args)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise LogUnavailable(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Let go of the file; what was not committed is gone."""
        if self._db is not None:
            self._db.close()
            self._db = None


class _FileThread:
    """A file in a thread of its own: its users wait for the disk, the loop does not."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, "log")

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Return `work(connection, *args)`. Raises LogUnavailable, at the latest after LIMIT_SECONDS."""
        try:
            return await asyncio.wait_for(self._submit(self._file.use, work, *args), LIMIT_SECONDS)
        except TimeoutError as error:
            raise LogUnavailable(f"{self._file.path} does not answer") from error

    async def close(self) -> None:
        """Let go of the file."""
        await self._submit(self._file.close)
        self._thread.shutdown()

    def _submit(self, work: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *args)


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        db.executescript(_SCHEMA)
    except sqlite3.Error:
        db.close()
        raise
    return db


def _create(db: sqlite3.Connection, topics: Sequence[Topic]) -> None:
    # IMMEDIATE, here and below: a transaction that reads first and then writes fails at once when another one wrote.
    db.execute("BEGIN IMMEDIATE")
    known = {name for (name,) in db.execute("SELECT DISTINCT topic FROM partitions")}
    missing = [(topic.name, i) for topic in topics if topic.name not in known for i in range(topic.partitions)]
    db.executemany("INSERT INTO partitions (topic, partition) VALUES (?, ?)", missing)
    db.execute("COMMIT")


def _append(db: sqlite3.Connection, rows: Sequence[Row]) -> dict[int, int]:
    db.execute("BEGIN IMMEDIATE")
    heads = _heads(db)
    places = []
    for at, *columns in rows:
        places.append(((at << _OFFSET_BITS) + heads[at], *columns))
        heads[at] += 1
    db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", places)
    db.executemany("UPDATE partitions SET head = ? WHERE id = ?", [(heads[at], at) for at in {row[0] for row in rows}])
    db.execute("COMMIT")
    return heads


def _heads(db: sqlite3.Connection) -> dict[int, int]:
    return dict(db.execute("SELECT id, head FROM partitions").fetchall())


def _partition_ids(db: sqlite3.Connection, topic: str) -> list[int]:
    return [at for (at,) in db.execute("SELECT id FROM partitions WHERE topic = ? ORDER BY partition", (topic,))]


def _records(db: sqlite3.Connection, wanted: Sequence[tuple[str, int, int, int]]) -> list[Record]:
    # Each count ends before the head, so a range never runs into the next partition.
    query = "SELECT place, type, subject, version, value FROM records WHERE place >= ? ORDER BY place LIMIT ?"
    return [
        Record(topic, partition, place & _OFFSET, *columns)
        for topic, partition, first, count in wanted
        for place, *columns in db.execute(query, (first, count))
    ]
