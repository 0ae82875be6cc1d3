"""Parts of cards through the product: what the scheduler alone decides on the same orders is what the product does."""

from random import Random
from typing import Any

import pytest

from qm_events.specs import PlacedUnit
from qm_scheduler.inventory import Describe
from tests.e2e.stage import MEMORY_MIB, Stage
from tests.support.product_embedded import Embedded
from tests.unit.scheduler.slices import milli
from tests.unit.scheduler.yard import Yard, node_fact, request

NAME, NODES, CARDS, ORDERS = "mix", 3, 4, 36


def decided(wanted: list[str]) -> list[list[PlacedUnit]]:
    """Place the orders one by one in memory."""
    yard = Yard()
    for n in range(1, NODES + 1):
        fact = node_fact(f"{NAME}-{n}", {NAME: CARDS}, cpu=64_000, memory=262_144)
        cards = [card.model_copy(update={"card": f"{NAME}-{n}-c{at}"}) for at, card in enumerate(fact.cards)]
        yard.ask(f"node/{NAME}-{n}", Describe(fact.model_copy(update={"cards": tuple(cards)})))
    for n, what in enumerate(wanted):
        yard.order(f"o{n:03}", asked(what))
    return [list(yard.doc(f"o{n:03}").units) for n in range(len(wanted))]


def asked(what: str) -> Any:
    cuts: dict[str, Any] = {"milli": milli(333), "1": None}
    return request((NAME,), cpu=1_000, memory=1_024, cut=cuts[what], card_memory=MEMORY_MIB)


@pytest.mark.e2e
def test_the_product_places_parts_of_cards_as_the_scheduler_alone_does() -> None:
    chance = Random(5)
    wanted = [chance.choice(("milli", "milli", "1")) for _ in range(ORDERS)]
    with Embedded() as product:
        play = Stage(product, NAME, nodes=NODES, cards=CARDS, slices=True)
        orders = [play.order("kubernetes", specification=f"{NAME}-{what}") for what in wanted]
        placed = [(play.dev.order(order)["allocation"] or {"units": []})["units"] for order in orders]
        play.close()
    right = [[unit.model_dump(mode="json") for unit in units] for units in decided(wanted)]
    assert placed == right
    assert any(not units for units in right)
    assert sum(bool(units and units[0]["slice"]) for units in right) >= ORDERS // 3
