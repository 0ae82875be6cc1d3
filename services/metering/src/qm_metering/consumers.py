"""Facts of others to lines on the topic `usage`: an order whose lines are behind its facts is brought up to date."""

from collections.abc import Iterator, Sequence
from typing import Any

from qm_events.ids import stream_name
from qm_metering.domain import USAGE, RecordUsage, lines_of, outstanding
from qm_metering.policy import OrderUsage
from qm_metering.projections import LEDGER, ORDERS
from qm_service.directory import DIRECTORY_PROJECTIONS
from qm_service.model import Act, Context, Definition


class Behind:
    """The orders whose lines on the topic are not what their facts call for."""

    def __init__(self) -> None:
        self.orders: dict[str, OrderUsage] = {}

    def changed(self, projection: str, key: str, old: Any | None, new: Any | None) -> None:  # noqa: ARG002  # the protocol's
        """Follow one document."""
        if projection != ORDERS.name:
            return
        if new is not None and outstanding(new):
            self.orders[key] = new
        else:
            self.orders.pop(key, None)


def settle(ctx: Context) -> Sequence[Act]:
    """Ask for the lines of every order that is behind, in the order of their ids."""
    behind: Behind = ctx.index
    return [act for order in sorted(behind.orders) for act in _acts(behind.orders[order])]


def _acts(usage: OrderUsage) -> Iterator[Act]:
    for holding in usage.holdings:
        yield Act(
            stream_name("usage", holding.allocation),
            RecordUsage(lines_of(usage, holding)),
            tenant=usage.tenant,
            project=usage.project,
            correlation=usage.order,
        )


METERING = Definition(
    name="metering",
    deciders=(USAGE,),
    projections=(ORDERS, LEDGER, *DIRECTORY_PROJECTIONS),
    reactions={},
    settle=settle,
    new_index=Behind,
)
