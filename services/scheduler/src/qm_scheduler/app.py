"""The service, put together: the only place where the scheduler meets its adapters."""

from dataclasses import replace
from functools import partial

from qm_scheduler.api import routes
from qm_scheduler.board import Board
from qm_scheduler.consumers import SCHEDULER
from qm_scheduler.settings import Settings
from qm_service.runtime import Runtime
from qm_service.service import Kit, Service


def build(kit: Kit) -> Service:
    """Return the scheduler on the kit's database, log and clock."""
    settings = kit.settings if isinstance(kit.settings, Settings) else Settings(**kit.settings.model_dump())
    definition = replace(SCHEDULER, new_index=partial(Board, laws=settings.laws))
    runtime = Runtime(definition, kit.database, kit.log, kit.clock, lease_seconds=settings.lease_seconds)
    return Service("scheduler", runtime, routes(runtime))
