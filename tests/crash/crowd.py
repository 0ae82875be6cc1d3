"""Users who order, end and ask without pause while the product falls down around them, and who insist.

Whatever gets no answer is asked again with the same Idempotency-Key until it is answered: so each accepted order is
known here, and each key must have led to one order.
"""

import random
import threading
from collections import Counter
from typing import Any

import httpx

from qm_client.sdk import Json
from tests.e2e.stage import MODELS, Stage
from tests.support.product import Product

CLIENTS = 4
OPEN_ORDERS = 8
"""What a user has at once: together more than fleet and quota can bear."""
LABEL = "n"
_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.03
_AGAIN_SECONDS = 0.15
_AWAY = frozenset({502, 503, 504})


class User(threading.Thread):
    """One of them. `accepted`: label -> order; `surprises`: answers that nobody may get."""

    def __init__(self, product: Product, stage: Stage, name: str, over: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.accepted: dict[str, str] = {}
        self.surprises: list[str] = []
        self.calls: Counter[str] = Counter()
        self._product = product
        self._stage = stage
        self._chance = random.Random(name)
        self._over = over
        self._open: list[str] = []
        headers = {"authorization": f"Bearer {product.token(f'{stage.name}-dev')}"}
        self._http = httpx.Client(
            base_url=f"{product.url}/v1", headers=headers, timeout=_ANSWER_SECONDS, trust_env=False
        )

    def run(self) -> None:
        """Go on until it is over."""
        with self._http:
            while not self._over.is_set():
                self._one()
                self._over.wait(self._chance.random() * 2 * _PAUSE_SECONDS)

    def _one(self) -> None:
        if len(self._open) < OPEN_ORDERS and self._chance.random() < 0.5:
            self._submit(f"{self.name}-{len(self.accepted)}")
        elif self.accepted and self._chance.random() < 0.2:
            self._submit(self._chance.choice(list(self.accepted)))
        elif self._open and self._chance.random() < 0.5:
            self._end(self._open.pop(self._chance.randrange(len(self._open))))
        else:
            self._insist("GET", self._chance.choice(["/orders", "/queue", "/fleet/capacity", "/usage"]))

    def _submit(self, label: str) -> None:
        answer = self._insist("POST", "/orders", self._body(label), label)
        if answer is None or answer.status_code != 202:
            return
        order, new = str(answer.json()["order"]), label not in self.accepted
        if self.accepted.setdefault(label, order) != order:
            self.surprises.append(f"{label} is order {self.accepted[label]} and {order}")
        if new:
            self._open.append(order)

    def _body(self, label: str) -> Json:
        """Return the order of this label: always the same."""
        chance = random.Random(label)
        model = chance.choice(MODELS)
        more: Json = {"labels": {LABEL: label}, "priority": chance.randrange(3)}
        if chance.random() < 0.3:
            more["duration"] = f"PT{chance.randint(1, 4)}S"
        cards = 8 if model == "bare_metal" and chance.random() < 0.3 else chance.choice([1, 1, 4])
        return self._stage.body(model, cards, **more)

    def _end(self, order: str) -> None:
        self._insist("POST", f"/orders/{order}/{self._chance.choice(['release', 'cancel'])}", {}, f"end {order}")

    def _insist(self, method: str, path: str, body: Any = None, key: str = "") -> httpx.Response | None:
        """Ask until there is an answer, or it is over; what is an answer to nothing lawful is noted."""
        headers = {"idempotency-key": key} if key else {}
        while not self._over.is_set():
            try:
                answer = self._http.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                self.calls["cut off"] += 1
            else:
                self.calls[str(answer.status_code)] += 1
                if answer.status_code not in _AWAY:
                    if not answer.is_success:
                        self.surprises.append(f"{method} {path}: {answer.status_code} {answer.text}")
                    return answer
            self._over.wait(_AGAIN_SECONDS)
        return None


class Crowd:
    """All users of a storm; what they do follows from its name."""

    def __init__(self, product: Product, stage: Stage, name: str) -> None:
        self._over = threading.Event()
        self.users = [User(product, stage, f"{name}-{number}", self._over) for number in range(CLIENTS)]

    def start(self) -> None:
        """Begin."""
        for user in self.users:
            user.start()

    def stop(self) -> None:
        """End, within the time that one call may take."""
        self._over.set()
        for user in self.users:
            user.join(_ANSWER_SECONDS * 3)

    @property
    def accepted(self) -> dict[str, str]:
        """Every order that somebody was told of, by label."""
        return {label: order for user in self.users for label, order in user.accepted.items()}

    @property
    def surprises(self) -> list[str]:
        """Every answer that nobody may get."""
        return [surprise for user in self.users for surprise in user.surprises]

    @property
    def calls(self) -> Counter[str]:
        """How the calls ended."""
        return sum((user.calls for user in self.users), Counter[str]())
