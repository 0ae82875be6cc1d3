"""The embedded product as a process of its own, as a user starts it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket

import httpx

_LIMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Served:
    """A running product."""

    url: str
    pids: tuple[int, ...]
    serving_seconds: float
    """From exec to the first 200 of /readyz."""

    def token(self, subject: str) -> str:
        """Return a token of a sample user."""
        answer = httpx.post(f"{self.url}/v1/sim/token", json={"subject": subject}, timeout=30)
        return str(answer.raise_for_status().json()["access_token"])

    def cpu_seconds(self) -> float:
        """Return what all processes have used so far, user and system."""
        return sum(_cpu_seconds(pid) for pid in self.pids)

    def rss_bytes(self) -> int:
        """Return the resident memory of all processes."""
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids) * 4096


@contextmanager
def embedded(data: Path, scenario: Path | None = None, clock: str = "wall") -> Iterator[Served]:
    """Serve `qm up` on a free port; yields once the scenario is loaded."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "qm_client", "up", "--data", str(data), "--port", str(port), "--clock", clock]
    command += [] if scenario is None else ["--scenario", str(scenario)]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        serving = _ready(url, process, started)
        assert process.stdout is not None
        # The first line comes when the scenario is loaded.
        if not process.stdout.readline():
            raise RuntimeError("the product did not start")
        yield Served(url, (process.pid,), serving)
    finally:
        process.terminate()
        process.wait(30)


def _ready(url: str, process: "subprocess.Popen[str]", started: float) -> float:
    while process.poll() is None and time.monotonic() - started < _LIMIT_SECONDS:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return time.monotonic() - started
        except httpx.TransportError:
            pass
        time.sleep(0.02)
    raise RuntimeError("the product is not ready")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
