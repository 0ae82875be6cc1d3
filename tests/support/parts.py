"""What the distributed product is made of beside its servers: service processes, the origin, the issuer's keys."""

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.servers import HOST, Server, free_port, install

ROOT = Path(__file__).parents[2]
NGINX_CONF = ROOT / "deploy" / "nginx.conf"


class Program(Server):
    """A Python module of the product as a process: `python -m module arguments`, with `environment` added to ours."""

    def __init__(self, folder: Path, port: int, environment: Mapping[str, str], *command: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        given = [f"{name}={value}" for name, value in environment.items()]
        super().__init__(["env", *given, sys.executable, "-m", *command], port, folder)

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://{HOST}:{self.port}"


class Origin(Server):
    """nginx with `deploy/nginx.conf`: as it is, but for the addresses of this machine."""

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port, settings = free_port(), folder / "nginx.conf"
        settings.write_text(origin_settings(folder, port, ports))
        options = f"daemon off; pid {folder}/pid; error_log stderr;" + (" user root;" if os.geteuid() == 0 else "")
        super().__init__([nginx_binary(), "-p", str(folder), "-c", str(settings), "-g", options], port, folder)


def origin_settings(folder: Path, port: int, ports: Mapping[str, int]) -> str:
    """Return the settings with the ports of the services, listening on `port`."""
    text = re.sub(r"server (\w+):8080;", lambda found: f"server {HOST}:{ports[found[1]]};", NGINX_CONF.read_text())
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = "".join(f"  {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    return text.replace("listen 8080;", f"listen {HOST}:{port};").replace("http {\n", f"http {{\n{own}")


def nginx_binary() -> str:
    """Return the path of nginx; installed, and not started, where there is none."""
    where = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if not (found := shutil.which("nginx", path=where)):
        with _services_stay_down():
            install("nginx-light")
        found = shutil.which("nginx", path=where)
    if not found:
        raise RuntimeError("nginx-light brought no nginx")
    return found


@contextmanager
def _services_stay_down() -> Iterator[None]:
    """Keep Debian from starting what it installs."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


@contextmanager
def keys_served(keys: Mapping[str, Any]) -> Iterator[str]:
    """Serve a JWK set on loopback, and yield its URL."""
    body = json.dumps(keys).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="keys", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
