"""The record as a person reads it: everything derived from the sections, under the names of the contract."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from math import floor
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from qm_catalog.approval_record import Approval
from qm_catalog.billing import amount, money
from qm_catalog.ordering import offering_of
from qm_catalog.projections import OfferingItem
from qm_catalog.record_conditions import Condition, conditions
from qm_catalog.record_earlier import EarlierView, earlier_allocations
from qm_catalog.record_phase import Phase, Reason, ended_by, phase, reasons, times
from qm_catalog.request_record import Impaired, Interval, Placed, QueueNote, Receipt, Record, Step
from qm_catalog.standing import environment, promised_end
from qm_events.specs import (
    EndCause,
    FaultReport,
    OrderRequest,
    PlacedUnit,
    Probe,
    ServiceModel,
    Specification,
    Topology,
)
from qm_events.units import card_hours, card_hours_ratio


class View(BaseModel):
    """Base of what the record is made of."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class AllocationView(View):
    """The cards, as long as they are held and after."""

    id: str
    cards: list[str]
    nodes: list[str]
    units: tuple[PlacedUnit, ...]
    """Which cards of which node, a unit of the specification each."""
    impaired: tuple[Impaired, ...]
    """Those of the cards that were seen to be sick and not to be well again. They stay the order's until it ends."""
    quarantined: tuple[str, ...]
    """Those of the cards that did not go back to the pool: a fault was reported, or cleaning failed."""


class EnvironmentView(View):
    """What the user enters; `endpoint` is null before it is ready and after access was revoked."""

    endpoint: dict[str, Any] | None
    planned: tuple[str, ...]
    """The names of all steps, in order."""
    steps: tuple[Step, ...]
    """Those that were begun, with attempts and times."""


class MeterView(View):
    """Recorded use of one meter: exact, and as card-hours in decimal and as a ratio."""

    card_us: int
    """Whole card-microseconds."""
    card_hours: str
    """Decimal, 9 places."""
    ratio: str
    """The same, exact: `p/q`."""


class UsageView(View):
    """`held` counts from ALLOCATED to back in the pool, `billable` from READY to the end that was asked for."""

    held: MeterView
    billable: MeterView


class CostView(View):
    """The billable use that was recorded, at the price of the instant of use."""

    amount: str
    """Decimal."""
    currency: str
    offering: str
    price_per_card_hour: str


class AnomalyView(View):
    """A fact that came after the end of its stream and changed nothing."""

    topic: str
    type: str
    version: int
    at: datetime


class RecordView(View):
    """One order, from click to recycle."""

    id: str
    order: str
    """The same as `id`."""
    version: int
    """For `If-Match`."""
    tenant: str
    project: str
    requester: str
    phase: Phase
    """Where it stands: one word for `conditions`."""
    reason: Reason | None
    """Why it is not further: the first of `reasons`."""
    reasons: tuple[Reason, ...]
    """All that keep it where it is, the one that matters most first."""
    conditions: tuple[Condition, ...]
    """What is true of it, each with the instant since when."""
    position: int | None
    """In the queue, as of `reason.since`; `GET /queue` counts it now."""
    specification: Specification
    service_model: ServiceModel
    image: str | None
    model: str | None
    count: int
    cards: int
    parameters: dict[str, Any]
    """As ordered, for the service model."""
    ssh_keys: tuple[str, ...]
    priority: int
    preemptible: bool
    reservation: str | None
    on_card_failure: Literal["tell", "replace"]
    topology: Topology | None
    duration_seconds: int | None
    labels: dict[str, str]
    digest: str
    """Of the parameters: what an approval binds to."""
    approvals: tuple[Approval, ...]
    """Every question to people, and what came of it."""
    allocation: AllocationView | None
    earlier_allocations: tuple[EarlierView, ...]
    """What it had before and gave up, the first first."""
    environment: EnvironmentView | None
    probes: tuple[Probe, ...]
    """What was tried as the user would, before it was called ready."""
    times: Mapping[str, datetime]
    """When it reached each phase."""
    queue_history: tuple[QueueNote, ...]
    """What it waited for, and when."""
    queue_history_dropped: int
    """How many older notes are left out."""
    usage: UsageView
    """What is recorded: an interval counts once it is closed."""
    cost: CostView | None
    """Null where the specification is not on sale."""
    expires_at: datetime | None
    """The promised end: absolute, or the duration counted from READY."""
    ended_by: EndCause | None
    """What ended it."""
    fault: FaultReport | None
    """What its user reported at release."""
    receipt: Receipt | None
    """What was taken back, wiped and validated at the end."""
    anomalies: tuple[AnomalyView, ...]
    """Facts that came after the end of their stream and changed nothing."""


