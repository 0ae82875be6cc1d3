"""The embedded product as forks of a process that has all its code in memory.

A life costs no imports, so tests can kill it as often as there are places to die at.
"""

import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.servers import HOST, START_SECONDS, Server, accepts, wait_until

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["qm_client.embedded.up", "qm_provisioner.adapters.ironic_setup"])


class Forked(Server):
    """`qm up` with its options, by name."""

    def __init__(self, folder: Path, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__([], options["port"], folder)
        self.url = f"http://{HOST}:{self.port}"
        self._arguments = (dict(environment), dict(options), folder / "output")
        self._child: multiprocessing.process.BaseProcess | None = None

    def start(self) -> Self:
        """See `Server.start`."""
        self._child = _FORKS.Process(target=_live, args=self._arguments, daemon=True)
        self._child.start()
        wait_until(lambda: accepts(self.port), START_SECONDS, self._output)
        return self

    def stop(self) -> None:
        """See `Server.stop`: a life here always ends by a kill."""
        self.kill9()

    def kill9(self) -> None:
        """See `Server.kill9`."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.join()
            child.close()

    def runs(self) -> bool:
        """See `Server.runs`."""
        return self._child is not None


def _live(environment: dict[str, str], options: dict[str, Any], output: Path) -> None:
    from qm_client.embedded.up import serve

    os.environ.update(environment)
    with output.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    serve(host=HOST, **options)
