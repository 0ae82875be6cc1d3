"""The simulated twins: one cloud a service model that behaves as real ones do, and misbehaves as it is told.

The cloud is not part of the product, so it has a file of its own, written at each effect: a killed provisioner finds it
as it left it, and so does a stand-by that takes over. As in real clouds names are not unique, an answer may be lost
after the effect, and deletion takes its time.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from qm_events.specs import Probe
from qm_provisioner.alarms import Alarms
from qm_provisioner.behaviour import NORMAL, Behaviour
from qm_provisioner.ports import SHOWN, BackendError, BackendRefused, Check, Ref, Secret, Site, Thing, ThingState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)
_LAST_US = 2**63 - 1
"""When a thing is gone that nobody deleted."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS things (
  id INTEGER PRIMARY KEY, model TEXT NOT NULL, order_id TEXT NOT NULL, step TEXT NOT NULL, unit INTEGER NOT NULL,
  spec TEXT NOT NULL, active_us INTEGER NOT NULL, gone_us INTEGER, works INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS things_of ON things (order_id, step);
CREATE TABLE IF NOT EXISTS behaviours (model TEXT, step TEXT, body TEXT NOT NULL, PRIMARY KEY (model, step));
CREATE TABLE IF NOT EXISTS calls (name TEXT PRIMARY KEY, n INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS broken (card TEXT PRIMARY KEY);
"""
_FIND = """
SELECT id, order_id, step, unit, spec, active_us, gone_us FROM things
WHERE model = ? AND order_id = ? AND step = ? AND coalesce(gone_us, ?) > ? ORDER BY id
"""
_LIST = """
SELECT id, order_id, step, unit, spec, active_us, gone_us FROM things
WHERE model = ? AND coalesce(gone_us, ?) > ? ORDER BY id
"""


class SimulatedClouds:
    """The file with all clouds; `:memory:` for clouds that end with the process."""

    def __init__(self, path: Path | str) -> None:
        self._path = path

    @cached_property
    def db(self) -> sqlite3.Connection:
        """The open file."""
        db = sqlite3.connect(self._path, isolation_level=None)
        # A crash of the process loses nothing that was committed, so no commit has to wait for the disk.
        db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA busy_timeout=5000; {_SCHEMA}")
        return db

    async def start(self) -> None:
        """Open the file."""
        _ = self.db

    async def stop(self) -> None:
        """Close the file."""
        self.db.close()
        del self.db

    def idle(self) -> bool:
        """Return True: nothing happens here by itself."""
        return True

    def script(self, service_model: str, steps: Mapping[str, Behaviour]) -> None:
        """Replace the behaviour of a service model: by step, `undo:<step>` or `probe:<check>`. Counts start anew."""
        with self.db:
            self.db.execute("BEGIN")
            self.db.execute("DELETE FROM behaviours WHERE model = ?", (service_model,))
            self.db.execute("DELETE FROM calls WHERE name LIKE ?", (f"{service_model}/%",))
            rows = [(service_model, step, behaviour.model_dump_json()) for step, behaviour in steps.items()]
            self.db.executemany("INSERT INTO behaviours VALUES (?, ?, ?)", rows)

    def break_card(self, card: str, broken: bool) -> None:
        """Let a card fail, or mend it."""
        statement = "INSERT OR IGNORE INTO broken VALUES (?)" if broken else "DELETE FROM broken WHERE card = ?"
        self.db.execute(statement, (card,))

    def broken(self) -> frozenset[str]:
        """Return the cards that fail."""
        return frozenset(card for (card,) in self.db.execute("SELECT card FROM broken"))


class SimulatedBackend:
    """The cloud of one service model (`Backend`)."""

    def __init__(self, clouds: SimulatedClouds, model: str, alarms: Alarms) -> None:
        self._clouds = clouds
        self._model = model
        self._alarms = alarms

    async def find(self, order: str, step: str) -> Sequence[Thing]:
        """See `Backend.find`."""
        return self._things(_FIND, self._model, order, step)

    async def create(self, ref: Ref, spec: Mapping[str, Any]) -> None:
        """See `Backend.create`."""
        behaviour = self._behaviour(ref.step)
        calls = await self._fail(behaviour, ref.name)
        active = _us(self._alarms.now() + timedelta(seconds=behaviour.delay_seconds))
        row = (self._model, ref.order, ref.step, ref.unit, json.dumps(spec), active, not behaviour.lie_about_ready)
        for _ in range(2 if behaviour.answer_twice else 1):
            self._clouds.db.execute(
                "INSERT INTO things (model, order_id, step, unit, spec, active_us, works) VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
        if calls <= behaviour.lose_answers:
            raise BackendError(f"{ref.name}: the answer was lost")

    async def delete(self, thing: Thing) -> None:
        """See `Backend.delete`."""
        behaviour = self._behaviour(f"undo:{thing.ref.step}")
        calls = await self._fail(behaviour, f"undo:{thing.ref.name}")
        if behaviour.lie_about_ready:
            return
        gone = _us(self._alarms.now() + timedelta(seconds=behaviour.delay_seconds))
        self._clouds.db.execute("UPDATE things SET gone_us = ? WHERE id = ? AND gone_us IS NULL", (gone, int(thing.id)))
        if calls <= behaviour.lose_answers:
            raise BackendError(f"{thing.ref.name}: the answer was lost")

    async def changed(self, order: str, step: str) -> None:
        """See `Backend.changed`: return at the next instant at which one of the things becomes something else."""
        now = _us(self._alarms.now())
        rows = self._clouds.db.execute(
            "SELECT active_us, gone_us FROM things WHERE model = ? AND order_id = ? AND step = ?",
            (self._model, order, step),
        )
        times = [time for row in rows for time in row if time is not None and time > now]
        if times:
            await self._alarms.until(_EPOCH + timedelta(microseconds=min(times)))

    async def probe(self, check: Check, site: Site, secret: Secret | None) -> Probe:
        """See `Backend.probe`."""
        key = f"probe:{check.name}"
        behaviour = self._behaviour(key)
        await self._alarms.until(self._alarms.now() + timedelta(seconds=behaviour.delay_seconds))
        await self._fail(behaviour, f"{key}:{site.order}")
        rows = self._clouds.db.execute(
            "SELECT step, spec, works FROM things WHERE model = ? AND order_id = ? AND coalesce(gone_us, ?) > ?",
            (self._model, site.order, _LAST_US, _us(self._alarms.now())),
        )
        things = [(step, json.loads(spec), bool(works)) for step, spec, works in rows]
        if secret is not None and not any(works and spec.get("proof") == secret.proof for _, spec, works in things):
            return Probe(name=check.name, passed=False, detail="the credential is refused")
        return self._verdict(check, site, things)

    def _verdict(self, check: Check, site: Site, things: Sequence[tuple[str, Mapping[str, Any], bool]]) -> Probe:
        there = {step for step, _, _ in things}
        idle = [(step, spec) for step, spec, works in things if step in check.through and not works]
        broken = self._clouds.broken() if check.of_cards else frozenset()
        faulty = {card for _, spec in idle for card in spec.get("cards", ())} | (broken & set(site.cards))
        faults = [f"{step} is not there" for step in check.through if step not in there]
        faults += [f"{step} does not work" for step in dict.fromkeys(step for step, _ in idle)]
        faults += [f"card {card} does not answer" for card in site.cards if card in broken]
        suspect = tuple(card for card in site.cards if card in faulty)
        return Probe(name=check.name, passed=not faults, detail="; ".join(faults), suspect=suspect)

    async def list_all(self) -> Sequence[Thing]:
        """See `Backend.list_all`."""
        return self._things(_LIST, self._model)

    def _things(self, query: str, *values: str) -> list[Thing]:
        now = _us(self._alarms.now())
        return [_thing(row, now) for row in self._clouds.db.execute(query, (*values, _LAST_US, now))]

    def _behaviour(self, step: str) -> Behaviour:
        row = self._clouds.db.execute(
            "SELECT body FROM behaviours WHERE model = ? AND step = ?", (self._model, step)
        ).fetchone()
        return NORMAL if row is None else Behaviour.model_validate_json(row[0])

    async def _fail(self, behaviour: Behaviour, name: str) -> int:
        """Misbehave before any effect; return which call for this name it is."""
        if behaviour is NORMAL:
            return 1
        n: int = self._clouds.db.execute(
            "INSERT INTO calls VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET n = n + 1 RETURNING n",
            (f"{self._model}/{name}",),
        ).fetchone()[0]
        if behaviour.hang:
            await self._alarms.until(_NEVER)
        if behaviour.fail_for_good:
            raise BackendRefused(f"{name}: refused for good")
        if n <= behaviour.fail_times:
            raise BackendError(f"{name}: failed, call {n}")
        return n


def _us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _thing(row: tuple[Any, ...], now: int) -> Thing:
    id_, order, step, unit, spec, active, gone = row
    state = ThingState.DELETING if gone is not None else ThingState.ACTIVE if active <= now else ThingState.BUILDING
    return Thing(str(id_), Ref(order, step, unit), state, json.loads(spec).get(SHOWN, {}))
