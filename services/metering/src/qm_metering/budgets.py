"""Budgets: what a month may cost, and who is told at which part of it. Streams `budget/<tenant>`. Pure.

What counts is what was recorded of the month and what runs in it, each at its price. A threshold is said once for ever:
that it was said is on the log, so neither a replay nor a sum that falls and rises again says it twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from qm_events import Event
from qm_events.metering import BudgetSet, BudgetThresholdReached, UsageCorrected, UsageLine, UsageRate, UsageRecorded
from qm_events.specs import Value
from qm_metering.domain import rated, unrecorded
from qm_metering.intervals import Span, clipped_us, micros
from qm_metering.money import cost, decimal
from qm_metering.policy import OrderUsage
from qm_metering.prices import Book, book_of
from qm_service.model import Column, Context, Decider, Decision, Fold, Projection


class Budget(Value):
    """A budget as it stands, and what was said of it."""

    told: BudgetSet
    reached: tuple[tuple[str, int], ...] = ()
    """(month, percent)"""


class Spent(Value):
    """What the recorded lines of a project in a month of use cost: exact ratios by currency."""

    costs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SetBudget:
    """Set a budget, or replace the one of its name."""

    told: BudgetSet


@dataclass(frozen=True, slots=True)
class Reach:
    """Thresholds of a budget are reached in a month."""

    budget: BudgetSet
    period: str
    percents: tuple[int, ...]
    spent: Fraction


@dataclass(frozen=True, slots=True)
class Budgets:
    """State of a stream: the budgets by name, and what was said: (budget, month, percent)."""

    told: Mapping[str, BudgetSet]
    said: frozenset[tuple[str, str, int]] = frozenset()


def decide(state: Budgets, command: SetBudget | Reach, ctx: Context) -> Decision:
    """Set a budget that says something new; say a threshold that was not said of it in that month."""
    if isinstance(command, SetBudget):
        known, told = state.told.get(command.told.budget), command.told
        same = known is not None and known.model_copy(update={"set_at": told.set_at}) == told
        return [] if same else [told.model_copy(update={"set_at": ctx.now})]
    budget = command.budget
    return [
        BudgetThresholdReached(
            tenant=budget.tenant,
            budget=budget.budget,
            project=budget.project,
            period=command.period,
            percent=percent,
            spent=decimal(command.spent),
            amount=budget.amount,
            currency=budget.currency,
            reached_at=ctx.now,
        )
        for percent in command.percents
        if (budget.budget, command.period, percent) not in state.said
    ]


def evolve(state: Budgets, fact: Any) -> Budgets:
    """Fold one fact of the stream."""
    if isinstance(fact, BudgetSet):
        return replace(state, told={**state.told, fact.budget: fact})
    return replace(state, said=state.said | {(fact.budget, fact.period, fact.percent)})


BUDGET: Decider[Budgets] = Decider("budget", Budgets({}), decide, evolve)


def spent_key(tenant: str, project: str, month: str) -> str:
    """Return the key of what a project spent in a month."""
    return f"{tenant}/{project}/{month}"


def _spent(sign: int) -> Fold[Spent]:
    def apply(doc: Spent | None, event: Event[UsageLine]) -> Spent:
        data, costs = event.data, {name: Fraction(it) for name, it in (doc.costs if doc else ())}
        for rate in data.rates or ():
            costs[rate.currency] = costs.get(rate.currency, Fraction(0)) + sign * _rate_cost(data.cards, rate)
        return Spent(costs=tuple((name, f"{it.numerator}/{it.denominator}") for name, it in sorted(costs.items())))

    def keys(event: Event[UsageLine]) -> Sequence[str]:
        month = event.data.used_in or event.data.period
        return (spent_key(event.tenant or "", event.project or "", month),) if month and event.data.rates else ()

    return Fold(apply, keys)


def _rate_cost(cards: int, rate: UsageRate) -> Fraction:
    return cost(cards * (micros(rate.to_at) - micros(rate.from_at)), rate.price_per_card_hour)


SPENT: Projection[Spent] = Projection(
    name="spent",
    version=1,
    model=Spent,
    folds={UsageRecorded: _spent(1), UsageCorrected: _spent(-1)},
    resident=lambda _: True,
)


def _set(doc: Budget | None, event: Event[BudgetSet]) -> Budget:
    return Budget(told=event.data, reached=doc.reached if doc else ())


def _reached(doc: Budget | None, event: Event[BudgetThresholdReached]) -> Budget | None:
    # Within a stream: a budget is set before anything is said of it.
    return doc and doc.model_copy(update={"reached": (*doc.reached, (event.data.period, event.data.percent))})


def budget_key(event: Event[Any]) -> Sequence[str]:
    """Return the key of a budget."""
    return (f"{event.data.tenant}/{event.data.budget}",)


BUDGET_DOCS: Projection[Budget] = Projection(
    name="budgets",
    version=1,
    model=Budget,
    folds={BudgetSet: Fold(_set, budget_key), BudgetThresholdReached: Fold(_reached, budget_key)},
    columns={"scope": Column(str, lambda doc: "/".join(filter(None, (doc.told.tenant, doc.told.project))))},
    resident=lambda _: True,
)


@dataclass(frozen=True, slots=True)
class Spending:
    """What a scope spent in a month up to an instant, and what each further microsecond costs."""

    spent: Fraction
    per_us: Fraction


def spending(
    budget: BudgetSet,
    month: str,
    window: Span,
    recorded: Mapping[str, Spent],
    orders: Mapping[str, OrderUsage],
    books: Sequence[Book],
) -> Spending:
    """Return what counts for a budget in the month that `window` is a part of."""
    prefix = f"{budget.tenant}/"
    spent = per_us = Fraction(0)
    for key, doc in recorded.items():
        _, project, used = key.split("/")
        if key.startswith(prefix) and used == month and budget.project in (None, project):
            spent += Fraction(dict(doc.costs).get(budget.currency, "0"))
    for usage in orders.values():
        if budget.project in (None, usage.project):
            for card_us, rate, runs in _running(usage, window, books):
                if rate.currency == budget.currency:
                    spent += cost(card_us, rate.price_per_card_hour)
                    per_us += cost(runs, rate.price_per_card_hour)
    return Spending(spent, per_us)


def _running(usage: OrderUsage, window: Span, books: Sequence[Book]) -> Iterator[tuple[int, UsageRate, int]]:
    """Yield (card-microseconds, rate, cards that go on at that rate) of what is not recorded."""
    now_us = window.end_us or 0
    for holding, meter, _, cards, gap in unrecorded(usage):
        start_us = max(gap.start_us, window.start_us)
        end_us = start_us + clipped_us(gap, window, now_us)
        for since, until, rate in rated(meter, start_us, end_us, book_of(books, holding)):
            if rate is not None:
                yield cards * (until - since), rate, cards if gap.end_us is None and until == now_us else 0


def reached(budget: Budget, month: str, spent: Fraction) -> tuple[int, ...]:
    """Return the thresholds that are reached and were not said."""
    amount = Fraction(budget.told.amount)
    return tuple(
        it for it in budget.told.thresholds if spent * 100 >= amount * it and (month, it) not in budget.reached
    )


def crosses_us(budget: Budget, month: str, spending: Spending) -> int | None:
    """Return in how many microseconds the next threshold is reached if all runs on; None: not by what runs."""
    open_ones = [it for it in budget.told.thresholds if (month, it) not in budget.reached]
    if not open_ones or not spending.per_us:
        return None
    left = (Fraction(budget.told.amount) * min(open_ones) - spending.spent * 100) * Fraction(1, 100)
    steps = left * Fraction(spending.per_us.denominator, spending.per_us.numerator)
    return max(1, -(-steps.numerator // steps.denominator))
