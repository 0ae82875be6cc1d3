"""Facts to measure with: orders as the catalog submits them, one stream each or forty to a stream."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from qm_events import Event, new_event
from qm_events.catalog import OrderExtensionRequested, OrderSubmitted
from qm_events.specs import OrderRequest, ServiceModel, Specification

AT = datetime(2026, 6, 1, 8, tzinfo=UTC)
SPECIFICATION = Specification(
    name="a100-1",
    version=1,
    accelerators=("a100",),
    cards_per_unit=1,
    accelerator_memory_mib=81_920,
    cpu_milli=16_000,
    memory_mib=131_072,
)
_REQUEST = OrderRequest(
    tenant="acme",
    project="vision",
    requester="alice",
    specification=SPECIFICATION,
    service_model=ServiceModel.VM,
    count=1,
)


def facts(count: int, in_a_stream: int = 1) -> Iterator[Event[Any]]:
    """Yield facts of the topic `orders`: one submission a stream, then extensions."""
    for number in range(count):
        stream, version = divmod(number, in_a_stream)
        order = f"00000000-0000-7000-8000-{stream:012}"
        data = _data(order, version)
        yield new_event(f"order/{order}", version + 1, AT, "/quartermaster/catalog", data, tenant="acme", actor="alice")


def _data(order: str, version: int) -> OrderSubmitted | OrderExtensionRequested:
    if version == 0:
        return OrderSubmitted(order=order, request=_REQUEST, digest="0" * 64, submitted_at=AT)
    return OrderExtensionRequested(order=order, expires_at=AT, requested_at=AT)
