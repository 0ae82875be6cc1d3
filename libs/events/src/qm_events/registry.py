"""The life of an order, the topics and their owners, and the table of all facts.

An order begins with `order.submitted`. Admission answers once per gate: a request that can never fit is
`order.rejected`; one that needs people gets `approval.requested` for each level, in between `approval.voted`,
`approval.rerouted`, `approval.escalated` and `approval.reminded`, then `approval.granted`, `approval.denied`,
`approval.lapsed` or, when the policies changed, `approval.withdrawn`; one that does not fit now is `order.held` until
it does; then `quota.claimed` and `order.admitted`. The scheduler takes it: `allocation.queued`, `allocation.waiting`
each time the reason changes, `allocation.allocated` when it holds cards. The provisioner builds: for every step
`environment.step_intended` before the call and `environment.step_done` or `environment.step_failed` after it, then
`environment.verified` (the probes, run as the user) and `environment.ready`, or `environment.failed`.

An order may give its cards up and live on: for a better ranked order, for the owner of lent quota, for another card
in the place of a sick one (`order.replacement_requested`, or `environment.failed` with `elsewhere`), or because its
card-hours are used up. The scheduler says `allocation.preempted`; the bill stops there. The provisioner ends that
environment alone (`environment.end_noted` with the allocation, then the way back below, cause preempted), the scheduler
answers `allocation.returned` with `lives_on` and puts it in its old place with `allocation.queued`; a new
`allocation.allocated` begins a fresh environment. The claim stays, and `quota.adjusted` follows its card-hours.
Card-hours that are used up are `order.suspended` first: when its cards are back, its claim is free and it stands in
line as `order.held` until `quota.claimed` and `order.resumed`.

It ends on `order.cancel_requested`, `order.release_requested` or `order.expired`, at any point, each idempotent.
Without cards the end is `order.withdrawn` (admission) or `allocation.withdrawn` (scheduler). With cards the provisioner
releases: `environment.release_started`, the steps undone, `environment.revoked`, `environment.wiped`, then
`environment.validated` (the cards are clean) or `environment.quarantined` (a step failed: the cards are isolated, the
user pays no more), and last `environment.released` with the receipt. The scheduler answers with
`cards.returned` for each node and `allocation.returned`; admission with `quota.refunded`; metering with
`usage.recorded`.

A tombstone is lawful: `allocation.withdrawn` or `environment.end_noted` may be the first fact of its stream when the
end of an order overtook its beginning, for no order is promised across topics.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from qm_events.envelope import EventData

PARTITIONS = 12
"""Fixed for ever: adding partitions would move keys. Growth is a new generation of the topic."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, the one service that writes it, and what its key is."""

    name: str
    owner: str
    key: str
    partitions: int = PARTITIONS


DIRECTORY = Topic("directory", "catalog", "tenant")
ORDERS = Topic("orders", "catalog", "order")
ADMISSIONS = Topic("admissions", "admission", "order")
QUOTAS = Topic("quotas", "admission", "tenant")
ALLOCATIONS = Topic("allocations", "scheduler", "order")
FLEET = Topic("fleet", "scheduler", "node")
ENVIRONMENTS = Topic("environments", "provisioner", "order")
USAGE = Topic("usage", "metering", "allocation")

TOPICS: Mapping[str, Topic] = {
    topic.name: topic for topic in (DIRECTORY, ORDERS, ADMISSIONS, QUOTAS, ALLOCATIONS, FLEET, ENVIRONMENTS, USAGE)
}

_FACTS: dict[str, type[EventData]] = {}

C = TypeVar("C", bound=type[EventData])


def event(name: str, *, version: int, topic: Topic) -> Callable[[C], C]:
    """Register a fact under its wire name; a name used twice is an error at import."""

    def register(cls: C) -> C:
        wire = f"{name}.v{version}"
        if wire in _FACTS:
            raise ValueError(f"{wire} is declared twice: {_FACTS[wire].__qualname__} and {cls.__qualname__}")
        cls.wire_type = wire
        cls.topic = topic.name
        _FACTS[wire] = cls
        return cls

    return register


def fact(wire: str) -> type[EventData] | None:
    """Return the class of a wire name, or None for one that this release does not know."""
    return _FACTS.get(wire)


def all_facts() -> Iterator[type[EventData]]:
    """Yield every registered fact, by wire name."""
    for wire in sorted(_FACTS):
        yield _FACTS[wire]


def topics_of(owner: str) -> tuple[Topic, ...]:
    """Return the topics that `owner` alone writes."""
    return tuple(topic for topic in TOPICS.values() if topic.owner == owner)
