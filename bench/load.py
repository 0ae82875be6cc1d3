"""The load generator, a process of its own: `python -m bench.load URL TOKEN ORDERS CLIENTS BODY`.

Prints one JSON object: the latency of each call in seconds. Speaks HTTP by hand, because a full client costs the two
cores more than the product under test.
"""

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

import uvloop


async def _client(host: str, port: int, head: bytes, body: bytes, todo: list[int], took: list[float]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    while todo:
        todo.pop()
        began = time.perf_counter()
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        lower = answer.lower()
        at = lower.index(b"content-length:") + 15
        content = await reader.readexactly(int(lower[at : lower.index(b"\r\n", at)]))
        took.append(time.perf_counter() - began)
        if b" 202 " not in answer[:16]:
            raise RuntimeError(f"{answer!r} {content[:400]!r}")
    writer.close()


async def _run(url: str, token: str, orders: int, clients: int, body: bytes) -> list[float]:
    place = urlsplit(url)
    head = (
        f"POST /v1/orders HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    todo, took = list(range(orders)), list[float]()
    calls = [_client(place.hostname or "", place.port or 80, head, body, todo, took) for _ in range(clients)]
    await asyncio.gather(*calls)
    return took


def main() -> None:
    """Place the orders and print what they took."""
    url, token, orders, clients, body = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        took = runner.run(_run(url, token, int(orders), int(clients), body.encode()))
    print(json.dumps(took))


if __name__ == "__main__":
    main()
