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
