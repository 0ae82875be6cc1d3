"""An agent on the nodes that says without pause that cards are sick and well again, whatever falls down around it."""

import random
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import httpx

from qm_client.sdk import ApiError, Client
from tests.support.product import Product

_PAUSE_SECONDS = 0.2
_SOURCE = "agent"
_STATES = ("suspect", "failed", "unknown", "healthy", "healthy", "healthy")
_REPAIRED = 0.3
"""How often an operator clears the card as well: with all cards isolated nothing would happen."""
_TIMEOUT_SECONDS = 5.0


class Agent(threading.Thread):
    """What it says follows from its name; `told` counts what was taken."""

    def __init__(self, product: Product, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.told = 0
        self._product = product
        self._chance = random.Random(name)
        self._over = threading.Event()

    def run(self) -> None:
        """Go on until it is over."""
        with self._product.client(timeout=_TIMEOUT_SECONDS) as client:
            cards = [str(card["card"]) for card in client.pages("/fleet/cards", limit=500)]
            while not self._over.wait(self._chance.random() * 2 * _PAUSE_SECONDS):
                # Nobody says it again: what is not heard is as if it had not been seen.
                with suppress(httpx.TransportError, ApiError):
                    card = self._chance.choice(cards)
                    say(client, card, self._chance.choice(_STATES))
                    self.told += 1
                    if self._chance.random() < _REPAIRED:
                        clear(client, card)

    def stop(self) -> None:
        """End, within the time that one call may take."""
        self._over.set()
        self.join(_TIMEOUT_SECONDS * 2)


def say(client: Client, card: str, status: str) -> None:
    """Tell the health of a card. Raises ApiError, httpx.TransportError."""
    seen: dict[str, Any] = {"card": card, "source": _SOURCE, "status": status}
    client.call("POST", "/fleet/health", [seen | {"observed_at": datetime.now(UTC).isoformat()}])


def heal(client: Client) -> None:
    """Repair all: every card is well, and those that were isolated are cleared."""
    for card in list(client.pages("/fleet/cards", limit=500)):
        say(client, card["card"], "healthy")
        clear(client, card["card"])


def clear(client: Client, card: str) -> None:
    """Take a card out of quarantine. Raises ApiError, httpx.TransportError."""
    client.call("POST", f"/fleet/cards/{card}/clear", {})
