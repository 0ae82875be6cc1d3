"""Facts about one order for the tests of metering, and the service as a loop without a chassis."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from qm_events import Event, EventData, new_event
from qm_events.catalog import OrderCancelRequested, OrderExpired, OrderReleaseRequested, OrderSubmitted
from qm_events.provisioner import (
    EnvironmentFailed,
    EnvironmentQuarantined,
    EnvironmentReady,
)
from qm_events.scheduler import AllocationAllocated, AllocationPreempted, AllocationReturned
from qm_events.specs import OrderRequest, PlacedUnit, ServiceModel, Specification
from qm_metering.domain import Lines, RecordUsage, behind, decide, evolve, lines_of
from qm_metering.intervals import instant
from qm_metering.months import UTC_ALWAYS, Zones
from qm_metering.policy import Holding, OrderUsage
from qm_metering.projections import LEDGER, ORDERS, LedgerLine
from qm_service.model import Context

REQUEST = OrderRequest(
    tenant="acme",
    project="vision",
    requester="ada",
    specification=Specification(
        name="h100-8",
        version=1,
        accelerators=("h100", "h200"),
        cards_per_unit=8,
        accelerator_memory_mib=81_920,
        cpu_milli=64_000,
        memory_mib=524_288,
    ),
    service_model=ServiceModel.VM,
)


def at(us: int) -> datetime:
    return instant(us)


def envelope(data: EventData, stream: str, version: int) -> Event[Any]:
    return new_event(
        stream, version, at(0), "/quartermaster/test", data, tenant="acme", project="vision", correlation="o-1"
    )


def allocated(us: int, allocation: str = "a-1", version: int = 1, cards: dict[str, int] | None = None) -> Event[Any]:
    units = tuple(
        PlacedUnit(node="n-1", accelerator=name, cards=tuple(f"{name}-{i}" for i in range(number)))
        for name, number in (cards or {"h100": 8}).items()
    )
    data = AllocationAllocated(order="o-1", allocation=allocation, request=REQUEST, units=units, allocated_at=at(us))
    return envelope(data, "allocation/o-1", version)


def returned(us: int, allocation: str = "a-1", version: int = 2) -> Event[Any]:
    data = AllocationReturned(order="o-1", allocation=allocation, pooled=(), quarantined=(), returned_at=at(us))
    return envelope(data, "allocation/o-1", version)


def ready(us: int, allocation: str = "a-1", version: int = 1) -> Event[Any]:
    data = EnvironmentReady(order="o-1", allocation=allocation, endpoint={}, ready_at=at(us))
    return envelope(data, "environment/o-1", version)


def failed(us: int, allocation: str = "a-1", version: int = 2) -> Event[Any]:
    data = EnvironmentFailed(order="o-1", allocation=allocation, step="boot", error="no", failed_at=at(us))
    return envelope(data, "environment/o-1", version)


def quarantined(us: int, allocation: str = "a-1", version: int = 3) -> Event[Any]:
    data = EnvironmentQuarantined(
        order="o-1", allocation=allocation, cards=("h100-0",), step="wipe", error="no", quarantined_at=at(us)
    )
    return envelope(data, "environment/o-1", version)


def preempted(us: int, allocation: str = "a-1", version: int = 4) -> Event[Any]:
    data = AllocationPreempted(
        order="o-1", allocation=allocation, cause="preempted", why="a better ranked order", preempted_at=at(us)
    )
    return envelope(data, "allocation/o-1", version)


def submitted() -> Event[Any]:
    return envelope(OrderSubmitted(order="o-1", request=REQUEST, digest="d", submitted_at=at(0)), "order/o-1", 1)


def cancelled(us: int) -> Event[Any]:
    return envelope(OrderCancelRequested(order="o-1", requested_at=at(us)), "order/o-1", 2)


def released(us: int) -> Event[Any]:
    return envelope(OrderReleaseRequested(order="o-1", requested_at=at(us)), "order/o-1", 3)


def expired(us: int) -> Event[Any]:
    return envelope(OrderExpired(order="o-1", expired_at=at(us)), "order/o-1", 4)


class Nothing:
    """No documents."""

    def get(self, projection: str, key: str) -> Any | None:
        return None

    def resident(self, projection: str) -> dict[str, Any]:
        return {}


CTX = Context(now=at(0), docs=Nothing())


class Metering:
    """The service with nothing around it: folds a fact, then records until the topic says what the facts call for."""

    def __init__(self, zones: Zones = UTC_ALWAYS) -> None:
        self.zones = zones
        self.closed_until_us = 0
        self.usage: OrderUsage | None = None
        self.ledger: dict[str, LedgerLine] = {}
        self.streams: dict[str, Lines] = {}
        self.topic: list[Event[Any]] = []

    def feed(self, events: Iterable[Event[Any]]) -> "Metering":
        for event in events:
            self.usage = ORDERS.folds[type(event.data)].apply(self.usage, event)
            self.record()
        return self

    def record(self) -> None:
        while self.usage is not None and behind(self.usage, self.closed_until_us):
            before = len(self.topic)
            for holding in self.usage.holdings:
                state = self.streams.get(holding.allocation, Lines())
                for data in decide(state, self.command(holding), CTX):
                    self.write(holding.allocation, data)
            assert len(self.topic) > before, "what is written does not settle what is missing"

    def command(self, holding: Holding) -> RecordUsage:
        return RecordUsage(lines_of(self.usage, holding, self.zones, self.closed_until_us))

    def close(self, until_us: int) -> "Metering":
        self.closed_until_us = until_us
        self.record()
        return self

    def write(self, allocation: str, data: EventData) -> None:
        version = sum(event.key == allocation for event in self.topic) + 1
        event = envelope(data, f"usage/{allocation}", version)
        self.topic.append(event)
        self.streams[allocation] = evolve(self.streams.get(allocation, Lines()), data)
        self.usage = ORDERS.folds[type(data)].apply(self.usage, event)
        row = LEDGER.folds[type(data)].apply(None, event)
        assert row is not None
        assert row.record not in self.ledger
        self.ledger[row.record] = row
