"""The model that the ledger is held against, and the random histories of both."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from qm_admission.book import SetLimits
from qm_events import EventData
from qm_events.catalog import OrderCancelRequested, OrderSubmitted
from qm_events.provisioner import EnvironmentQuarantined
from qm_events.scheduler import AllocationAllocated, AllocationWithdrawn
from qm_events.specs import OrderRequest, PlacedUnit
from tests.unit.admission.desk import START, TENANT, request

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
JUNE = "card_hours_month@2026-06"
LEFT = (datetime(2026, 7, 1, tzinfo=UTC) - START) // timedelta(microseconds=1)
"""None of the orders has an end, none becomes ready and no hours are limited: each holds the rest of the month."""


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
    return found + Counter({f"cards/{kind}": cards for kind in asked.specification.accelerators} | {JUNE: cards * LEFT})


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


@dataclass(frozen=True)
class Step:
    """A fact of others on a stream, a command, or (None) a restart; and what the model makes of it."""

    stream: str
    said: EventData | SetLimits | None
    follow: Callable[[Model], None]


def history(seed: int, length: int) -> list[Step]:
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
                steps.append(Step("", None, lambda _: None))
    return steps


def _submitted(order: str) -> Step:
    submitted = OrderSubmitted(order=order, request=shape_of(order), digest=order, submitted_at=START)
    return Step(f"order/{order}", submitted, lambda model: model.submit(order))


def _cancelled(order: str) -> Step:
    cancelled = OrderCancelRequested(order=order, requested_at=START)
    return Step(f"order/{order}", cancelled, lambda model: model.cancel(order))


def _allocated(order: str, choice: int) -> Step:
    asked = shape_of(order)
    types = asked.specification.accelerators
    kind = types[choice % len(types)]
    cards = tuple(str(card) for card in range(asked.specification.cards_per_unit))
    units = tuple(PlacedUnit(node="n", accelerator=kind, cards=cards) for _ in range(asked.count))
    allocated = AllocationAllocated(order=order, allocation="al", request=asked, units=units, allocated_at=START)
    return Step(f"allocation/{order}", allocated, lambda model: model.allocate(order, kind))


def _ended(order: str, withdrawn: bool) -> Step:
    if withdrawn:
        left = AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=START)
        return Step(f"allocation/{order}", left, lambda model: model.end(order))
    broken = EnvironmentQuarantined(
        order=order, allocation="al", cards=("c",), step="wipe", error="e", quarantined_at=START
    )
    return Step(f"environment/{order}", broken, lambda model: model.end(order))


def _limited(project: str | None, limits: dict[str, int], refuse: bool) -> Step:
    command = SetLimits(TENANT, project, limits, "refuse" if refuse else "hold")
    return Step(f"quota/{TENANT}", command, lambda model: model.limit(project, limits, refuse))
