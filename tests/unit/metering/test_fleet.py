"""Conservation: whatever happens to a fleet, the report equals a count of every card at every instant."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qm_events import new_event
from qm_events.scheduler import (
    AllocationAllocated,
    AllocationReturned,
    CardCleared,
    CardHealthChanged,
    CardQuarantined,
    CardsHeld,
    CardSpec,
    CardsReturned,
    NodeCordoned,
    NodeRegistered,
    NodeRetired,
    NodeUncordoned,
)
from qm_events.specs import Health, PlacedUnit
from qm_metering.conservation import conservation
from qm_metering.consumers import METERING
from qm_metering.findings import findings
from qm_metering.fleet import CLAIMS, NODES
from qm_metering.intervals import Span
from qm_metering.projections import LEDGER, ORDERS
from qm_service.database import Database
from qm_service.schema import create, schema_of
from tests.unit.metering import facts
from tests.unit.metering.test_queries import row

SCHEMA = schema_of(METERING)
CARDS = ("c0", "c1", "c2")
END = 60


@dataclass
class Fleet:
    """One node with three cards as the scheduler would run it, and beside it what each card is at every instant."""

    at: int = 0
    version: int = 0
    there: dict = field(default_factory=dict)
    held: dict = field(default_factory=dict)
    """card -> allocation"""
    sick: set = field(default_factory=set)
    isolated: set = field(default_factory=set)
    cordoned: bool = False
    classes: dict = field(default_factory=dict)
    """allocation -> class now"""
    counted: list = field(default_factory=list)
    """One Counter for each instant."""
    docs: dict = field(default_factory=lambda: {NODES.name: {}, CLAIMS.name: {}})
    orders: dict = field(default_factory=dict)
    made: int = 0

    def tell(self, data):
        self.version += 1
        event = new_event("node/n-1", self.version, facts.at(self.at), "/test", data)
        for projection in (NODES, CLAIMS):
            fold = projection.folds.get(type(data))
            for key in fold.keys(event) if fold else ():
                self.docs[projection.name][key] = fold.apply(self.docs[projection.name].get(key), event)

    def register(self, cards=CARDS):
        spec = tuple(CardSpec(card=name, accelerator="h100", memory_mib=1) for name in cards)
        self.tell(NodeRegistered(node="n-1", cpu_milli=1, memory_mib=1, cards=spec))
        self.there = {name: True for name in CARDS if name in cards or name in self.held}
        self.leaving = {name for name in self.held if name not in cards}

    def order(self, cards):
        self.made += 1
        name = f"a-{self.made}"
        unit = PlacedUnit(node="n-1", accelerator="h100", cards=tuple(cards))
        data = AllocationAllocated(
            order="o-1", allocation=name, request=facts.REQUEST, units=(unit,), allocated_at=facts.at(self.at)
        )
        service = self.orders[name] = facts.Metering()
        service.feed([facts.envelope(data, f"allocation/{name}", 1)])
        self.tell(CardsHeld(node="n-1", cards=tuple(cards), order="o-1", allocation=name, cpu_milli=1, memory_mib=1))
        self.held |= dict.fromkeys(cards, name)
        self.classes[name] = "provisioning"

    def move(self, name, kind):
        service = self.orders[name]
        if kind == "ready" and self.classes[name] == "provisioning":
            service.feed([facts.ready(self.at, name)])
            self.classes[name] = "billable"
        elif kind == "failed" and self.classes[name] in ("provisioning", "billable"):
            service.feed([facts.failed(self.at, name)])
            self.classes[name] = "failed"
        elif kind == "back" and self.classes[name] == "failed":
            cards = [card for card, holder in self.held.items() if holder == name]
            bad = tuple(cards[:1]) if self.at % 2 else ()
            told = {"pooled": tuple(it for it in cards if it not in bad), "quarantined": bad}
            back = AllocationReturned(order="o-1", allocation=name, **told, returned_at=facts.at(self.at))
            service.feed([facts.envelope(back, f"allocation/{name}", 2)])
            self.tell(CardsReturned(node="n-1", allocation=name, **told, returned_at=facts.at(self.at)))
            self.held = {card: holder for card, holder in self.held.items() if holder != name}
            self.isolated |= set(bad)
            for card in self.leaving & set(cards):
                self.there.pop(card)
                self.isolated.discard(card)

    leaving: set = field(default_factory=set)

    def count(self):
        """Pass one instant."""
        now = Counter()
        for card in self.there:
            if card in self.held:
                now[self.classes[self.held[card]]] += 1
            elif card in self.isolated:
                now["quarantined"] += 1
            elif card in self.sick:
                now["unhealthy"] += 1
            else:
                now["maintenance" if self.cordoned else "idle"] += 1
        self.counted.append(now)
        self.at += 1


def act(fleet, kind, card):
    at = facts.at(fleet.at)
    here = card in fleet.there
    free = [it for it in fleet.there if it not in fleet.held and it not in fleet.isolated and it not in fleet.sick]
    if kind == "order" and free:
        fleet.order(free[: 1 + fleet.at % 2])
    elif kind in ("ready", "failed", "back") and card in fleet.held:
        fleet.move(fleet.held[card], kind)
    elif kind in ("sick", "well") and here:
        health = Health.FAILED if kind == "sick" else Health.HEALTHY
        fleet.tell(CardHealthChanged(node="n-1", card=card, health=health, source="agent", observed_at=at))
        (fleet.sick.add if kind == "sick" else fleet.sick.discard)(card)
    elif kind == "isolate" and here:
        fleet.tell(CardQuarantined(node="n-1", card=card, reason="x", quarantined_at=at))
        fleet.isolated.add(card)
    elif kind == "clear" and here:
        fleet.tell(CardCleared(node="n-1", card=card, cleared_at=at))
        fleet.isolated.discard(card)
    else:
        act_on_node(fleet, kind, card)


def act_on_node(fleet, kind, card):
    at = facts.at(fleet.at)
    if kind in ("cordon", "uncordon"):
        fleet.cordoned = kind == "cordon"
        fleet.tell(NodeCordoned(node="n-1", reason="x") if fleet.cordoned else NodeUncordoned(node="n-1"))
    elif kind == "describe" and card == "c2":
        fleet.register([it for it in CARDS if it != card] if card in fleet.there else CARDS)
        if card not in fleet.there:
            fleet.sick.discard(card)
            fleet.isolated.discard(card)
    elif kind == "retire" and not fleet.held:
        fleet.tell(NodeRetired(node="n-1", reason="x", retired_at=at))
        fleet.there, fleet.sick, fleet.isolated, fleet.cordoned = {}, set(), set(), False
    elif kind == "return" and not fleet.there:
        fleet.register()


KINDS = (
    "order",
    "back",
    "retire",
    "return",
    "order",
    "ready",
    "failed",
    "back",
    "sick",
    "well",
    "isolate",
    "clear",
    "cordon",
    "uncordon",
    "describe",
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from((*KINDS, "order", "back", "retire", "return")), st.sampled_from(CARDS), st.integers(0, 3)
    ),
    max_size=25,
)


@pytest.fixture
async def database():
    database = Database("sqlite+aiosqlite:///:memory:")
    await create(database, SCHEMA)
    yield database
    await database.close()


async def report(database, fleet, window):
    running = [service.usage for service in fleet.orders.values() if service.usage]
    lines = [line for service in fleet.orders.values() for line in service.ledger.items()]
    async with database.write() as tx:
        for name in (LEDGER.name, CLAIMS.name):
            await tx.execute(SCHEMA.documents[name].delete())
        for key, line in lines:
            await tx.execute(SCHEMA.documents[LEDGER.name].insert(), row(LEDGER, key, line))
        for key, claim in fleet.docs[CLAIMS.name].items():
            await tx.execute(SCHEMA.documents[CLAIMS.name].insert(), row(CLAIMS, key, claim))
    async with database.read() as tx:
        return await conservation(tx, SCHEMA, fleet.docs[NODES.name], running, window)


def played(steps):
    fleet = Fleet()
    fleet.register()
    for kind, card, wait in steps:
        act(fleet, kind, card)
        for _ in range(wait):
            fleet.count()
    while fleet.at < END + 30:
        fleet.count()
    return fleet


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(STEPS, st.integers(0, END), st.integers(0, END + 30))
async def test_each_card_and_instant_is_in_exactly_one_class(database, steps, start, end):
    fleet, window = played(steps), Span(min(start, end), max(start, end))
    found = await report(database, fleet, window)
    wanted = sum(fleet.counted[window.start_us : window.end_us], Counter())
    assert dict(found.classes) == dict(sorted(wanted.items()))
    assert sum(found.classes.values()) == found.whole_us == wanted.total()


async def test_what_the_topics_say_differently_is_shown_and_has_an_owner(database):
    fleet = Fleet()
    fleet.register()
    held = CardsHeld(node="n-1", cards=("c0",), order="o-9", allocation="a-9", cpu_milli=1, memory_mib=1)
    fleet.tell(held)
    found = await report(database, fleet, Span(0, 10))
    assert (found.whole_us, dict(found.classes)) == (30, {"idle": 20, "unaccounted": 10})
    (missed,) = findings({}, fleet.docs[CLAIMS.name], {}, 600_000_001)
    assert (missed.kind, missed.owner, missed.allocation) == ("missed_start", "scheduler", "a-9")
    assert list(findings({}, fleet.docs[CLAIMS.name], {}, 600_000_000)) == []


def test_cards_that_do_not_come_back_are_a_runaway_and_cards_that_differ_a_drift():
    fleet = Fleet()
    fleet.register()
    fleet.order(["c0", "c1"])
    orders = {"o-1": fleet.orders["a-1"].usage}
    claims = {key: claim for key, claim in fleet.docs[CLAIMS.name].items() if claim.to_us is None}
    later = 3_600_000_100
    assert list(findings(orders, claims, {}, later)) == []
    (drift,) = findings(orders, {k: c.model_copy(update={"cards": ("c0",)}) for k, c in claims.items()}, {}, later)
    assert (drift.kind, drift.owner) == ("drift", "scheduler")
    (gone,) = findings(orders, {}, {}, later)
    assert (gone.kind, gone.owner) == ("runaway", "scheduler")
    fleet.orders["a-1"].feed([facts.failed(50, "a-1")])
    orders = {"o-1": fleet.orders["a-1"].usage}
    (stuck,) = findings(orders, claims, {}, later)
    assert (stuck.kind, stuck.owner, stuck.since) == ("runaway", "provisioner", facts.at(50))


def test_what_is_not_read_is_a_finding_for_the_operator():
    (found,) = findings({}, {}, {"orders/3": "version 4 follows version 2"}, 0)
    assert (found.kind, found.owner) == ("not_read", "operator")


def test_a_fact_at_fault_is_laid_to_the_service_that_said_it():
    usage = facts.Metering().feed([facts.allocated(50), facts.ready(40), facts.returned(60)]).usage
    owners = {(it.kind, it.owner) for it in findings({"o-1": usage}, {}, {}, 100)}
    assert owners == {("clock_regression", "provisioner"), ("end_missing", "catalog")}
    assert ORDERS.columns["anomalies"].of(usage) == 2
