"""Whole lives of one order as the topics tell them: the facts of each topic in order, to be interleaved at will."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from qm_catalog.projections import PROJECTIONS
from qm_catalog.request_record import Record
from qm_events import Event, EventData, admission, catalog, metering, new_event, provisioner, scheduler
from qm_events.specs import (
    Amounts,
    EndCause,
    OrderRequest,
    PlacedUnit,
    Probe,
    ServiceModel,
    Specification,
    Violation,
    WaitCode,
    WaitReason,
)

ORDER = "0197d3c0-0000-7000-8000-000000000001"
ALLOCATION = "0197d3c0-0000-7000-8000-00000000000a"
START = datetime(2026, 6, 1, 8, tzinfo=UTC)
SPECIFICATION = Specification(
    name="gpu-2x",
    version=1,
    accelerators=("a100",),
    cards_per_unit=2,
    accelerator_memory_mib=81_920,
    cpu_milli=32_000,
    memory_mib=262_144,
)
REQUEST = OrderRequest(
    tenant="acme",
    project="vision",
    requester="dora",
    specification=SPECIFICATION,
    service_model=ServiceModel.VM,
    duration_seconds=8 * 3600,
    labels={"team": "red"},
)
UNITS = (PlacedUnit(node="n1", accelerator="a100", cards=("n1-c0", "n1-c1")),)
VIOLATION = Violation(scope="acme", dimension="cards", limit=4, used=4, requested=2, short_by=2)
WAIT = WaitReason(
    code=WaitCode.CAPACITY_IN_USE, figures={"free": 0}, counterfactual="two cards more", remedy="Wait for the next end."
)

_STREAMS = {"orders": "order", "admissions": "admission", "allocations": "allocation", "environments": "environment"}

Story = dict[str, list[Event[EventData]]]


def at(minutes: float) -> datetime:
    """Return an instant of the story."""
    return START + timedelta(minutes=minutes)


def tell(*facts: tuple[float, EventData]) -> Story:
    """Put facts, each at a minute, into their streams in the order given."""
    story: Story = {}
    for minute, data in facts:
        stream = f"usage/{ALLOCATION}" if data.topic == "usage" else f"{_STREAMS[data.topic]}/{ORDER}"
        told = story.setdefault(data.topic, [])
        told.append(new_event(stream, len(told) + 1, at(minute), "/test", data))
    return story


def fold(events: Iterable[Event[EventData]], record: Record | None = None) -> Record:
    """Fold facts into the record, by the table that the service uses."""
    folds = PROJECTIONS[0].folds
    for event in events:
        record = folds[type(event.data)].apply(record, event)
    assert record is not None
    return record


def in_order(story: Story) -> Sequence[Event[EventData]]:
    """Return all facts of a story by time."""
    return sorted((event for told in story.values() for event in told), key=lambda event: event.time)


def submitted(request: OrderRequest = REQUEST) -> tuple[float, EventData]:
    return 0, catalog.OrderSubmitted(order=ORDER, request=request, digest="d", submitted_at=at(0))


def admitted(minute: float = 3) -> list[tuple[float, EventData]]:
    held = Amounts(values={"cards": 2})
    return [
        (minute, admission.QuotaClaimed(order=ORDER, scopes=("acme", "acme/vision"), amounts=held)),
        (minute, admission.OrderAdmitted(order=ORDER, request=REQUEST, digest="d", submitted_at=at(0))),
    ]


def approved() -> list[tuple[float, EventData]]:
    return [
        (
            1,
            admission.ApprovalRequested(
                order=ORDER, approval="ap", policy="big", level=1, approvers=("ann",), digest="d", requested_at=at(1)
            ),
        ),
        (
            2,
            admission.ApprovalGranted(
                order=ORDER, approval="ap", level=1, approver="ann", digest="d", decided_at=at(2)
            ),
        ),
        (2.5, held()),
    ]


def held() -> EventData:
    return admission.OrderHeld(order=ORDER, violations=(VIOLATION,), remedy="Ask for more.", held_at=at(2.5))


def allocated() -> list[tuple[float, EventData]]:
    return [
        (4, scheduler.AllocationQueued(order=ORDER, request=REQUEST, submitted_at=at(0), queued_at=at(4))),
        (5, scheduler.AllocationWaiting(order=ORDER, reasons=(WAIT,), since=at(5))),
        (
            6,
            scheduler.AllocationAllocated(
                order=ORDER, allocation=ALLOCATION, request=REQUEST, units=UNITS, allocated_at=at(6)
            ),
        ),
        (6.5, committed()),
    ]


def committed() -> EventData:
    amounts = Amounts(values={"cards": 2})
    return admission.QuotaCommitted(order=ORDER, scopes=("acme",), amounts=amounts, returned=Amounts())


def step(minute: float, name: str, direction: str = "do", attempt: int = 1) -> tuple[float, EventData]:
    return minute, provisioner.EnvironmentStepIntended(
        order=ORDER, step=name, direction=direction, attempt=attempt, external_name=f"qm-{name}", intended_at=at(minute)
    )


def done(minute: float, name: str, direction: str = "do", attempt: int = 1) -> tuple[float, EventData]:
    return minute, provisioner.EnvironmentStepDone(
        order=ORDER, step=name, direction=direction, attempt=attempt, done_at=at(minute)
    )


def step_failed(minute: float, name: str, *, attempt: int, final: bool) -> tuple[float, EventData]:
    return minute, provisioner.EnvironmentStepFailed(
        order=ORDER, step=name, direction="do", attempt=attempt, error="no host", final=final, failed_at=at(minute)
    )


def started() -> tuple[float, EventData]:
    return 7, provisioner.EnvironmentStarted(
        order=ORDER, allocation=ALLOCATION, request=REQUEST, units=UNITS, steps=("network", "server"), started_at=at(7)
    )


def built() -> list[tuple[float, EventData]]:
    return [
        started(),
        step(8, "network"),
        done(9, "network"),
        step(10, "server"),
        step_failed(11, "server", attempt=1, final=False),
        step(12, "server", attempt=2),
        done(13, "server", attempt=2),
    ]


def ready() -> list[tuple[float, EventData]]:
    return [
        (
            14,
            provisioner.EnvironmentVerified(order=ORDER, probes=(Probe(name="ssh", passed=True),), verified_at=at(14)),
        ),
        (
            15,
            provisioner.EnvironmentReady(
                order=ORDER, allocation=ALLOCATION, endpoint={"host": "10.0.0.1"}, ready_at=at(15)
            ),
        ),
    ]


def failed() -> list[tuple[float, EventData]]:
    return [
        step_failed(14, "server", attempt=3, final=True),
        (
            15,
            provisioner.EnvironmentFailed(
                order=ORDER, allocation=ALLOCATION, step="server", error="no host", failed_at=at(15)
            ),
        ),
    ]


def released(cause: EndCause, minute: float = 80, *, quarantined: bool = False) -> list[tuple[float, EventData]]:
    m, common = minute, {"order": ORDER, "allocation": ALLOCATION}
    last = (
        provisioner.EnvironmentQuarantined(
            **common, cards=UNITS[0].cards, step="wipe", error="disk stuck", quarantined_at=at(m + 4)
        )
        if quarantined
        else provisioner.EnvironmentValidated(**common, clean=UNITS[0].cards, validated_at=at(m + 4))
    )
    cards = UNITS[0].cards
    return [
        (m + 1, provisioner.EnvironmentReleaseStarted(**common, cause=cause, started_at=at(m + 1))),
        (m + 2, provisioner.EnvironmentRevoked(order=ORDER, revoked_at=at(m + 2))),
        *([] if quarantined else [(m + 3, provisioner.EnvironmentWiped(order=ORDER, wiped_at=at(m + 3)))]),
        (m + 4, last),
        (
            m + 5,
            provisioner.EnvironmentReleased(
                **common,
                cause=cause,
                outcome="quarantined" if quarantined else "clean",
                lines=(provisioner.ReceiptLine(step="revoke", confirmed=True, at=at(m + 2)),),
                digest="x",
                released_at=at(m + 5),
            ),
        ),
        (
            m + 6,
            scheduler.AllocationReturned(
                **common,
                pooled=() if quarantined else cards,
                quarantined=cards if quarantined else (),
                returned_at=at(m + 6),
            ),
        ),
        (m + 7, admission.QuotaRefunded(order=ORDER, scopes=("acme",), amounts=Amounts(values={"cards": 2}))),
        (m + 8, used("held", 6, m + 6)),
    ]


def used(meter: str, start: float, end: float) -> EventData:
    return metering.UsageRecorded(
        record=f"{meter}-{start}",
        allocation=ALLOCATION,
        order=ORDER,
        meter=meter,
        accelerator="a100",
        service_model="vm",
        cards=2,
        from_at=at(start),
        to_at=at(end),
        card_us=round((end - start) * 60_000_000) * 2,
    )


def release_requested(minute: float = 80) -> tuple[float, EventData]:
    return minute, catalog.OrderReleaseRequested(order=ORDER, requested_at=at(minute))


def cancel_requested(minute: float) -> tuple[float, EventData]:
    return minute, catalog.OrderCancelRequested(order=ORDER, requested_at=at(minute), reason="no longer")


def expired(minute: float) -> tuple[float, EventData]:
    return minute, catalog.OrderExpired(order=ORDER, expired_at=at(minute))


def withdrawn(minute: float, cause: str) -> tuple[float, EventData]:
    return minute, scheduler.AllocationWithdrawn(order=ORDER, cause=cause, withdrawn_at=at(minute))


_SERVED = [submitted(), *approved(), *admitted(), *allocated(), *built(), *ready()]

AGAIN = "0197d3c0-0000-7000-8000-00000000000b"


def given_up(minute: float, cause: str = "preempted") -> list[tuple[float, EventData]]:
    """It gives the cards of `ALLOCATION` up, and they come back."""
    m, common = minute, {"order": ORDER, "allocation": ALLOCATION}
    back = released(EndCause.PREEMPTED, m)[:5]
    return [
        (m, scheduler.AllocationPreempted(**common, cause=cause, why="its owner wants it", preempted_at=at(m))),
        *back,
        (
            m + 6,
            scheduler.AllocationReturned(
                **common, pooled=UNITS[0].cards, quarantined=(), lives_on=True, returned_at=at(m + 6)
            ),
        ),
    ]


def queued_again(minute: float) -> tuple[float, EventData]:
    return minute, scheduler.AllocationQueued(order=ORDER, request=REQUEST, submitted_at=at(0), queued_at=at(minute))


def again(minute: float) -> list[tuple[float, EventData]]:
    """It has cards again, and an environment on them."""
    m, common = minute, {"order": ORDER, "allocation": AGAIN}
    units = (PlacedUnit(node="n2", accelerator="a100", cards=("n2-c0", "n2-c1")),)
    placed = {"request": REQUEST, "units": units}
    return [
        (m, scheduler.AllocationAllocated(**common, **placed, allocated_at=at(m))),
        (m + 1, provisioner.EnvironmentStarted(**common, **placed, steps=("server",), started_at=at(m + 1))),
        step(m + 2, "server"),
        done(m + 3, "server"),
        (m + 4, provisioner.EnvironmentVerified(order=ORDER, probes=PROBES, verified_at=at(m + 4))),
        (m + 4, provisioner.EnvironmentReady(**common, endpoint={"host": "10.0.0.2"}, ready_at=at(m + 4))),
    ]


PROBES = (Probe(name="ssh", passed=True),)


def over(cause: EndCause, minute: float) -> list[tuple[float, EventData]]:
    """The way back of the second allocation."""
    told = released(cause, minute)
    changed = {"allocation": AGAIN}
    return [
        (m, data.model_copy(update=changed) if "allocation" in type(data).model_fields else data) for m, data in told
    ]


def suspended(minute: float) -> list[tuple[float, EventData]]:
    about = {"order": ORDER, "scopes": ("acme",)}
    m = minute
    fact = admission.OrderSuspended(**about, why="no hours", renews_at=at(m + 60), suspended_at=at(m))
    return [(m, fact), *given_up(m + 1, "suspended")]


_GAVE_UP = [*_SERVED, *given_up(20), queued_again(26)]
STORIES: dict[str, Story] = {
    "preempted and served again": tell(
        *_GAVE_UP, *again(30), release_requested(80), *over(EndCause.RELEASED, 80), (89, used("billable", 15, 20))
    ),
    "ended while it gave its cards up": tell(
        *_SERVED,
        *given_up(20)[:3],
        cancel_requested(22.5),
        *given_up(20)[3:6],
        (27, given_up(20)[6][1].model_copy(update={"lives_on": None})),
        (28, admission.QuotaRefunded(order=ORDER, scopes=("acme",), amounts=Amounts(values={"cards": 2}))),
    ),
    "expired in the queue after it was preempted": tell(*_GAVE_UP, expired(495), withdrawn(496, "expired")),
    "suspended and withdrawn": tell(
        *_SERVED,
        *suspended(20),
        (28, held()),
        cancel_requested(30),
        (31, admission.OrderWithdrawn(order=ORDER, cause="cancelled", withdrawn_at=at(31))),
        withdrawn(32, "cancelled"),
    ),
    "served": tell(*_SERVED, release_requested(), *released(EndCause.RELEASED), (89, used("billable", 15, 80))),
    "expired in use": tell(*_SERVED, expired(495), *released(EndCause.EXPIRED, 496)),
    "quarantined": tell(*_SERVED, release_requested(), *released(EndCause.RELEASED, quarantined=True)),
    "failed": tell(submitted(), *admitted(), *allocated(), *built(), *failed(), *released(EndCause.FAILED, 16)),
    "cancelled while building": tell(
        submitted(), *admitted(), *allocated(), *built(), cancel_requested(14), *released(EndCause.CANCELLED, 14)
    ),
    "cancelled in the queue": tell(
        submitted(), *admitted(), *allocated()[:2], cancel_requested(7), withdrawn(8, "cancelled")
    ),
    "expired in the queue": tell(submitted(), *admitted(), *allocated()[:2], expired(7), withdrawn(8, "expired")),
    "rejected": tell(
        submitted(),
        (
            1,
            admission.OrderRejected(
                order=ORDER, code="never-fits", violations=(VIOLATION,), remedy="Order less.", rejected_at=at(1)
            ),
        ),
    ),
}
"""Every way in which an order comes to its end."""

ENDS = {
    "preempted and served again": "closed",
    "ended while it gave its cards up": "closed",
    "expired in the queue after it was preempted": "closed",
    "suspended and withdrawn": "closed",
    "served": "closed",
    "expired in use": "closed",
    "quarantined": "closed",
    "failed": "failed",
    "cancelled while building": "cancelled",
    "cancelled in the queue": "cancelled",
    "expired in the queue": "expired",
    "rejected": "rejected",
}
