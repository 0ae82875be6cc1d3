"""The service, put together: the only place where the scheduler meets its adapters."""

from qm_scheduler.api import routes
from qm_scheduler.consumers import SCHEDULER
from qm_service.runtime import Runtime
from qm_service.service import Kit, Service


def build(kit: Kit) -> Service:
    """Return the scheduler on the kit's database, log and clock."""
    runtime = Runtime(SCHEDULER, kit.database, kit.log, kit.clock, lease_seconds=kit.settings.lease_seconds)
    return Service("scheduler", runtime, routes(runtime))
