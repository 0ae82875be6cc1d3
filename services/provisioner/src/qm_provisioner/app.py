"""The service, put together: the only place where the provisioner meets its adapters."""

from collections.abc import Callable
from functools import partial

from qm_provisioner.adapters.simulated import SimulatedBackend, SimulatedClouds
from qm_provisioner.alarms import Alarms
from qm_provisioner.api import routes, twin_routes
from qm_provisioner.attempt import Outside
from qm_provisioner.consumers import PROVISIONER
from qm_provisioner.credentials import CredentialStore, KeyRing
from qm_provisioner.models import MODELS
from qm_provisioner.runner import Runner
from qm_provisioner.settings import Settings
from qm_provisioner.slots import Limited
from qm_service.runtime import Runtime
from qm_service.service import Kit, Service


def build(kit: Kit) -> Service:
    """Return the provisioner on the kit's database, log and clock. Raises ValueError for a key ring that is none."""
    settings = kit.settings if isinstance(kit.settings, Settings) else Settings(**kit.settings.model_dump())
    runtime = Runtime(PROVISIONER, kit.database, kit.log, kit.clock, lease_seconds=settings.lease_seconds)
    vault = CredentialStore(kit.database, _keys(settings), kit.clock)
    alarms, clouds = Alarms(kit.clock), SimulatedClouds(settings.simulated_clouds)
    backends = {name: Limited(SimulatedBackend(clouds, name, alarms), settings.backend_calls) for name in MODELS}
    runner = Runner(runtime, Outside(MODELS, backends, vault, alarms))
    router = routes(runtime, vault)
    router.include_router(twin_routes(runtime, clouds))
    # In this order: the runner lets go of the clouds before they close.
    return Service("provisioner", runtime, router, (runner, clouds))


def _keys(settings: Settings) -> Callable[[], KeyRing]:
    # A file is made when a credential is written first, not by whoever only asks for the OpenAPI document.
    if settings.credential_keys is None:
        return partial(KeyRing.of_file, settings.credential_keys_path)
    ring = KeyRing.parse(settings.credential_keys)
    return lambda: ring
