"""The service, put together: the only place where admission meets its adapters."""

from qm_admission.api import routes
from qm_admission.consumers import ADMISSION
from qm_service.runtime import Runtime
from qm_service.service import Kit, Service


def build(kit: Kit) -> Service:
    """Return admission on the kit's database, log and clock."""
    runtime = Runtime(ADMISSION, kit.database, kit.log, kit.clock, lease_seconds=kit.settings.lease_seconds)
    return Service("admission", runtime, routes(runtime))