_TOPICS = {
    "asked": "orders",
    "vetted": "admissions",
    "placed": "allocations",
    "built": "environments",
    "metered": "usage",
}


def view(record: Record, offerings: Iterable[OfferingItem]) -> RecordView:
    """Return what is shown of a record that has its order; ValueError for one that has not."""
    asked, request = record.asked, record.asked.request
    if request is None:
        raise ValueError(f"the order {record.order} itself was not read yet")
    why = reasons(record)
    return RecordView.model_construct(
        id=record.order,
        order=record.order,
        version=asked.version,
        **_request(request),
        digest=asked.digest,
        phase=phase(record),
        reason=why[0] if why else None,
        reasons=why,
        conditions=conditions(record),
        position=next((reason.figures["position"] for reason in why if "position" in reason.figures), None),
        approvals=record.vetted.approvals,
        allocation=_allocation(record.placed),
        earlier_allocations=earlier_allocations(record),
        environment=_environment(record),
        probes=environment(record).probes,
        times=times(record),
        queue_history=record.placed.history,
        queue_history_dropped=record.placed.history_dropped,
        usage=UsageView(held=_meter(record.metered.held), billable=_meter(record.metered.billable)),
        cost=_cost(record, offering_of(offerings, request)),
        expires_at=promised_end(record),
        ended_by=ended_by(record),
        fault=asked.fault,
        receipt=environment(record).receipt,
        anomalies=_anomalies(record),
    )


def _request(request: OrderRequest) -> dict[str, Any]:
    shown = {name: getattr(request, name) for name in OrderRequest.model_fields if name != "expires_at"}
    return shown | {"cards": request.cards, "on_card_failure": request.on_card_failure or "tell"}


def _allocation(placed: Placed) -> AllocationView | None:
    if placed.allocation is None:
        return None
    return AllocationView(
        id=placed.allocation,
        cards=list(dict.fromkeys(card for unit in placed.units for card in unit.cards)),
        nodes=sorted({unit.node for unit in placed.units}),
        units=placed.units,
        impaired=placed.impaired,
        quarantined=placed.quarantined,
    )


def _environment(record: Record) -> EnvironmentView | None:
    built = environment(record)
    if not (built.started_at or built.steps):
        return None
    return EnvironmentView(endpoint=built.endpoint, planned=built.planned, steps=built.steps)


def _meter(intervals: tuple[Interval, ...]) -> MeterView:
    total = sum((interval.used_us for interval in intervals), Fraction(0))
    return MeterView(card_us=floor(total), card_hours=card_hours(total), ratio=card_hours_ratio(total))


def _cost(record: Record, offering: OfferingItem | None) -> CostView | None:
    if offering is None:
        return None
    newest = offering.prices[-1]
    return CostView(
        amount=money(amount(record.metered.billable, offering.prices)),
        currency=newest.currency,
        offering=offering.name,
        price_per_card_hour=str(newest.per_card_hour),
    )


def _anomalies(record: Record) -> tuple[AnomalyView, ...]:
    return tuple(
        AnomalyView(topic=topic, type=found.type, version=found.version, at=found.at)
        for section, topic in _TOPICS.items()
        for found in getattr(record, section).anomalies
    )
