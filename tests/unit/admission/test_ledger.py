"""The ledger against a model that recomputes everything and rescans everybody, over random histories."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_admission.book import SetLimits
from qm_events.admission import OrderHeld, QuotaClaimed, QuotaCommitted, QuotaLimitSet, QuotaRefunded
from qm_events.catalog import OrderCancelRequested, OrderSubmitted
from qm_events.provisioner import EnvironmentQuarantined
from qm_events.scheduler import AllocationAllocated, AllocationWithdrawn
from qm_events.specs import OrderRequest, PlacedUnit
from tests.unit.admission.desk import START, TENANT, Desk, request

ORDERS = [f"o{number:02}" for number in range(24)]
SHAPES = [
    request("vision", 1),
    request("vision", 3),
    request("vision", 2, types=("a100", "h100")),
    request("vision", 1, types=("h100",), cpu_milli=0),
    request("speech", 1),
    request("speech", 2, count=2),
    request("speech", 2, types=("h100",)),
    request("speech", 4, cpu_milli=0),
]
LIMITS = [
    {},
    {"cards": 4},
    {"cards": 2, "cards/h100": 1},
    {"cards/h100": 3, "cpu_milli": 8_000},
    {"concurrent_orders": 1},
    {"cards": 6, "concurrent_orders": 2, "memory_mib": 64_000},
]


def shape_of(order: str) -> OrderRequest:
    return SHAPES[ORDERS.index(order) % len(SHAPES)]


def amounts(asked: OrderRequest) -> Counter[str]:
    cards = asked.count * asked.specification.cards_per_unit
    found = Counter(
        cards=cards,
        accelerator_memory_mib=cards * 80_000,
        cpu_milli=asked.count * asked.specification.cpu_milli,
        memory_mib=asked.count * 16_000,
        concurrent_orders=1,
    )
    return found + Counter({f"cards/{kind}": cards for kind in asked.specification.accelerators})


@dataclass
class Known:
    phase: str
    claim: Counter[str] = field(default_factory=Counter)
    blocked: frozenset[tuple[str, str, int]] = frozenset()


@dataclass
class Model:
    """Everything is a scan: sums over all orders, lines by looking at everybody, one change at a time, oldest first."""

    known: dict[str, Known] = field(default_factory=dict)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    refuses: dict[str, bool] = field(default_factory=dict)

    def used(self, scope: str, dimension: str) -> int:
        return sum(it.claim[dimension] for order, it in self.known.items() if scope in self.path(order))

    def path(self, order: str) -> tuple[str, str]:
        return (TENANT, f"{TENANT}/{shape_of(order).project}")

    def limited(self, order: str) -> Iterator[tuple[str, str, int, int]]:
        """Everything limited that the order takes: scope, dimension, limit, amount."""
        taken = amounts(shape_of(order))
        for scope in self.path(order):
            for dimension, limit in self.limits.get(scope, {}).items():
                if taken[dimension]:
                    yield scope, dimension, limit, taken[dimension]

    def passed(self, order: str, scope: str, dimension: str) -> bool:
        """Whether somebody older waits for it. Ids were given in order of submission."""
        return any(
            other < order and (scope, dimension) in {block[:2] for block in it.blocked}
            for other, it in self.known.items()
            if it.phase == "held"
        )

    def examine(self, order: str) -> bool:
        """Give the order its answer; whether that is a new one."""
        before = self.known.get(order)
        limited = list(self.limited(order))
        blocked = frozenset(
            (scope, dimension, limit)
            for scope, dimension, limit, amount in limited
            if self.used(scope, dimension) + amount > limit or self.passed(order, scope, dimension)
        )
        refusing = [self.refuses[scope] for scope in self.path(order) if scope in self.refuses]
        if any(amount > limit for *_, limit, amount in limited) or (blocked and refusing and refusing[-1]):
            self.known[order] = Known("rejected")
        elif not blocked:
            self.known[order] = Known("admitted", amounts(shape_of(order)))
        elif before and before.phase == "held" and before.blocked <= blocked:
            return False
        else:
            self.known[order] = Known("held", blocked=blocked)
        return True

    def settle(self) -> None:
        while any(self.examine(order) for order in sorted(self.known) if self.known[order].phase == "held"):
            pass

    # ---- facts

    def submit(self, order: str) -> None:
        if order not in self.known:
            self.examine(order)

    def cancel(self, order: str) -> None:
        if order not in self.known or self.known[order].phase == "held":
            self.known[order] = Known("withdrawn")

    def allocate(self, order: str, kind: str) -> None:
        it = self.known.get(order)
        if it and it.phase == "admitted":
            kept = {
                name: it.claim[name] for name in it.claim if not name.startswith("cards/") or name == f"cards/{kind}"
            }
            self.known[order] = Known("committed", Counter(kept))

    def end(self, order: str) -> None:
        it = self.known.get(order)
        if it and it.phase in ("admitted", "committed"):
            self.known[order] = Known("refunded")
        else:
            self.cancel(order)

    def limit(self, project: str | None, limits: dict[str, int], refuse: bool) -> None:
        scope = TENANT if project is None else f"{TENANT}/{project}"
        self.limits[scope], self.refuses[scope] = limits, refuse


Step = Callable[[Desk, Model, bool], None]


def _history(seed: int, length: int) -> list[Step]:
    """A dense history: mostly orders in turn and what follows for them, seldom something out of turn."""
    random = Random(seed)
    fresh, submitted = iter(ORDERS), [ORDERS[0]]
    steps = [_limited(None, random.choice(LIMITS), False), _limited("vision", random.choice(LIMITS), False)]
    for _ in range(length):
        order = random.choice(ORDERS if random.random() < 0.05 else submitted)
        match random.choices(range(6), (10, 2, 4, 6, 2, 1))[0]:
            case 0:
                submitted.append(next(fresh, order))
                steps.append(_submitted(submitted[-1]))
            case 1:
                steps.append(_cancelled(order))
            case 2:
                steps.append(_allocated(order, random.randrange(2)))
            case 3:
                steps.append(_ended(order, random.random() < 0.5))
            case 4:
                project = random.choice([None, "vision", "speech"])
                steps.append(_limited(project, random.choice(LIMITS), random.random() < 0.2))
            case _:
                steps.append(_restarted)
    return steps


def _submitted(order: str) -> Step:
    def step(desk: Desk, model: Model, settle: bool) -> None:
        model.submit(order)
        submitted = OrderSubmitted(order=order, request=shape_of(order), digest=order, submitted_at=START)
        desk.tell(submitted, f"order/{order}", settle=settle)

    return step


def _cancelled(order: str) -> Step:
    def step(desk: Desk, model: Model, settle: bool) -> None:
        model.cancel(order)
        desk.tell(OrderCancelRequested(order=order, requested_at=desk.now), f"order/{order}", settle=settle)

    return step


def _allocated(order: str, choice: int) -> Step:
    asked = shape_of(order)
    types = asked.specification.accelerators
    kind = types[choice % len(types)]
    cards = tuple(str(card) for card in range(asked.specification.cards_per_unit))
    units = tuple(PlacedUnit(node="n", accelerator=kind, cards=cards) for _ in range(asked.count))

    def step(desk: Desk, model: Model, settle: bool) -> None:
        model.allocate(order, kind)
        allocated = AllocationAllocated(order=order, allocation="al", request=asked, units=units, allocated_at=desk.now)
        desk.tell(allocated, f"allocation/{order}", settle=settle)

    return step


def _ended(order: str, withdrawn: bool) -> Step:
    left = AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=START)
    broken = EnvironmentQuarantined(
        order=order, allocation="al", cards=("c",), step="wipe", error="e", quarantined_at=START
    )

    def step(desk: Desk, model: Model, settle: bool) -> None:
        model.end(order)
        if withdrawn:
            desk.tell(left, f"allocation/{order}", settle=settle)
        else:
            desk.tell(broken, f"environment/{order}", settle=settle)

    return step


def _limited(project: str | None, limits: dict[str, int], refuse: bool) -> Step:
    def step(desk: Desk, model: Model, settle: bool) -> None:
        model.limit(project, limits, refuse)
        command = SetLimits(TENANT, project, limits, "refuse" if refuse else "hold")
        desk.command("quota/acme", command, settle=settle)

    return step


def _restarted(desk: Desk, model: Model, settle: bool) -> None:
    desk.restart()
    if settle:
        desk.settle()


HISTORIES = st.tuples(st.integers(0, 2**32), st.integers(1, 80))


def _state(desk: Desk) -> dict[str, Known]:
    return {
        stream.removeprefix("admission/"): Known(
            state.phase,
            Counter(state.claim),
            frozenset((it.scope, it.dimension, it.limit) for it in state.blocked)
            if state.phase == "held"
            else frozenset(),
        )
        for stream, state in desk.states.items()
        if stream.startswith("admission/")
    }


@settings(max_examples=200, deadline=None, derandomize=True)
@given(HISTORIES, st.integers(1, 5))
def test_every_order_stands_where_a_full_rescan_would_put_it(history: tuple[int, int], batch: int) -> None:
    desk, model = Desk(), Model()
    for number, step in enumerate(_history(*history)):
        settle = number % batch == 0
        step(desk, model, settle)
        if settle:
            model.settle()
        assert _state(desk) == model.known
        for scope, doc in desk.docs.resident("scopes").items():
            assert doc.used == {name: used for name in sorted(doc.used) if (used := model.used(scope, name))}
    _check_the_log(desk)


@dataclass
class Audit:
    """The laws, read from the facts alone."""

    used: dict[str, Counter[str]] = field(default_factory=dict)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    lines: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    refunded: set[str] = field(default_factory=set)

    def read(self, data: Any) -> None:
        match data:
            case QuotaLimitSet():
                self.limits[TENANT if data.project is None else f"{TENANT}/{data.project}"] = data.limits.values
            case OrderHeld():
                self.lines[data.order] = {(it.scope, it.dimension) for it in data.violations}
            case QuotaClaimed():
                self._post(data.scopes, data.amounts.values, 1)
                self._claimed(data)
            case QuotaCommitted():
                self._post(data.scopes, data.returned.values, -1)
            case QuotaRefunded():
                self._post(data.scopes, data.amounts.values, -1)
                assert data.order not in self.refunded, "refunded twice"
                self.refunded.add(data.order)
            case _:
                self.lines.pop(data.order, None)

    def _claimed(self, data: QuotaClaimed) -> None:
        self.lines.pop(data.order, None)
        taken = {
            (scope, name)
            for scope in data.scopes
            for name in self.limits.get(scope, {})
            if data.amounts.values.get(name)
        }
        assert all(self.used[scope][name] <= self.limits[scope][name] for scope, name in taken), "a limit was passed"
        assert not any(taken & spots for other, spots in self.lines.items() if other < data.order), (
            "somebody was passed"
        )

    def _post(self, scopes: tuple[str, ...], values: dict[str, int], sign: int) -> None:
        for scope in scopes:
            for name, value in values.items():
                self.used.setdefault(scope, Counter())[name] += sign * value


def _check_the_log(desk: Desk) -> None:
    audit = Audit()
    for event in desk.facts:
        audit.read(event.data)
    for scope, doc in desk.docs.resident("scopes").items():
        assert +audit.used.get(scope, Counter()) == doc.used


@settings(max_examples=100, deadline=None, derandomize=True)
@given(HISTORIES)
def test_a_restart_anywhere_changes_nothing(history: tuple[int, int]) -> None:
    steady, shaky = Desk(), Desk()
    for step in _history(*history):
        step(steady, Model(), True)
        step(shaky, Model(), True)
        _restarted(shaky, Model(), True)
    assert [event.data for event in steady.facts] == [event.data for event in shaky.facts]
