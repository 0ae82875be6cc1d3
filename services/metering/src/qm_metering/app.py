"""The service, put together: the only place where metering meets its adapters."""

from qm_service.runtime import Runtime

from qm_metering.api import routes
from qm_metering.consumers import METERING
from qm_service.service import Kit, Service


def build(kit: Kit) -> Service:
    """Return metering on the kit's database, log and clock."""
    runtime = Runtime(METERING, kit.database, kit.log, kit.clock, lease_seconds=kit.settings.lease_seconds)
    return Service("metering", runtime, routes(runtime, kit.database, kit.clock))
