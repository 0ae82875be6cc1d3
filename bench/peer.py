"""The `eventsourcing` library on the same disk in the same run: what there is to beat."""

import tempfile
import time
from pathlib import Path
from uuid import uuid4

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

from bench.facts import facts
from bench.figures import Figure
from qm_events import encode

BATCHES = {1: 300, 10: 3_000, 100: 20_000}
"""Events in one insert -> events to insert."""
_PAGE = 1_000


def peer(quick: bool) -> list[Figure]:
    """Insert events durably in batches, then page through all notifications."""
    state = encode(next(facts(1)))
    figures = []
    with tempfile.TemporaryDirectory(prefix="qm-bench-") as folder:
        recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(Path(folder) / "peer.sqlite")))
        recorder.create_table()
        for batch, count in BATCHES.items():
            figures.append(_inserts(recorder, state, batch, count // (10 if quick else 1)))
        figures.append(_notifications(recorder))
        recorder.datastore.close()
    return figures


def _inserts(recorder: SQLiteApplicationRecorder, state: bytes, batch: int, count: int) -> Figure:
    batches = [
        [StoredEvent(uuid4(), version, "order.submitted.v1", state) for version in range(batch)]
        for _ in range(max(count // batch, 1))
    ]
    began = time.perf_counter()
    for events in batches:
        recorder.insert_events(events)
    took = time.perf_counter() - began
    return Figure(f"eventsourcing: insert_events, batch {batch}", len(batches) * batch / took, "events/s")


def _notifications(recorder: SQLiteApplicationRecorder) -> Figure:
    began, seen, after = time.perf_counter(), 0, 0
    while page := recorder.select_notifications(after + 1, _PAGE):
        seen, after = seen + len(page), page[-1].id
    return Figure("eventsourcing: notifications, raw", seen / (time.perf_counter() - began), "events/s")


def ratios(figures: list[Figure]) -> list[Figure]:
    """Return how often the product does what the library does, where both were measured."""
    values = {figure.name: figure.value for figure in figures}
    pairs = {
        "durable appends, 512 waiters": "eventsourcing: insert_events, batch 1",
        "raw replay": "eventsourcing: notifications, raw",
    }
    return [
        Figure(f"{ours} / {theirs}", values[ours] / values[theirs], "times")
        for ours, theirs in pairs.items()
        if ours in values and theirs in values
    ]
