"""The service, put together: the only place where the provisioner meets its adapters."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from qm_provisioner.adapters.simulated import SimulatedBackend, SimulatedClouds
from qm_provisioner.alarms import Alarms
from qm_provisioner.api import routes, twin_routes
from qm_provisioner.attempt import Outside
from qm_provisioner.consumers import PROVISIONER
from qm_provisioner.credentials import CredentialStore, KeyRing
from qm_provisioner.models import MODELS
from qm_provisioner.models.bare_metal import BARE_METAL
from qm_provisioner.ports import Backend
from qm_provisioner.runner import Runner
from qm_provisioner.settings import Settings
from qm_provisioner.slots import Limited
from qm_service.runtime import Runtime
from qm_service.service import Kit, Service

if TYPE_CHECKING:
    from qm_provisioner.adapters.ironic import IronicBackend


def build(kit: Kit) -> Service:
    """Return the provisioner on the kit's database, log and clock. Raises ValueError for a key ring or an
    address of a backend that is none."""
    settings = kit.settings if isinstance(kit.settings, Settings) else Settings(**kit.settings.model_dump())
    runtime = Runtime(PROVISIONER, kit.database, kit.log, kit.clock, lease_seconds=settings.lease_seconds)
    vault = CredentialStore(kit.database, _keys(settings), kit.clock)
    alarms, clouds = Alarms(kit.clock), SimulatedClouds(settings.simulated_clouds)
    real = _real(settings)
    twins: dict[str, Backend] = {name: SimulatedBackend(clouds, name, alarms) for name in MODELS if name not in real}
    backends = {name: Limited(backend, settings.backend_calls) for name, backend in {**twins, **real}.items()}
    runner = Runner(runtime, Outside(MODELS, backends, vault, alarms))
    router = routes(runtime, vault)
    router.include_router(twin_routes(runtime, clouds, {name: MODELS[name] for name in twins}))
    # In this order: the runner lets go of the clouds before they close.
    return Service("provisioner", runtime, router, (runner, *real.values(), clouds))


def _real(settings: Settings) -> Mapping[str, "IronicBackend"]:
    if not settings.bare_metal_url:
        return {}
    # The sdk takes a second to load: not for whoever has no Ironic.
    from qm_provisioner.adapters.ironic_setup import bare_metal

    return {BARE_METAL.name: bare_metal(settings)}


def _keys(settings: Settings) -> Callable[[], KeyRing]:
    # A file is made when a credential is written first, not by whoever only asks for the OpenAPI document.
    if settings.credential_keys is None:
        return partial(KeyRing.of_file, settings.credential_keys_path)
    ring = KeyRing.parse(settings.credential_keys)
    return lambda: ring
