"""The catalog's own part of a simulation, and what its peers say; a peer in trouble is named, never hidden."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from qm_events.specs import WaitCode, WaitReason
from qm_service.simulation import Admissibility, ApprovalRoute, RouteLevel, Standing
from tests.unit.catalog.stage import ORDER, Stage, staged

WAITS = WaitReason(code=WaitCode.CAPACITY_IN_USE, figures={"free": 0}, counterfactual="2 cards", remedy="Wait.")
ADMITTED = Admissibility(
    outcome="admitted",
    code="",
    quota="fits",
    effects=[],
    violations=[],
    remedy="",
    remedies=[],
    approval=None,
    covered_until=None,
    borrowed={},
    reported=[],
)
LEVEL = RouteLevel(level=1, rule="any", needed=1, approvers=["ann"], awaited=["ann"], lapses_at=None)
ASKED = ADMITTED.model_copy(
    update={"outcome": "pending_approval", "approval": ApprovalRoute(policy="big", levels=[LEVEL, LEVEL])}
)
WAITING = Standing(placed=False, position=3, reasons=[WAITS], starts_at=None)


@dataclass
class Peer:
    """A service that gives one answer to all, or none."""

    status: int = 200
    answer: str | None = None
    """None: it never answers."""
    url: str = ""
    heard: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    calls: set[asyncio.Task[None]] = field(default_factory=set)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a call."""
        self.calls.add(asyncio.ensure_future(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call."""
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in head)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.heard.append((line.split()[1], headers, body))
        if self.answer is None:
            await asyncio.Event().wait()
        told = (self.answer or "").encode()
        size = f"connection: close\r\ncontent-length: {len(told)}"
        writer.write(f"HTTP/1.1 {self.status} X\r\n{size}\r\n\r\n".encode() + told)
        await writer.drain()


@asynccontextmanager
async def served(peer: Peer) -> AsyncIterator[Peer]:
    server = await asyncio.start_server(peer.accept, "127.0.0.1", 0)
    peer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield peer
    finally:
        server.close()
        if peer.answer is None:
            for call in peer.calls:
                call.cancel()
        await asyncio.gather(*peer.calls, return_exceptions=True)


@asynccontextmanager
async def joined(folder: Path, admission: Peer, scheduler: Peer) -> AsyncIterator[Stage]:
    async with served(admission), served(scheduler):
        urls = {"admission_url": admission.url, "scheduler_url": scheduler.url + "/"}
        async with staged(folder, **urls, peer_seconds=0.3) as stage:
            yield stage


async def test_the_catalogs_own_part_is_told_by_a_catalog_that_knows_no_peer(stage: Stage) -> None:
    quote = await stage.done("POST", "/orders:simulate", ORDER | {"count": 2, "duration": "PT90M"})
    assert (quote["cards"], quote["price_per_hour"], quote["price_total"]) == (4, "10.00", "15.000000000")
    assert (quote["admission"], quote["queue"], quote["reasons"]) == (None, None, None)
    assert [(it["part"], it["code"]) for it in quote["silent"]] == [
        ("admission", "not-configured"),
        ("queue", "not-configured"),
    ]
    assert (await stage.done("GET", "/orders"))["items"] == []


async def test_the_peers_are_asked_with_the_callers_token_about_exactly_what_was_resolved(tmp_path: Path) -> None:
    admission, scheduler = Peer(answer=ADMITTED.model_dump_json()), Peer(answer=WAITING.model_dump_json())
    async with joined(tmp_path, admission, scheduler) as stage:
        reply = await stage.call("POST", "/orders:simulate", ORDER)
        quote = reply.json()
    for peer, path in ((admission, "/v1/quotas/acme/vision:simulate"), (scheduler, "/v1/queue/acme/vision:simulate")):
        ((called, headers, body),) = peer.heard
        assert (called, body) == (path, {"request": quote["request"]})
        assert headers["authorization"] == reply.request.headers["authorization"]
        assert headers["traceparent"]
    assert quote["silent"] == []
    assert quote["admission"] == ADMITTED.model_dump(mode="json")
    assert quote["queue"] == WAITING.model_dump(mode="json")
    (reason,) = quote["reasons"]
    assert (reason["code"], reason["counterfactual"], reason["remedy"]) == ("CapacityInUse", "2 cards", "Wait.")


async def test_who_must_be_asked_first_waits_for_people_and_for_no_card(tmp_path: Path) -> None:
    admission, scheduler = Peer(answer=ASKED.model_dump_json()), Peer(answer=WAITING.model_dump_json())
    async with joined(tmp_path, admission, scheduler) as stage:
        quote = await stage.done("POST", "/orders:simulate", ORDER)
    (reason,) = quote["reasons"]
    assert (reason["code"], reason["figures"]["policy"], reason["figures"]["levels"]) == ("ApprovalPending", "big", 2)
    assert quote["queue"]["position"] == 3


Break = Callable[[Peer], None]


def down(peer: Peer) -> None:
    peer.url = "http://127.0.0.1:1"


def slow(peer: Peer) -> None:
    peer.answer = None


def standing_by(peer: Peer) -> None:
    peer.status, peer.answer = 503, json.dumps({"code": "service-unavailable"})


def lost_its_mind(peer: Peer) -> None:
    peer.status, peer.answer = 502, "<html>"


def older(peer: Peer) -> None:
    peer.answer = "{}"


def no_json(peer: Peer) -> None:
    peer.answer = "what?"


@pytest.mark.parametrize(
    ("trouble", "code", "word"),
    [
        (down, "unreachable", "ConnectError"),
        (slow, "too-slow", "0.3 s"),
        (standing_by, "refused", "503 service-unavailable"),
        (lost_its_mind, "refused", "502"),
        (older, "not-understood", "agreed"),
        (no_json, "not-understood", "agreed"),
    ],
)
@pytest.mark.parametrize("which", ["admission", "queue"])
async def test_a_peer_in_trouble_makes_its_part_null_and_is_named(
    tmp_path: Path, trouble: Break, code: str, word: str, which: str
) -> None:
    peers = {"admission": Peer(answer=ADMITTED.model_dump_json()), "queue": Peer(answer=WAITING.model_dump_json())}
    async with served(peers["admission"]), served(peers["queue"]):
        trouble(peers[which])
        urls = {"admission_url": peers["admission"].url, "scheduler_url": peers["queue"].url}
        async with staged(tmp_path, **urls, peer_seconds=0.3) as stage:
            quote = await stage.done("POST", "/orders:simulate", ORDER)
    (silence,) = quote["silent"]
    assert (silence["part"], silence["code"]) == (which, code)
    assert word in silence["detail"]
    other = ({"admission", "queue"} - {which}).pop()
    assert (quote[which], quote["reasons"]) == (None, None)
    assert quote[other] is not None
    assert quote["cards"] == 2


async def test_what_waits_for_people_is_known_without_the_queue(tmp_path: Path) -> None:
    admission, scheduler = Peer(answer=ASKED.model_dump_json()), Peer(status=500, answer="")
    async with joined(tmp_path, admission, scheduler) as stage:
        quote = await stage.done("POST", "/orders:simulate", ORDER)
    assert [it["code"] for it in quote["reasons"]] == ["ApprovalPending"]
    assert [it["part"] for it in quote["silent"]] == ["queue"]
