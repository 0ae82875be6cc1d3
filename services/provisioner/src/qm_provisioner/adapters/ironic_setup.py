"""The backend of bare metal, put together from the settings."""

from urllib.parse import urlsplit

from qm_provisioner.adapters.ironic import IronicBackend, Options
from qm_provisioner.adapters.ironic_api import IronicApi, check_address
from qm_provisioner.adapters.ironic_checks import Checks
from qm_provisioner.adapters.reach import SshReach
from qm_provisioner.settings import Settings


def bare_metal(settings: Settings) -> IronicBackend:
    """Return the backend. Raises ValueError for an address that is none, OSError for an unreadable bootstrap."""
    check_address(settings.bare_metal_url)
    bootstrap = settings.bare_metal_bootstrap.read_text() if settings.bare_metal_bootstrap else ""
    options = Options(settings.bare_metal_images, bootstrap, settings.bare_metal_poll_seconds)
    name = settings.bare_metal_resolves or urlsplit(settings.issuer).hostname or settings.issuer
    checks = Checks(
        SshReach(), settings.bare_metal_ssh_port, name, settings.bare_metal_poll_seconds, settings.bare_metal_checks
    )
    return IronicBackend(IronicApi(settings.bare_metal_url), options, checks)
