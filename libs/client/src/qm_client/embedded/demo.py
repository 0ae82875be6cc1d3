"""`qm demo`: the main story on a fresh embedded product, told by the API that everyone uses. Time is moved by hand."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

import httpx

from qm_client.sdk import Client, Json
from qm_client.show import ORDER_HEADS, console, emit, explain, order_line, recount

_START_SECONDS = 60.0


class StoryBroken(Exception):
    """Something did not come true; says what."""


def play() -> int:
    """Play the story; return 0 when all of it came true, else 1."""
    with tempfile.TemporaryDirectory(prefix="quartermaster-demo-") as folder, _served(Path(folder)) as url:
        try:
            _story(url)
        except StoryBroken as error:
            console.print(f"[red]the story broke: {error}[/red]")
            return 1
    console.print("\n[green]all of it came true[/green]")
    return 0


@contextmanager
def _served(data: Path) -> Iterator[str]:
    """Serve a fresh product and yield its URL."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["up", "--data", str(data), "--port", str(port), "--clock", "manual"]
    process = subprocess.Popen(  # noqa: S603 # our own program
        [sys.executable, "-m", "qm_client", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None  # noqa: S101 # PIPE was asked for
        # The first line comes when the sample world is loaded; the end of the stream, when it could not be.
        if not process.stdout.readline():
            raise StoryBroken("the product did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(_START_SECONDS)


def _as(url: str, subject: str) -> Client:
    token = httpx.post(f"{url}/v1/sim/token", json={"subject": subject}).raise_for_status().json()["access_token"]
    return Client(url, token)


ORDERS: dict[str, Json] = {
    "bare_metal": {"specification": "a100-8", "image": "ubuntu-24-04-cuda"},
    "vm": {"specification": "a100-1", "image": "ubuntu-24-04-cuda"},
    "kubernetes": {"specification": "a100-1", "image": "pytorch"},
    "maas": {"specification": "npu-1", "model": "llama-small"},
}


def _story(url: str) -> None:
    with _as(url, "alice") as alice, _as(url, "bob") as bob, _as(url, "operator") as operator:
        _say("Four orders of project vision, one for each service model")
        orders = [alice.submit({"project": "vision", "service_model": m} | body)["order"] for m, body in ORDERS.items()]
        _settle(operator)
        _table(alice, orders)
        metal = orders[0]
        _expect(alice, metal, "pending_approval")

        _say("A whole server needs approval: bob sees it and agrees")
        _approve(bob, metal)
        _settle(operator)
        _table(alice, orders)
        for order in orders:
            _expect(alice, order, "active")

        _say("Card gpu-1-c0 is sick: nobody got it")
        held = {card for order in orders for card in alice.order(order)["allocation"]["cards"]}
        if "gpu-1-c0" in held or not held:
            raise StoryBroken(f"cards held: {sorted(held)}")
        console.print(f"  held: {', '.join(sorted(held))}")

        _say("Another whole server: approved, but it has to wait, and says why")
        late = alice.submit({"project": "vision", "service_model": "bare_metal"} | ORDERS["bare_metal"])["order"]
        _settle(operator)
        _approve(bob, late)
        _settle(operator)
        explain(alice.order(late))
        _expect(alice, late, "queued")

        _say("Two hours later the first four are released; the late one gets its server")
        _settle(operator, "PT2H")
        for order in orders:
            alice.call("POST", f"/orders/{order}/release", {})
        _settle(operator)
        _table(alice, [*orders, late])
        for order in orders:
            _expect(alice, order, "closed")
        _expect(alice, late, "active")

        _say("It is released too, after one hour; every healthy card is back in the pool")
        _settle(operator, "PT1H")
        alice.call("POST", f"/orders/{late}/release", {})
        _settle(operator)
        _expect(alice, late, "closed")
        for capacity in operator.call("GET", "/fleet/capacity")["items"]:
            console.print(f"  {capacity['accelerator']}: {capacity['free']} of {capacity['total']} free")
            if capacity["held"]:
                raise StoryBroken(f"cards are still held: {capacity}")

        _say("The record of the bare-metal order, and the bill")
        recount(alice.order(metal))
        console.print("  (the whole of a record: `qm orders ORDER`)\n")
        _bill(alice, [*orders, late])


def _say(line: str) -> None:
    console.print(f"\n[bold]{line}[/bold]")


def _settle(operator: Client, advance: str = "PT0S") -> None:
    operator.call("POST", "/sim/clock", {"advance": advance})


def _table(client: Client, orders: list[str]) -> None:
    emit(None, False, (order_line(client.order(order)) for order in orders), ORDER_HEADS)


def _expect(client: Client, order: str, phase: str) -> None:
    record = client.order(order)
    if record["phase"] != phase:
        explain(record)
        raise StoryBroken(f"order {order} is {record['phase']}, not {phase}")


def _approve(approver: Client, order: str) -> None:
    for _ in range(100):
        mine = [item for item in approver.pages("/approvals", assigned_to="me") if item["order"] == order]
        if mine:
            approver.call("POST", f"/approvals/{mine[0]['approval']}/approve", {"comment": "agreed"})
            return
        time.sleep(0.05)
    raise StoryBroken(f"no approval of {order} is assigned to the approver")


BILL_US = {"bare_metal": 8 * 2, "vm": 2, "kubernetes": 2, "maas": 2}
"""Billable card-hours that the story must come to, for the first four orders."""


def _bill(client: Client, orders: list[str]) -> None:
    records = [client.order(order) for order in orders]
    rows = [
        [
            r["service_model"],
            r["cards"],
            r["usage"]["billable"]["card_hours"],
            r["cost"]["amount"],
            r["cost"]["currency"],
        ]
        for r in records
    ]
    emit(None, False, rows, ("MODEL", "CARDS", "CARD-HOURS", "COST", ""))
    for record, hours in zip(records, [*BILL_US.values(), 8], strict=True):
        if record["usage"]["billable"]["card_us"] != hours * 3_600_000_000:
            raise StoryBroken(f"{record['service_model']} was to be billed {hours} card-hours")
