"""How a check enters a machine: as the user, with the key that was issued."""

from dataclasses import dataclass
from typing import Protocol

import asyncssh

from qm_provisioner.ports import BackendError, Secret

_CONNECT_SECONDS = 10.0
_COMMAND_SECONDS = 120.0
_OUTPUT_MAX_CHARS = 300


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that came to its end."""

    status: int
    output: str


class Unreachable(Exception):
    """Nothing answers there as a machine would."""


class Refused(Exception):
    """The machine answers and does not let this credential in."""


class Reach(Protocol):
    """The way in."""

    async def run(self, host: str, port: int, user: str, secret: Secret, command: str) -> Ran:
        """Run a shell command. Raises Unreachable, Refused, BackendError for one that does not end."""


class SshReach:
    """SSH. The key is in memory alone. Whose host key it is cannot be told: the machine made it at its first boot."""

    async def run(self, host: str, port: int, user: str, secret: Secret, command: str) -> Ran:
        """See `Reach.run`."""
        key = asyncssh.import_private_key(secret.values["private_key"])
        try:
            async with asyncssh.connect(
                host,
                port,
                username=user,
                client_keys=[key],
                known_hosts=None,
                agent_path=None,
                config=None,
                connect_timeout=_CONNECT_SECONDS,
                login_timeout=_CONNECT_SECONDS,
            ) as machine:
                done = await machine.run(command, timeout=_COMMAND_SECONDS)
        except asyncssh.PermissionDenied:
            raise Refused(f"{host} refuses the credential") from None
        except (asyncssh.TimeoutError, asyncssh.ChannelOpenError):
            raise BackendError(f"{host} let the user in, but did not answer in time") from None
        except (OSError, asyncssh.Error) as error:
            raise Unreachable(f"{host} does not answer: {type(error).__name__}") from None
        status = -1 if done.exit_status is None else done.exit_status
        said = "".join(str(part) for part in (done.stdout, done.stderr) if part).strip()
        return Ran(status, said[-_OUTPUT_MAX_CHARS:])
