"""Bare metal by the whole product on a real Ironic: orders over HTTP, to ready and back to the pool."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncssh
import pytest

from tests.e2e.stage import Stage
from tests.support import laws
from tests.support.ironic import Ironic
from tests.support.lossy import Lossy
from tests.support.machines import CARDS, Machines
from tests.support.product_embedded import Embedded
from tests.support.servers import wait_until

pytestmark = pytest.mark.integration

NODES = 10
ORDER_SECONDS = 60.0
BAD = 400
STEPS = 6


class Yard:
    """A product before an Ironic with ten nodes of its own."""

    def __init__(self, name: str, ironic: Ironic, machines: Machines, tail: int) -> None:
        self.ironic, self.machines = ironic, machines
        self.nodes = {f"{name}-{number}": f"127.0.{tail}.{number}" for number in range(1, NODES + 1)}
        for node, address in self.nodes.items():
            machines.listen(node, address)
            ironic.enrol(node, address, until="enroll")
        self.proxy = Lossy(ironic.port)
        self.product = Embedded(
            manual=False,
            forked=True,
            environment={
                "QM_BARE_METAL_URL": f"ironic+{self.proxy.url}",
                "QM_BARE_METAL_IMAGES": f'{{"{name}-ubuntu": {{"image_source": "http://images/ubuntu"}}}}',
                "QM_BARE_METAL_RESOLVES": "localhost",
                "QM_BARE_METAL_SSH_PORT": str(machines.port),
                "QM_BARE_METAL_POLL_SECONDS": "0.1",
                "QM_LEASE_SECONDS": "1",
            },
        )

    def close(self) -> None:
        """Take the nodes out."""
        for node in self.nodes:
            self.ironic.scrap(node)


@pytest.fixture
def yard(ironic: Ironic, machines: Machines, request: pytest.FixtureRequest) -> Iterator[Yard]:
    """A yard for one test."""
    name = f"yard{request.node.name.count('_')}"
    one = Yard(name, ironic, machines, 10 + request.node.name.count("_"))
    with one.proxy, one.product:
        yield one
        one.product.settled()
        assert laws.at_rest(one.product.facts()) == []
    one.close()


@pytest.fixture
def play(yard: Yard) -> Iterator[Stage]:
    """Its people and its fleet."""
    name = next(iter(yard.nodes)).partition("-")[0]
    stage = Stage(yard.product, name, nodes=NODES, cards=CARDS)
    yield stage
    stage.close()


def reach(play: Stage, phase: str, *orders: str) -> None:
    """Wait until all orders are in a phase."""
    wait_until(lambda: set(play.phases(*orders)) == {phase}, ORDER_SECONDS, lambda: str(_stories(play, orders)))


def _stories(play: Stage, orders: Sequence[str]) -> list[object]:
    shown = [play.dev.call("GET", f"/environments/{order}") for order in orders]
    return [[(run["step"], run["direction"], run["state"], run["error"]) for run in one["steps"]] for one in shown]


async def enters(host: str, port: int, user: str, key: str) -> bool:
    """Tell whether a key lets a user in."""
    try:
        async with asyncssh.connect(
            host, port, username=user, client_keys=[asyncssh.import_private_key(key)], known_hosts=None, config=None
        ):
            return True
    except (OSError, asyncssh.Error):
        return False


async def test_ten_orders_side_by_side_are_entered_with_their_keys_and_leave_nothing(yard: Yard, play: Stage) -> None:
    orders = [str(play.dev.submit(play.body("bare_metal", CARDS))["order"]) for _ in range(NODES)]
    reach(play, "active", *orders)
    keys = {}
    for order in orders:
        credential = play.dev.call("GET", f"/orders/{order}/credentials")
        where = credential["endpoint"]
        keys[(where["hosts"][0], where["port"], where["user"])] = credential["values"]["private_key"]
    assert len(keys) == NODES
    own = [await enters(*place, key) for place, key in keys.items()]
    another = list(keys.values())
    foreign = [await enters(*place, key) for place, key in zip(keys, another[1:] + another[:1], strict=True)]
    assert (own, foreign) == ([True] * NODES, [False] * NODES)
    for order in orders:
        play.dev.call("POST", f"/orders/{order}/release", {})
    reach(play, "closed", *orders)
    assert not any([await enters(*place, key) for place, key in keys.items()])
    assert {play.dev.order(order)["receipt"]["outcome"] for order in orders} == {"clean"}
    assert yard.ironic.left(*yard.nodes) == []
    assert all(yard.machines.kept(node)["drive"] is None for node in yard.nodes), "the disks are wiped"


def test_a_provisioner_killed_after_each_change_at_ironic_makes_one_of_each_and_leaves_nothing(
    yard: Yard, play: Stage
) -> None:
    changes: list[str] = []
    product = yard.product.parts["product"]

    def kill(request: str, status: int) -> None:
        if not request.startswith("GET") and status < BAD and request not in changes:
            changes.append(request)
            product.kill9()

    yard.proxy.after = kill
    order = str(play.dev.submit(play.body("bare_metal", CARDS, ssh_keys=[public_key(yard.product.folder)]))["order"])
    lives = live_until(yard, order, "environment.ready")
    assert lives == len(changes) >= STEPS
    reach(play, "active", order)
    assert len(yard.ironic.call("GET", "/allocations")["allocations"]) == 1
    assert [change.count('"target": "active"') for change in changes].count(1) == 1
    play.dev.call("POST", f"/orders/{order}/release", {})
    lives += live_until(yard, order, "environment.released")
    assert lives == len(changes) >= 2 * STEPS
    reach(play, "closed", order)
    assert play.dev.order(order)["receipt"]["outcome"] == "clean"
    assert yard.ironic.left(*yard.nodes) == []


def live_until(yard: Yard, order: str, fact: str) -> int:
    """Start the product again whenever it was killed, until an order has a fact; return how often that was."""
    product, lives = yard.product.parts["product"], 0
    while True:
        wait_until(lambda: not product.runs() or _has(yard, order, fact), ORDER_SECONDS)
        if product.runs():
            return lives
        product.restart()
        lives += 1


def _has(yard: Yard, order: str, fact: str) -> bool:
    return any(one.body["type"].startswith(fact) and order in one.stream for one in yard.product.facts())


def public_key(folder: Path) -> str:
    """Return a public key of a user's own, made by OpenSSH."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "own"], check=True)
    return (folder / "own.pub").read_text().strip()
