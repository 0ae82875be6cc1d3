"""The settings of the provisioner."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qm_service.settings import Settings as Common


class Settings(Common):
    """What the provisioner needs beside the settings of every service."""

    backends: Literal["simulated"] = "simulated"
    """Which clouds are used."""
    simulated_clouds: Path = Path("clouds.sqlite")
    """The file of the simulated clouds; shared by all processes that may be the provisioner."""
    credential_keys: str | None = Field(default=None, repr=False)
    """The key ring, `<id>:<base64url of 32 bytes>` each, the first encrypts. None = `credential_keys_path`."""
    credential_keys_path: Path = Path("credential-keys")
    """A file with the key ring; made where there is none. All processes of the provisioner need the same."""
    backend_calls: int = Field(default=64, ge=1)
    """How many calls each backend has to bear at once."""
    bare_metal_url: str = Field(default="", repr=False)
    """Ironic, `ironic+http(s)://[user:password@]host:port` or `ironic+cloud://NAME` of `clouds.yaml`.
    Empty = simulated."""
    bare_metal_images: dict[str, dict[str, str]] = Field(default_factory=dict)
    """JSON: by the catalogue's name of an image, the entries of Ironic's `instance_info` that deploy it."""
    bare_metal_bootstrap: Path | None = None
    """A script that each machine runs at its first boot: driver, monitoring agent, registration. None = the image has
    them."""
    bare_metal_checks: dict[str, str] = Field(default_factory=dict)
    """JSON: by check, a shell command that a user runs on the machine, instead of the built-in one."""
    bare_metal_resolves: str = ""
    """A name that machines must be able to resolve; empty = the host of the issuer."""
    bare_metal_ssh_port: int = Field(default=22, ge=1, le=65_535)
    bare_metal_poll_seconds: float = Field(default=5.0, gt=0)
    """How often Ironic is asked what has become of what was asked for; one answer serves all orders."""
