"""Card-hours over random histories: facts repeated, topics mixed, restarts anywhere. Checked against sums over all."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_admission.book import SetLimits
from qm_admission.hours import held, of_months
from qm_admission.quota import Scope, limit_of
from qm_events import EventData
from qm_events.admission import QuotaClaimed, QuotaCommitted, QuotaRefunded
from qm_events.admission_quota import QuotaAdjusted
from qm_events.catalog import OrderSubmitted
from qm_events.metering import UsageCorrected, UsageRecorded
from qm_events.provisioner import EnvironmentReady, EnvironmentReleased
from qm_events.scheduler import AllocationAllocated, AllocationPreempted, AllocationReturned, AllocationWithdrawn
from qm_events.specs import EndCause, OrderRequest, PlacedUnit
from tests.unit.admission.desk import TENANT, Desk, furnished, request

SEEDS = st.integers(0, 2**32)
PATH = ("acme", "acme/vision")


@dataclass
class Said:
    """A fact of another service, on its stream, not told before its time."""

    stream: str
    data: EventData
    at: datetime


@dataclass
class Play:
    """Random orders and what becomes of them; what admission must make of it is summed from scratch."""

    random: Random
    desk: Desk = field(default_factory=furnished)
    streams: dict[str, list[Said]] = field(default_factory=dict)
    lines: list[UsageRecorded | UsageCorrected] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    number: int = 0

    def step(self) -> None:
        desk, random = self.desk, self.random
        match random.choices(range(5), (4, 8, 2, 1, 1))[0]:
            case 0:
                self.submit()
            case 1:
                self.tell()
            case 2:
                desk.now += timedelta(minutes=random.choice([1, 45, 600, 9_000]))
                desk.settle()
            case 3:
                limit = {"card_hours_month": random.choice([0, 20, 100, 2_000])} if random.random() < 0.8 else {}
                project = random.choice([None, "vision"])
                action = random.choice(["warn", "suspend", "end"])
                desk.command("quota/acme", SetLimits(TENANT, project, limit, hours_exhausted=action))
            case 4:
                desk.restart()
                desk.settle()
        for order, state in list(orders_of(desk)):
            if state.phase == "admitted" and order not in self.begun:
                self.begin(order, state)

    def submit(self) -> None:
        self.number += 1
        ends = [{}, {"duration_seconds": self.random.choice([60, 36_000, 40 * 86_400])}]
        ends.append({"expires_at": self.desk.now + timedelta(hours=self.random.choice([1, 400]))})
        asked = request(cards=self.random.choice([1, 3]), **self.random.choice(ends))
        order = f"o{self.number:03}"
        submitted = OrderSubmitted(order=order, request=asked, digest=order, submitted_at=self.desk.now)
        self.desk.tell(submitted, f"order/{order}")

    def begin(self, order: str, state: Any) -> None:
        self.begun.add(order)
        start, cards = self.desk.now, state.hold.life.cards
        if self.random.random() < 0.2:
            left = AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=start)
            self.streams[f"allocation/{order}"] = [Said(f"allocation/{order}", left, start)]
            return
        ready = start + timedelta(minutes=self.random.choice([0, 7, 2_000]))
        end = ready + timedelta(minutes=self.random.choice([0, 0, 33, 5_000, 50_000]))
        returned = end + timedelta(minutes=self.random.choice([0, 5]))
        if self.random.random() < 0.4:
            self.walk(order, cards, start, ready, end, returned, gives_up=True)
            again = returned + timedelta(minutes=self.random.choice([0, 90, 30_000]))
            start, ready, end = again, again + (ready - start), again + (end - start)
            returned = end
        self.walk(order, cards, start, ready, end, returned)

    def walk(
        self,
        order: str,
        cards: int,
        start: datetime,
        ready: datetime,
        end: datetime,
        back: datetime,
        *,
        gives_up: bool = False,
    ) -> None:
        al = f"al-{order}-{len(self.streams.get(f'allocation/{order}', ()))}"
        given_up = [(f"allocation/{order}", preempted(order, al, end), end)] if gives_up else []
        unit = PlacedUnit(node="n", accelerator="a100", cards=tuple(f"{order}-{card}" for card in range(cards)))
        told = [
            (f"allocation/{order}", allocated(order, al, unit, start), start),
            *given_up,
            (f"allocation/{order}", returned(order, al, back, lives_on=gives_up or None), back),
            (f"environment/{order}", EnvironmentReady(order=order, allocation=al, endpoint={}, ready_at=ready), ready),
            (f"environment/{order}", released(order, al, back, lives_on=gives_up), back),
        ]
        if end > ready:
            told += [(f"usage/{al}", it, end) for it in self.billed(order, al, cards, ready, end)]
        if back > start:
            told.append((f"usage/{al}", line(order, al, cards, "held", start, back), back))
        for stream, data, at in told:
            self.streams.setdefault(stream, []).append(Said(stream, data, at))

    def billed(self, order: str, al: str, cards: int, ready: datetime, end: datetime) -> Iterator[EventData]:
        first = line(order, al, cards, "billable", ready, end)
        yield first
        if self.random.random() < 0.3:
            yield UsageCorrected(**first.model_dump() | {"record": f"{first.record}-no"}, reverses=first.record)
            yield line(order, al, cards, "billable", ready, ready + (end - ready) / 2)

    def tell(self, *, late: bool = True) -> None:
        if not self.streams:
            return
        said = self.streams[stream := self.random.choice(sorted(self.streams))].pop(0)
        if not self.streams[stream]:
            del self.streams[stream]
        if said.at > self.desk.now:
            self.desk.now = said.at
            self.desk.settle()
        for _ in range(2 if late and self.random.random() < 0.2 else 1):
            self.desk.tell(said.data, said.stream)
        if isinstance(said.data, UsageRecorded | UsageCorrected) and said.data.meter == "billable":
            self.lines.append(said.data)

    def settled(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for it in self.lines:
            sign = -1 if isinstance(it, UsageCorrected) else 1
            for name, amount in held(it.cards, it.from_at, it.to_at, "UTC").items():
                total[name] += sign * amount
        return +total

    def check(self) -> None:
        holds: Counter[str] = Counter()
        for _, state in orders_of(self.desk):
            holds.update(of_months(state.claim))
        for scope in PATH:
            doc = self.desk.docs.get("scopes", scope)
            if doc:
                assert Counter(of_months(doc.used)) == +(holds + self.settled())
                assert Counter(doc.settled) == self.settled()


def orders_of(desk: Desk) -> Iterator[tuple[str, Any]]:
    for stream, state in desk.states.items():
        if stream.startswith("admission/"):
            yield stream.removeprefix("admission/"), state


def allocated(order: str, al: str, unit: PlacedUnit, at: datetime) -> AllocationAllocated:
    asked: OrderRequest = request(cards=len(unit.cards))
    return AllocationAllocated(order=order, allocation=al, request=asked, units=(unit,), allocated_at=at)


def preempted(order: str, al: str, at: datetime) -> AllocationPreempted:
    return AllocationPreempted(order=order, allocation=al, cause="preempted", why="so", preempted_at=at)


def returned(order: str, al: str, at: datetime, *, lives_on: bool | None = None) -> AllocationReturned:
    return AllocationReturned(
        order=order, allocation=al, pooled=("c",), quarantined=(), lives_on=lives_on, returned_at=at
    )


def released(order: str, al: str, at: datetime, *, lives_on: bool = False) -> EnvironmentReleased:
    cause = EndCause.PREEMPTED if lives_on else EndCause.RELEASED
    return EnvironmentReleased(
        order=order, allocation=al, cause=cause, outcome="clean", lines=(), digest="d", released_at=at
    )


def line(order: str, al: str, cards: int, meter: str, since: datetime, until: datetime) -> UsageRecorded:
    us = cards * ((until - since) // timedelta(microseconds=1))
    record = f"{order}-{meter}-{since.isoformat()}-{until.isoformat()}"
    fixed = {"accelerator": "a100", "service_model": "vm", "allocation": al, "order": order, "meter": meter}
    return UsageRecorded(record=record, cards=cards, from_at=since, to_at=until, card_us=us, **fixed)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(SEEDS, st.integers(1, 90))
def test_what_is_used_is_what_is_held_and_what_metering_said_at_every_scope(seed: int, length: int) -> None:
    play = Play(Random(seed))
    for _ in range(length):
        play.step()
        play.check()
    check_the_claims(play.desk)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SEEDS)
def test_when_all_is_over_only_what_metering_said_stays_used(seed: int) -> None:
    play = Play(Random(seed))
    for _ in range(60):
        play.step()
    while play.streams or any(
        it.phase == "held" or (it.phase == "admitted" and order not in play.begun) for order, it in orders_of(play.desk)
    ):
        for order, state in list(orders_of(play.desk)):
            if state.phase == "held":
                play.desk.tell(
                    AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=play.desk.now),
                    f"allocation/{order}",
                )
            elif state.phase == "admitted" and order not in play.begun:
                play.begin(order, state)
        play.tell()
    play.check()
    for scope in PATH:
        doc = play.desk.docs.get("scopes", scope)
        assert doc is None or Counter(doc.used) == play.settled()
    assert play.desk.docs.resident("clocks") == {}


def check_the_claims(desk: Desk) -> None:
    """No claim passes a limit of hours that was in force when it was made, read from the facts alone."""
    used: dict[str, Counter[str]] = {scope: Counter() for scope in ("acme", "acme/vision")}
    limits: dict[str, Any] = {}
    for event in desk.facts:
        data = event.data
        for scope in getattr(data, "scopes", ()):
            match data:
                case QuotaClaimed():
                    used[scope].update(data.amounts.values)
                    for name, amount in used[scope].items():
                        limit = limits[scope](name) if scope in limits else None
                        taken = data.amounts.values.get(name, 0)
                        assert limit is None or not taken or amount <= limit
                case QuotaAdjusted():
                    used[scope].update(data.taken.values)
                    used[scope].subtract(data.returned.values)
                case QuotaCommitted():
                    used[scope].subtract(data.returned.values)
                case QuotaRefunded():
                    used[scope].subtract(data.amounts.values)
        if data.wire_type == "quota_limit.set.v1":
            limits[TENANT if data.project is None else f"{TENANT}/{data.project}"] = _limit_of(data.limits.values)


def _limit_of(limits: Any) -> Any:
    return lambda name: limit_of(Scope(limits=limits), name)
