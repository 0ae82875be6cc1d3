"""The service, put together: the only place where metering meets its adapters."""

from qm_metering.api import routes
from qm_metering.closing import Closer
from qm_metering.consumers import METERING
from qm_service.runtime import HALT_PARTITION, Runtime
from qm_service.service import Kit, Service


def build(kit: Kit) -> Service:
    """Return metering on the kit's database, log and clock."""
    runtime = Runtime(
        METERING,
        kit.database,
        kit.log,
        kit.clock,
        lease_seconds=kit.settings.lease_seconds,
        # A bill that misses a fact is wrong, so one that cannot be read stops its partition instead of being set aside.
        park=HALT_PARTITION,
    )
    return Service("metering", runtime, routes(runtime), workers=(Closer(runtime),))
