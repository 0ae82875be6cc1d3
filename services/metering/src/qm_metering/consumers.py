"""Facts of others to lines on the topic `usage`: an order whose lines are behind its facts is brought up to date."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from qm_events.ids import stream_name
from qm_metering.domain import USAGE, RecordUsage, behind, lines_of, unrecorded
from qm_metering.fleet import CLAIMS, NODES
from qm_metering.months import UTC_ALWAYS, Zones
from qm_metering.periods import PERIOD, PERIODS, Period
from qm_metering.policy import OrderUsage
from qm_metering.prices import BOOKS, PRICE, book_of
from qm_metering.projections import LEDGER, ORDERS, PERIOD_DOCS, ZONES, ZoneHistory
from qm_service.directory import DIRECTORY_PROJECTIONS
from qm_service.model import Act, Context, Definition


class Behind:
    """The orders whose lines on the topic are not what their facts, and the closed months of the tenant, call for."""

    def __init__(self) -> None:
        self.orders: dict[str, OrderUsage] = {}
        self.closed_until_us: dict[str, int] = {}
        """By tenant: the end of the last month that is closing or closed."""
        self._live: dict[str, dict[str, OrderUsage]] = defaultdict(dict)

    def changed(self, projection: str, key: str, old: Any | None, new: Any | None) -> None:
        """Follow one document."""
        if projection == ORDERS.name:
            self._order(key, old, new)
        elif projection == PERIODS and new is not None and new.to_us is not None:
            self._closing(new)

    def tenants_behind(self) -> frozenset[str]:
        """Return whose lines are on their way."""
        return frozenset(usage.tenant for usage in self.orders.values())

    def earliest(self, tenant: str) -> int | None:
        """Return since when something of a tenant runs that is not recorded; None: nothing."""
        return min(
            (gap.start_us for usage in self._live[tenant].values() for *_, gap in unrecorded(usage)), default=None
        )

    def tenants(self) -> Iterator[str]:
        """Yield whose orders run."""
        return (tenant for tenant, orders in sorted(self._live.items()) if orders)

    def _order(self, key: str, old: OrderUsage | None, new: OrderUsage | None) -> None:
        if old is not None:
            self._live[old.tenant].pop(key, None)
            self.orders.pop(key, None)
        if new is not None:
            self._live[new.tenant][key] = new
            if behind(new, self.closed_until_us.get(new.tenant, 0)):
                self.orders[key] = new

    def _closing(self, period: Period) -> None:
        until_us = period.to_us or 0
        if until_us > self.closed_until_us.get(period.tenant, 0):
            self.closed_until_us[period.tenant] = until_us
            orders = self._live[period.tenant]
            self.orders |= {key: usage for key, usage in orders.items() if behind(usage, until_us)}


def zones_of(ctx: Context, tenant: str) -> Zones:
    """Return where the months of a tenant end."""
    doc: ZoneHistory | None = ctx.docs.resident(ZONES.name).get(tenant)
    return doc.zones if doc else UTC_ALWAYS


def settle(ctx: Context) -> Sequence[Act]:
    """Ask for the lines of every order that is behind, in the order of their ids."""
    index: Behind = ctx.index
    return [act for order in sorted(index.orders) for act in _acts(index.orders[order], ctx)]


def _acts(usage: OrderUsage, ctx: Context) -> Iterator[Act]:
    zones, until_us = zones_of(ctx, usage.tenant), ctx.index.closed_until_us.get(usage.tenant, 0)
    books = ctx.docs.resident(BOOKS.name)
    for holding in usage.holdings:
        lines = lines_of(usage, holding, zones, until_us, book_of(books.values(), holding))
        yield Act(
            stream_name("usage", holding.allocation),
            RecordUsage(lines, usage.tenant),
            tenant=usage.tenant,
            project=usage.project,
            correlation=usage.order,
        )


METERING = Definition(
    name="metering",
    deciders=(USAGE, PERIOD, PRICE),
    projections=(ORDERS, LEDGER, PERIOD_DOCS, ZONES, NODES, CLAIMS, BOOKS, *DIRECTORY_PROJECTIONS),
    reactions={},
    settle=settle,
    new_index=Behind,
)
