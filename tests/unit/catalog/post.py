"""Where notices arrive in tests: a real SMTP server and a real HTTP server, each on a port of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP


@dataclass
class PostOffice:
    """An SMTP server. `replies` are answers to the next recipients, before it takes them again."""

    port: int = 0
    mails: list[tuple[list[str], Message]] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)

    async def handle_RCPT(self, _s: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:
        """Take a recipient, or refuse it."""
        if self.replies:
            return self.replies.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        """Take a mail."""
        self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=default)))
        return "250 OK"


@asynccontextmanager
async def post_office() -> AsyncIterator[PostOffice]:
    """Serve SMTP on this loop."""
    office = PostOffice()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(office, loop=loop), "127.0.0.1", 0)
    office.port = server.sockets[0].getsockname()[1]
    try:
        yield office
    finally:
        server.close()
        await server.wait_closed()


@dataclass
class Endpoint:
    """An HTTP server that keeps what is posted. `statuses` are the next answers, before it says 204 again."""

    url: str = ""
    calls: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head)}
        self.calls.append((headers, await reader.readexactly(int(headers["content-length"]))))
        status = self.statuses.pop(0) if self.statuses else 204
        writer.write(f"HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def endpoint() -> AsyncIterator[Endpoint]:
    """Serve HTTP on this loop."""
    found = Endpoint()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()
