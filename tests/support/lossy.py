"""An HTTP proxy that can lose a request before it arrives, or its answer after it took effect."""

import http.client
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.support.servers import HOST


class Fate(Enum):
    """What becomes of a request."""

    PASSES = "passes"
    LOST = "lost"
    """It never arrives."""
    UNANSWERED = "unanswered"
    """It takes effect, and the answer is lost."""


class Lossy(AbstractContextManager["Lossy"]):
    """Stands before the server on a port of this machine. `decide` is asked for each request, `METHOD /path body`."""

    def __init__(self, port: int, decide: Callable[[str], Fate] = lambda _: Fate.PASSES) -> None:
        self.decide = decide
        self.after: Callable[[str, int], None] = lambda _, __: None
        """Called with a request and the status of its answer, before that is passed on."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = f"{self.command} {self.path} {body.decode()}"
                fate = proxy.decide(request)
                if fate is Fate.LOST:
                    self.close_connection = True
                    return
                status, headers, content = _forward(port, self.command, self.path, dict(self.headers), body)
                proxy.after(request, status)
                if fate is Fate.UNANSWERED:
                    self.close_connection = True
                    return
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Say nothing: who asked may have been killed."""

        self._server = Listener((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="lossy", daemon=True)
        self.url = f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _forward(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    hop = {"connection", "keep-alive", "transfer-encoding", "content-length"}
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request(method, path, body or None, {k: v for k, v in headers.items() if k.lower() not in hop})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, [(k, v) for k, v in answer.getheaders() if k.lower() not in hop], content
    finally:
        connection.close()
