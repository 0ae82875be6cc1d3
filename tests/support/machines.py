"""The machines that Ironic's fake hardware would boot: a real SSH server that lets in whom their config drives say.

Each machine has an address of its own in 127/8 and all have one port, as in life. What it is (on or off, and with which
drive it was deployed) is read from the file that the fake BMC and the fake disk of the node are, at every connection.
"""

import asyncio
import json
import threading
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncssh

from tests.support.servers import free_port

CARDS = 8


class Machines(AbstractContextManager["Machines"]):
    """The machines whose files are in `folder`, served by a thread of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.entered: list[tuple[str, str]] = []
        """Machine and command, of everything that ran."""
        self.cards: dict[str, int] = {}
        """How many cards a machine shows, if not CARDS."""
        self._names: dict[str, str] = {}
        self._tools = folder / "tools"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="machines", daemon=True)

    def __enter__(self) -> Self:
        for tool, script in {"check-kernel": "exit 0", "nvidia-smi": f"seq {CARDS}"}.items():
            self._tools.mkdir(exist_ok=True)
            (self._tools / tool).write_text(f"#!/bin/sh\n{script}\n")
            (self._tools / tool).chmod(0o755)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def listen(self, name: str, address: str) -> None:
        """Let a machine answer at an address."""
        self._names[address] = name
        key = asyncssh.generate_private_key("ssh-ed25519")

        async def listen() -> None:
            settings = {"server_host_keys": [key], "process_factory": self._run, "config": None}
            await asyncssh.create_server(lambda: Door(self), address, self.port, **settings)

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(30)

    def kept(self, name: str) -> dict[str, Any]:
        """Return what a machine is."""
        file = self.folder / f"{name}.json"
        return dict(json.loads(file.read_text())) if file.exists() else {"power": "power off", "drive": None}

    def called(self, connection: asyncssh.SSHServerConnection) -> str:
        """Return which machine was called."""
        return self._names[connection.get_extra_info("sockname")[0]]

    def user(self, name: str) -> dict[str, Any]:
        """Return the user of a machine as cloud-init would make him of its drive; empty where it is off or wiped."""
        kept = self.kept(name)
        if kept["power"] != "power on" or kept["drive"] is None:
            return {}
        return dict(json.loads(kept["drive"]["user_data"].removeprefix("#cloud-config\n"))["users"][0])

    async def _run(self, process: asyncssh.SSHServerProcess[str]) -> None:
        name, command = self.called(process.channel.get_connection()), process.command or "exit 1"
        self.entered.append((name, command))
        (data := self.folder / f"{name}-data").mkdir(exist_ok=True)
        # Its root file system is ours, but for these places and for who one is.
        for there, here in {"/data": str(data), "/opt/quartermaster": str(self._tools), "id -un": "echo qm"}.items():
            command = command.replace(there, here)
        shell = await asyncio.create_subprocess_shell(
            f"PATH={self._tools}:$PATH; {command}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await shell.communicate()
        with suppress(BrokenPipeError):
            process.stdout.write(output.decode())
        process.exit(shell.returncode or 0)


class Door(asyncssh.SSHServer):
    """One connection."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._name = ""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Hang up where the machine is off."""
        self._name = self._machines.called(conn)
        if not self._machines.user(self._name):
            conn.abort()

    def begin_auth(self, username: str) -> bool:
        """Let nobody in without a key."""
        return True

    def public_key_auth_supported(self) -> bool:
        """Return True: it is the only way."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Tell whether this user of the machine has the key."""
        user = self._machines.user(self._name)
        known = [asyncssh.import_public_key(line) for line in user.get("ssh_authorized_keys", ())]
        return username == user.get("name") and key.convert_to_public() in known
