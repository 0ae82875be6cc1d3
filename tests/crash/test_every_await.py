"""Admission is killed at every await of every kind of step, one by one: what is left is the same as without a kill."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from qm_admission.book import SetLimits, SetPolicies
from qm_admission.domain import Vote
from qm_events import EventData, new_event
from qm_events.approval import ApprovalLevel, ApprovalPolicy, Approvers
from qm_events.catalog import (
    MemberGranted,
    OrderCancelRequested,
    OrderExtensionRequested,
    OrderSubmitted,
    ProjectRegistered,
    TenantRegistered,
)
from qm_events.ids import derived_id
from qm_events.provisioner import EnvironmentQuarantined, EnvironmentReady, EnvironmentReleased
from qm_events.scheduler import AllocationAllocated, AllocationReturned, AllocationWithdrawn
from qm_events.specs import EndCause, PlacedUnit, Role
from qm_service.log import Message
from qm_service.model import Act
from qm_service.store import message_of
from tests.crash.await_service import Step, walk
from tests.crash.forks import FORKS
from tests.unit.admission.desk import START, TENANT, request
from tests.unit.admission.test_hours_ledger import line

pytestmark = pytest.mark.crash


def fact(stream: str, version: int, data: EventData, at: datetime = START) -> Message:
    return message_of(new_event(stream, version, at, "/quartermaster/test", data, tenant=TENANT, project="vision"))


def directory() -> tuple[Message, ...]:
    people = (("dev", Role.DEVELOPER), ("ann", Role.APPROVER), ("bob", Role.APPROVER), ("tina", Role.TENANT_ADMIN))
    told: list[EventData] = [
        TenantRegistered(tenant=TENANT, display_name="Acme"),
        ProjectRegistered(tenant=TENANT, project="vision", display_name="Vision"),
    ]
    told += [MemberGranted(tenant=TENANT, project=None, subject=name, role=role) for name, role in people]
    return tuple(fact("tenant/acme", version, data) for version, data in enumerate(told, 1))


def book(command: Any) -> Act:
    return Act(f"quota/{TENANT}", command, TENANT)


def submitted(order: str, cards: int, minute: int = 0, **more: Any) -> Message:
    at = START + timedelta(minutes=minute)
    asked = request(cards=cards, **more)
    return fact(f"order/{order}", 1, OrderSubmitted(order=order, request=asked, digest=order, submitted_at=at), at)


def allocated(order: str, cards: int) -> Message:
    unit = PlacedUnit(node="n", accelerator="a100", cards=tuple(f"{order}-{n}" for n in range(cards)))
    asked = request(cards=cards, types=("a100", "h100"))
    data = AllocationAllocated(order=order, allocation=f"al-{order}", request=asked, units=(unit,), allocated_at=START)
    return fact(f"allocation/{order}", 1, data)


def ready_at(order: str, at: datetime) -> Message:
    data = EnvironmentReady(order=order, allocation=f"al-{order}", endpoint={}, ready_at=at)
    return fact(f"environment/{order}", 1, data, at)


def released(order: str, version: int, at: datetime = START) -> Message:
    data = EnvironmentReleased(
        order=order,
        allocation=f"al-{order}",
        cause=EndCause.RELEASED,
        outcome="clean",
        lines=(),
        digest="d",
        released_at=at,
    )
    return fact(f"environment/{order}", version, data, at)


def quarantined(order: str, version: int) -> Message:
    data = EnvironmentQuarantined(
        order=order, allocation=f"al-{order}", cards=("c",), step="wipe", error="e", quarantined_at=START
    )
    return fact(f"environment/{order}", version, data)


def withdrawn(order: str, version: int) -> Message:
    data = AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=START)
    return fact(f"allocation/{order}", version, data)


def ledger() -> Iterator[Step]:
    """Claim, hold, commit, refund, give up."""
    yield Step("people", START, directory(), killed=False)
    yield Step("limits", START, acts=(book(SetLimits(TENANT, None, {"cards": 3})),), said=("quota_limit.set",))
    both = (submitted("o1", 2, types=("a100", "h100")),) * 2
    yield Step("claim", START, both, said=("order.admitted", "quota.claimed"))
    at = START + timedelta(minutes=9)
    yield Step("hold", at, (submitted("o2", 2, 1), submitted("o3", 1, 2)), said=("order.held", "order.held"))
    yield Step("commit", at, (allocated("o1", 2),) * 2, said=("quota.committed",))
    thrice = (released("o1", 1), released("o1", 1), quarantined("o1", 2), withdrawn("o1", 2), released("o1", 1))
    said = ("order.admitted", "order.admitted", "quota.claimed", "quota.claimed", "quota.refunded")
    yield Step("a refund that is told three times and lets two in", at, thrice, said=said)
    yield Step("hold again", at, (submitted("o4", 1, 3),), said=("order.held",), killed=False)
    given_up = fact("order/o4", 2, OrderCancelRequested(order="o4", requested_at=at), at)
    yield Step("give up", at, (given_up,) * 2, said=("order.withdrawn",))
    lower = book(SetLimits(TENANT, None, {"cards": 1}, over_quota="refuse"))
    yield Step("lower", at, acts=(lower,), said=("quota_limit.set",), killed=False)
    yield Step("refuse", at, (submitted("o5", 1, 4),), said=("order.rejected",))
    yield Step("refund before the cards", at, (withdrawn("o2", 1),) * 3, said=("quota.refunded",))


def ask(order: str, nth: int, who: str, verdict: Any = "approve") -> Act:
    command = Vote(order, derived_id("approval", order, nth), verdict, who)
    return Act(f"admission/{order}", command, TENANT, "vision", order)


def votes() -> Iterator[Step]:
    """Ask, vote, grant, deny, remind, escalate, lapse."""
    levels = (
        ApprovalLevel(
            approvers=Approvers(role=Role.APPROVER),
            rule="n_of_m",
            n=2,
            remind_every_seconds=3_600,
            escalate_after_seconds=7_200,
            escalate_to=Approvers(role=Role.TENANT_ADMIN),
            lapses_after_seconds=10_800,
        ),
        ApprovalLevel(approvers=Approvers(role=Role.TENANT_ADMIN)),
    )
    policy = book(SetPolicies(TENANT, (ApprovalPolicy(name="all", levels=levels),)))
    yield Step("people", START, directory(), killed=False)
    yield Step("policy", START, acts=(policy,), said=("approval_policy.set",), killed=False)
    orders = tuple(submitted(f"o{n}", 1, n) for n in range(1, 4)) * 2
    yield Step("ask", START, orders, said=("approval.requested",) * 3)
    yield Step("vote", START, acts=(ask("o1", 1, "ann"),), said=("approval.voted",))
    yield Step("last vote", START, acts=(ask("o1", 1, "bob"),), said=("approval.granted", "approval.requested"))
    said = ("approval.granted", "order.admitted", "quota.claimed")
    yield Step("last level", START, acts=(ask("o1", 2, "tina"),), said=said)
    yield Step("deny", START, acts=(ask("o2", 1, "bob", "deny"),), said=("approval.denied", "order.rejected"))
    yield Step("remind", START + timedelta(hours=1), said=("approval.reminded",))
    yield Step("escalate", START + timedelta(hours=2), said=("approval.escalated",))
    gone = MemberGranted(tenant=TENANT, project=None, subject="eve", role=Role.APPROVER)
    yield Step(
        "people change", START + timedelta(hours=2), (fact("tenant/acme", 7, gone),), said=("approval.rerouted",)
    )
    yield Step("lapse", START + timedelta(hours=4), said=("approval.lapsed", "order.rejected"))


def month() -> Iterator[Step]:
    """Hours that are held, moved, noticed, used up, settled and given back; thresholds."""
    ready, end = START + timedelta(minutes=30), START + timedelta(hours=11, minutes=30)
    yield Step("people", START, directory(), killed=False)
    yield Step(
        "limits",
        START,
        acts=(book(SetLimits(TENANT, None, {"card_hours_month": 20})),),
        said=("quota_limit.set",),
        killed=False,
    )
    said = ("order.admitted", "quota.claimed")
    yield Step(
        "claim of an order with an end", START, (submitted("o1", 1, duration_seconds=3_600),), said=said, killed=False
    )
    open_end = ("order.admitted", "quota.claimed", "quota_threshold.reached")
    yield Step("claim of all that is left", START, (submitted("o2", 2, 1),), said=open_end)
    yield Step("no hours are left", START, (submitted("o3", 1, 2),), said=("order.held",), killed=False)
    at_once = tuple(ready_at(order, ready) for order in ("o1", "o2"))
    yield Step("READY", ready, at_once * 2, said=("quota.adjusted", "quota.adjusted"))
    longer = OrderExtensionRequested(order="o1", expires_at=end + timedelta(hours=1), requested_at=ready)
    yield Step("extend", ready, (fact("order/o1", 2, longer),) * 2, said=("quota.adjusted",))
    yield Step("notice", ready + timedelta(hours=9), said=("quota.hours_ending", "quota.hours_exhausted"))
    yield Step("used up", end, said=("quota.hours_exhausted",))
    lines = [line(f"o{n}", f"al-o{n}", n, "billable", ready, ready + timedelta(hours=9)) for n in (1, 2)]
    settled = tuple(fact(f"usage/al-{it.order}", 1, it, end) for it in lines) * 2
    yield Step("settle", end, settled, said=("quota.adjusted",) * 2)
    ends = tuple(released(order, 2, end) for order in ("o1", "o2")) * 3
    yield Step("release", end, ends, said=("quota.refunded",) * 2)
    back = AllocationReturned(order="o2", allocation="al-o2", pooled=("c",), quarantined=(), returned_at=end)
    yield Step("returned", end, (fact("allocation/o2", 1, back),), killed=False)
    july = datetime.fromisoformat("2026-07-01T00:00:00+00:00")
    yield Step("the month turns", july, said=("order.admitted", "quota.claimed", "quota_threshold.reached"))


STORIES = {"ledger": ledger, "votes": votes, "month": month}


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("story", STORIES)
async def test_wherever_it_is_killed_the_same_is_left(story: str, tmp_path: Path) -> None:
    hears, tells = FORKS.Pipe(duplex=False)
    steps = tuple(STORIES[story]())
    process = FORKS.Process(target=walk, args=(steps, str(tmp_path), tells), daemon=True)
    process.start()
    tells.close()
    told = await asyncio.to_thread(hears.recv)
    await asyncio.to_thread(process.join, 30)
    hears.close()
    assert told.endswith("kills"), told
    assert int(told.split()[0]) > 10 * sum(step.killed for step in steps)
