"""Slices of cards through the whole product: ordered, placed, built, metered as exact parts of a card, returned."""

from fractions import Fraction
from typing import Any

import pytest

from qm_client.sdk import ApiError, Json
from tests.e2e.conftest import SetUp
from tests.e2e.stage import Stage


def parts_of(play: Stage) -> dict[str, str]:
    items = play.operator.call("GET", "/fleet/capacity")["items"]
    found: dict[str, str] = next(item for item in items if item["accelerator"] == play.name)["parts"]
    return found


def sliced(play: Stage, what: str, model: str = "kubernetes", **more: Any) -> str:
    return play.order(model, specification=f"{play.name}-{what}", **more)


def hours(play: Stage, order: str) -> list[Fraction]:
    usage, report = play.dev.order(order)["usage"], play.dev.call("GET", f"/usage/orders/{order}")
    told = [usage["billable"]["ratio"], report["billable"]["card_hours_ratio"]]
    return [Fraction(ratio) for ratio in told]


def test_seven_slices_of_a_card_are_one_card_in_quota_use_and_bill(stage: SetUp) -> None:
    play = stage("cut", cards=2, slices=True, limits={"cards": 1})
    orders = [sliced(play, "seventh") for _ in range(7)]
    assert play.phases(*orders) == ["active"] * 7
    units = [play.dev.order(order)["allocation"]["units"][0] for order in orders]
    assert len({unit["cards"][0] for unit in units}) == 1
    assert sorted(unit["slice"]["start"] for unit in units) == list(range(7))
    assert parts_of(play) == {"free": "0/1", "held": "1/1"}
    eighth = sliced(play, "seventh")
    cards = play.operator.call("GET", f"/quotas/{play.name}")["dimensions"]["cards"]
    assert (cards["used"], cards["parts_used"]) == (1, "1/1")
    assert play.reason(eighth) == "QuotaExhausted"
    used = play.pass_by(hours=1, microseconds=1)
    for order in orders:
        play.end(order)
        assert hours(play, order) == [Fraction(used, 7 * 3_600_000_000)] * 2
    assert play.phases(*orders, eighth) == ["closed"] * 7 + ["active"]
    rows = play.operator.pages("/usage", group_by="accelerator")
    mine: Json = next(row for row in rows if row["accelerator"] == play.name)
    assert Fraction(mine["billable"]["card_hours_ratio"]) == Fraction(used, 3_600_000_000)
    play.end(eighth)
    assert play.free() == (2, 0)
    assert parts_of(play) == {}


def test_what_is_built_names_the_slice_and_a_shared_card_is_never_more_than_whole(stage: SetUp) -> None:
    play = stage("part", cards=1, slices=True)
    orders = [sliced(play, "milli", "vm") for _ in range(4)]
    assert play.phases(*orders) == ["active", "active", "active", "queued"]
    assert play.reason(orders[3]) == "CapacityInUse"
    held = play.dev.order(orders[0])["allocation"]["units"][0]["slice"]
    assert held == held | {"milli": 333, "share": "333/1000"}
    play.end(orders[1])
    assert play.phases(*orders) == ["active", "closed", "active", "active"]
    play.end(orders[0], orders[2], orders[3])
    assert play.free() == (1, 0)


def test_a_slice_that_the_type_does_not_have_is_refused_with_those_that_it_has(stage: SetUp) -> None:
    play = stage("odd", cards=1, slices=True)
    body = {"name": "odd-ninth", "accelerators": [play.name], "cpu_milli": 1, "memory_mib": 1}
    with pytest.raises(ApiError, match="unknown-reference"):
        play.operator.call("POST", "/specifications", body | {"slice": {"profile": "9g.90gb"}})
    with pytest.raises(ApiError, match="unknown-reference"):
        play.operator.call("POST", "/specifications", body | {"accelerators": ["unheard"], "slice": {"share_milli": 5}})
    for wrong in ({"profile": "1g.10gb", "share_milli": 5}, {}, {"share_milli": 1_000}):
        with pytest.raises(ApiError, match="validation-failed"):
            play.operator.call("POST", "/specifications", body | {"slice": wrong})
    published = play.operator.call("POST", "/specifications", body | {"slice": {"profile": "1g.10gb"}})
    assert published["slice"]["share"] == "1/7"
    assert published["accelerator_memory_mib"] == 10_240
