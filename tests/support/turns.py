"""The order of the queue, checked on the topics alone: whoever asks the same in the same project is served first come
first served, whatever was killed meanwhile."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tests.support.topics import Fact

_ASKED = ("tenant", "project", "priority", "specification", "count", "topology", "duration_seconds", "expires_at")
"""What of a request decides when and where it may be placed."""
_LEFT = ("allocation.allocated", "allocation.withdrawn")


def overtaken(facts: Sequence[Fact]) -> Iterator[str]:
    """Yield each order that got cards while one waited that was submitted earlier and asks the same."""
    queued = {fact.data["order"]: fact for fact in facts if fact.type == "allocation.queued"}
    left: dict[str, Fact] = {}
    for fact in facts:
        if fact.type in _LEFT:
            left.setdefault(fact.data["order"], fact)
    lines: dict[str, list[Fact]] = defaultdict(list)
    for fact in queued.values():
        lines[_line(fact.data["request"])].append(fact)
    for line in lines.values():
        line.sort(key=lambda fact: (_time(fact.data["submitted_at"]), fact.data["order"]))
        for at, first in enumerate(line):
            for later in line[at + 1 :]:
                if _passes(first, later, left):
                    yield f"order {later.data['order']} was served before {first.data['order']}, which came first"


def _line(request: Mapping[str, Any]) -> str:
    return json.dumps([request.get(name) for name in _ASKED], sort_keys=True)


def _passes(first: Fact, later: Fact, left: Mapping[str, Fact]) -> bool:
    served, gone = left.get(later.data["order"]), left.get(first.data["order"])
    if served is None or served.type != "allocation.allocated":
        return False
    at = _written(served)
    # What was decided in one step has one time.
    return _written(first) < at and (gone is None or _written(gone) > at)


def _written(fact: Fact) -> datetime:
    return _time(fact.body["time"])


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
