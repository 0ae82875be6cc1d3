"""Looks at budgets: when something changed for a tenant that has one, and when what runs reaches a threshold. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from qm_metering.budgets import BUDGET_DOCS, SPENT, Budget, Reach, crosses_us, reached, spending
from qm_metering.intervals import Span, instant, micros
from qm_metering.months import Zones, bounds, month_of
from qm_metering.policy import OrderUsage
from qm_metering.prices import BOOKS
from qm_metering.projections import ORDERS
from qm_service.model import Act, Context

_AT_LEAST = timedelta(hours=1)
"""How often a budget is looked at though nothing happens: prices change, months turn."""


class Watching:
    """When the budgets of which tenant are to be looked at next (a part of the index)."""

    def __init__(self) -> None:
        self.budgets: dict[str, dict[str, Budget]] = {}
        """By tenant and key."""
        self._next: dict[str, datetime | None] = {}
        """None: at once."""

    def changed(self, projection: str, key: str, new: Any | None) -> None:
        """Follow one document."""
        tenant = key.partition("/")[0]
        if projection == BUDGET_DOCS.name and new is not None:
            self.budgets.setdefault(tenant, {})[key] = new
            self._next[tenant] = None
        elif projection == BOOKS.name:
            self._next = dict.fromkeys(self._next)
        elif projection == SPENT.name and tenant in self.budgets:
            self._next[tenant] = None
        elif projection == ORDERS.name and new is not None and new.tenant in self.budgets:
            self._next[new.tenant] = None

    def next(self, now: datetime) -> datetime | None:
        """Return when to look next."""
        return min((at or now for at in self._next.values()), default=None)

    def take(self, now: datetime) -> list[str]:
        """Return the tenants to look at now."""
        return sorted(tenant for tenant, at in self._next.items() if at is None or at <= now)

    def looked(self, tenant: str, again_at: datetime) -> None:
        """Note when to look again."""
        self._next[tenant] = again_at


def look(ctx: Context, watching: Watching, tenant: str, zones: Zones, orders: dict[str, OrderUsage]) -> Sequence[Act]:
    """Return what is to be said of the budgets of a tenant, and note when to look again."""
    docs, now_us = ctx.docs, micros(ctx.now)
    month = month_of(now_us, zones)
    window = Span(bounds(month, zones)[0], now_us)
    recorded, books = docs.resident(SPENT.name), list(docs.resident(BOOKS.name).values())
    acts, soonest = [], bounds(month, zones)[1]
    for _, budget in sorted(watching.budgets[tenant].items()):
        found = spending(budget.told, month, window, recorded, orders, books)
        if percents := reached(budget, month, found.spent):
            command = Reach(budget.told, month, percents, found.spent)
            acts.append(Act(f"budget/{tenant}", command, tenant, budget.told.project))
        elif (left_us := crosses_us(budget, month, found)) is not None:
            soonest = min(soonest, now_us + left_us)
    watching.looked(tenant, min(instant(soonest), ctx.now + _AT_LEAST))
    return acts
