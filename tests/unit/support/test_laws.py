"""The checker of the laws finds what it is there to find: each way to break a lawful history, and nothing else."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest

from tests.support import laws
from tests.support.topics import Fact

Told = dict[str, Any]
HOUR = 3_600_000_000
_CLAIM = {"cards": 2, "cards/a": 2, "cards/b": 2}
_ON_N = {"node": "n", "allocation": "l"}


def told(topic: str, stream: str, minute: int, kind: str, **data: Any) -> Told:
    """Return a fact in short."""
    return {"topic": topic, "stream": stream, "minute": minute, "type": kind, "data": data}


def at(minute: int) -> str:
    """Return an instant."""
    return f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"


def quota(minute: int, kind: str, amounts: Mapping[str, int], **more: Any) -> Told:
    """Return a fact of the ledger."""
    data = {"order": "o", "scopes": ["t"], "amounts": {"values": dict(amounts)}, **more}
    return told("admissions", "admission/o", minute, f"quota.{kind}", **data)


def usage(meter: str, hours: int) -> Told:
    """Return a line of the bill."""
    line = {"order": "o", "meter": meter, "accelerator": "a", "card_us": 2 * hours * HOUR, "to_at": at(240)}
    return told("usage", "usage/l", 240, "usage.recorded", **line)


def cards(order: str = "o", allocation: str = "l") -> Told:
    """Return the cards that an order holds."""
    size = {"cpu_milli": 4, "memory_mib": 4}
    held = {"node": "n", "cards": ["c1", "c2"], "order": order, "allocation": allocation}
    return told("fleet", "node/n", 10, "cards.held", **held, **size)


REGISTERED = told("fleet", "node/n", 0, "node.registered", node="n", cpu_milli=4, memory_mib=4)
LIMIT = told("quotas", "quota/t", 0, "quota_limit.set", tenant="t", limits={"values": {"cards": 2}})
SUBMITTED = told("orders", "order/o", 1, "order.submitted", order="o", request={"labels": {"n": "1"}})
ADMITTED = told("admissions", "admission/o", 1, "order.admitted", order="o")
_QUEUED = {"request": {"project": "p"}, "submitted_at": at(1)}
QUEUED = told("allocations", "allocation/o", 5, "allocation.queued", order="o", **_QUEUED)
EARLIER = told("allocations", "allocation/e", 5, "allocation.queued", order="e", **_QUEUED | {"submitted_at": at(0)})
UNITS = [{"node": "n", "accelerator": "a", "cards": ["c1", "c2"]}]
_PLACED = {"order": "o", "allocation": "l", "units": UNITS, "allocated_at": at(0)}
ALLOCATED = told("allocations", "allocation/o", 10, "allocation.allocated", **_PLACED)
READY = told("environments", "environment/o", 60, "environment.ready", order="o", ready_at=at(60))
ENDED = told("orders", "order/o", 180, "order.release_requested", order="o", requested_at=at(180))
RELEASED = told("environments", "environment/o", 240, "environment.released", order="o")
BACK = told("fleet", "node/n", 240, "cards.returned", **_ON_N, pooled=["c1", "c2"], quarantined=[])
RETURNED = told(
    "allocations", "allocation/o", 240, "allocation.returned",
    order="o", allocation="l", pooled=["c1", "c2"], quarantined=[], returned_at=at(240),
)  # fmt: skip
CLAIMED = quota(1, "claimed", _CLAIM)
COMMITTED = quota(10, "committed", {"cards": 2, "cards/a": 2}, returned={"values": {"cards/b": 2}})
REFUNDED = quota(240, "refunded", {"cards": 2, "cards/a": 2})
HISTORY = [
    *(REGISTERED, LIMIT, SUBMITTED, CLAIMED, ADMITTED, QUEUED, ALLOCATED, cards(), COMMITTED, READY),
    *(ENDED, RELEASED, BACK, RETURNED, REFUNDED, usage("held", 4), usage("billable", 2)),
]
EXPIRED = told("orders", "order/o", 181, "order.expired", order="o", expired_at=at(180))
SICK = told("fleet", "node/n", 1, "card.health_changed", node="n", card="c1", source="x", health="failed")


def facts(history: list[Told]) -> list[Fact]:
    """Return the records of a history, each in the next version of its stream unless it names one."""
    versions: dict[str, int] = {}
    records = []
    for offset, one in enumerate(history):
        version = versions[one["stream"]] = one.get("version", versions.get(one["stream"], 0) + 1)
        body = {"id": f"{one['stream']}@{version}", "type": f"{one['type']}.v1", "subject": one["stream"]}
        body |= {"version": version, "time": at(one["minute"]), "data": one["data"]}
        records.append(Fact(one["topic"], 0, offset, json.dumps(body).encode()))
    return records


def changed(fact: Told, **data: Any) -> Callable[[list[Told]], None]:
    """Return a change of what one fact says."""

    def change(history: list[Told]) -> None:
        history[HISTORY.index(fact)]["data"].update(data)

    return change


def without(fact: Told) -> Callable[[list[Told]], None]:
    """Return the loss of a fact."""
    return lambda history: history.remove(fact)


def after(fact: Told, more: Told) -> Callable[[list[Told]], None]:
    """Return the addition of a fact."""
    return lambda history: history.insert(HISTORY.index(fact) + 1, deepcopy(more))


BREAKS: Mapping[str, tuple[str, Callable[[list[Told]], None]]] = {
    "a hole": ("hole: order/o goes from 1 to 3", lambda history: history[HISTORY.index(ENDED)].update(version=3)),
    "a fork": ("fork: ('order/o', 2)", after(ENDED, ENDED | {"version": 2, "minute": 181})),
    "two ends": ("more than one of", after(ENDED, EXPIRED)),
    "two holders": ("have two holders", after(cards(), cards("p", "k"))),
    "a sick card": ("are out of service", after(REGISTERED, SICK)),
    "more than the node has": ("more cpu_milli held", changed(cards(), cpu_milli=5)),
    "other cards back": ("other cards returned", changed(BACK, pooled=["c1"])),
    "another allocation than held": ("allocated, ", changed(ALLOCATED, units=[{**UNITS[0], "cards": ["c1"]}])),
    "not held": ("allocated, {} held", without(cards())),
    "over the limit": ("limit 1", changed(LIMIT, limits={"values": {"cards": 1}})),
    "no claim": ("without a claim", without(CLAIMED)),
    "a wrong refund": ("refunded", changed(REFUNDED, amounts={"values": {"cards": 1}})),
    "a second refund": ("more than one of ('quota.refunded',)", after(REFUNDED, REFUNDED)),
    "no refund": ("after quota.claimed came []", without(REFUNDED)),
    "cards kept": ("after allocation.queued came []", without(RETURNED)),
    "one who came later is served first": ("o was served before e", after(QUEUED, EARLIER)),
    "a wrong bill": ("recorded", changed(usage("billable", 2), card_us=1)),
    "no bill": ("recorded", without(usage("billable", 2))),
}


def test_a_lawful_history_breaks_no_law() -> None:
    assert laws.at_rest(facts(HISTORY)) == []


def test_what_is_told_twice_is_no_fault() -> None:
    once = facts(HISTORY)
    assert laws.at_rest([*once, *once[3:9]]) == []


@pytest.mark.parametrize("name", BREAKS)
def test_each_break_is_found(name: str) -> None:
    fault, change = BREAKS[name]
    history = deepcopy(HISTORY)
    change(history)
    assert any(fault in found for found in laws.at_rest(facts(history))), laws.at_rest(facts(history))


def test_a_lost_order_and_one_that_was_taken_twice_are_found() -> None:
    twice = [*HISTORY, SUBMITTED | {"stream": "order/p", "data": SUBMITTED["data"] | {"order": "p"}}]
    assert laws.lost(facts(HISTORY), {"1": "o"}, "n") == []
    assert laws.lost(facts(HISTORY), {"1": "o", "2": "q"}, "n") == ["lost: order q (2)"]
    assert laws.lost(facts(twice), {"1": "o"}, "n") == ["doubled: 1 led to more than one order"]
