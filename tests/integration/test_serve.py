"""A service as a process: it answers while what it needs is away, and ends quickly when it is asked to."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

LIMIT_SECONDS = 30.0
STOP_SECONDS = 5.0


@contextmanager
def served(folder: Path, **settings: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """Serve metering until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "QM_PORT": str(port),
        "QM_DATABASE_URL": f"sqlite+aiosqlite:///{folder / 'metering.sqlite'}",
        "QM_LOG_URL": f"sqlite:///{folder / 'log.sqlite'}",
        **settings,
    }
    with (folder / "output").open("wb") as output:
        command = [sys.executable, "-m", "qm_metering", "serve"]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                until(lambda: answers(client, "/healthz") == 200, folder)
                yield process, client
        finally:
            process.kill()
            process.wait()


def answers(client: httpx.Client, path: str) -> int:
    """Return the status of a path, 0 while nobody listens."""
    try:
        return client.get(path).status_code
    except httpx.TransportError:
        return 0


def until(condition: Callable[[], bool], folder: Path) -> None:
    """Wait for a condition. Raises AssertionError with the output of the process when it takes too long."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, (folder / "output").read_text()
        time.sleep(0.05)


def stopped(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Ask a process to end; return its exit code and the seconds that it took."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    return process.wait(LIMIT_SECONDS), time.monotonic() - started


def test_it_becomes_ready_and_ends_when_asked_also_with_a_caller_on_the_line(tmp_path: Path) -> None:
    with served(tmp_path) as (process, client):
        until(lambda: answers(client, "/readyz") == 200, tmp_path)
        code, seconds = stopped(process)
    assert (code, seconds < STOP_SECONDS) == (0, True), (code, seconds)


@pytest.mark.parametrize(
    "away",
    [{"QM_DATABASE_URL": "postgresql+asyncpg://u:p@127.0.0.1:1/none"}, {"QM_LOG_URL": "kafka://127.0.0.1:1"}],
    ids=["database", "log"],
)
def test_what_it_needs_may_be_away_at_the_start(tmp_path: Path, away: dict[str, str]) -> None:
    with served(tmp_path, **away) as (process, client):
        assert answers(client, "/readyz") == 503
        code, seconds = stopped(process)
    assert (code, seconds < STOP_SECONDS) == (0, True), (code, seconds)
