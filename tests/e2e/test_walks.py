"""What happens to orders, told by the API, on the embedded and on the distributed product alike."""

import pytest

from qm_client.sdk import ApiError
from tests.e2e.conftest import SetUp
from tests.e2e.stage import MODELS

BUILD_SECONDS = 5
SLOW = {"delay_seconds": BUILD_SECONDS}
BROKEN = {"fail_for_good": True}


def test_every_service_model_walks_to_closed_and_is_billed_to_the_microsecond(stage: SetUp) -> None:
    play = stage("walk", nodes=2)
    cards = dict(zip(MODELS, (8, 4, 1, 1), strict=True))
    orders = {model: play.order(model, count) for model, count in cards.items()}
    assert play.phases(*orders.values()) == ["active"] * 4
    assert play.free() == (2, 14)
    for order in orders.values():
        assert play.dev.call("GET", f"/orders/{order}/credentials")["values"]
    short = play.pass_by(hours=1, microseconds=1)
    play.end(orders["bare_metal"], orders["maas"])
    long = short + play.pass_by(minutes=20, microseconds=333_333)
    play.end(orders["vm"], orders["kubernetes"])
    lasted = {"bare_metal": short, "maas": short, "vm": long, "kubernetes": long}
    for model, order in orders.items():
        assert play.phases(order) == ["closed"], model
        assert play.used(order) == (cards[model] * lasted[model],) * 2, model
        assert play.dev.order(order)["receipt"]["outcome"] == "clean"
        with pytest.raises(ApiError, match="credentials-revoked"):
            play.dev.call("GET", f"/orders/{order}/credentials")
    used = sum(count * lasted[model] for model, count in cards.items())
    assert (play.free(), play.quota()) == ((16, 0), {"card_hours_month": used})


def test_time_to_build_is_held_but_not_billed(stage: SetUp) -> None:
    play = stage("slow")
    with play.clouds_behave("vm", server=SLOW):
        order = play.order("vm", 4)
        assert play.phases(order) == ["provisioning"]
        built = play.pass_by(seconds=BUILD_SECONDS)
    assert play.phases(order) == ["active"]
    used = play.pass_by(minutes=7)
    play.end(order)
    assert play.used(order) == (4 * (built + used), 4 * used)


def test_a_large_order_waits_for_one_who_may_agree(stage: SetUp) -> None:
    play = stage("agree", nodes=2, approve_from=8)
    wanted, unwanted = play.order("bare_metal", 8), play.order("bare_metal", 8)
    assert play.phases(wanted, unwanted) == ["pending_approval"] * 2
    assert play.reason(wanted) == "ApprovalPending"
    asked = {item["order"]: item["approval"] for item in play.boss.pages("/approvals", assigned_to="me")}
    with pytest.raises(ApiError):
        play.dev.call("POST", f"/approvals/{asked[wanted]}/approve", {"comment": "my own"})
    play.boss.call("POST", f"/approvals/{asked[wanted]}/approve", {"comment": "agreed"})
    play.boss.call("POST", f"/approvals/{asked[unwanted]}/deny", {"comment": "too much"})
    play.product.settled()
    assert play.phases(wanted, unwanted) == ["active", "rejected"]
    play.end(wanted)
    assert play.phases(wanted) == ["closed"]
    assert play.quota() == {}


def test_an_order_waits_says_why_and_is_placed_when_cards_come_back(stage: SetUp) -> None:
    play = stage("wait")
    first, second = play.order("bare_metal", 8), play.order("vm", 4)
    assert play.phases(first, second) == ["active", "queued"]
    assert play.reason(second) == "CapacityInUse"
    assert [item["order"] for item in play.operator.pages("/queue") if item["tenant"] == "wait"] == [second]
    play.end(first)
    assert play.phases(first, second) == ["closed", "active"]
    assert play.reason(second) is None
    play.end(second)


def test_an_order_over_its_quota_is_held_until_another_ends(stage: SetUp) -> None:
    play = stage("hold", limits={"cards": 4})
    first, second = play.order("vm", 4), play.order("vm", 1)
    assert play.phases(first, second) == ["active", "held"]
    assert play.reason(second) == "QuotaExhausted"
    assert play.quota()["cards"] == 4
    play.end(first)
    assert play.phases(second) == ["active"]
    assert play.quota()["cards"] == 1
    play.end(second)
    assert play.quota() == {}


def test_a_sick_card_is_given_to_nobody(stage: SetUp) -> None:
    play = stage("sick", sick=["sick-c0"])
    order = play.order("vm", 4)
    waits = play.order("vm", 4)
    assert play.phases(order, waits) == ["active", "queued"]
    assert play.reason(waits) == "HealthyCapacityInsufficient"
    assert "sick-c0" not in play.dev.order(order)["allocation"]["cards"]
    play.pass_by(seconds=1)
    seen = {"source": "scenario", "status": "healthy", "observed_at": play.product.now().isoformat()}
    play.operator.call("POST", "/fleet/health", [{"card": "sick-c0"} | seen])
    play.product.settled()
    assert play.phases(waits) == ["active"]
    play.end(order, waits)


def test_an_order_can_be_cancelled_in_every_phase(stage: SetUp) -> None:
    play = stage("cancel", limits={"cards": 12}, approve_from=8)
    orders = {"pending_approval": play.order("bare_metal", 8), "active": play.order("vm", 4)}
    with play.clouds_behave("kubernetes", namespace=SLOW):
        orders["provisioning"] = play.order("kubernetes", 4)
        orders["queued"], orders["held"] = play.order("vm", 4), play.order("vm", 1)
        assert play.phases(*orders.values()) == list(orders)
        play.end(*orders.values(), how="cancel")
        play.pass_by(seconds=BUILD_SECONDS)
    ended = {phase: "closed" if phase == "active" else "cancelled" for phase in orders}
    assert {phase: play.phases(order)[0] for phase, order in orders.items()} == ended
    before = [play.dev.order(order) for order in orders.values()]
    play.end(*orders.values(), how="cancel")
    assert [play.dev.order(order) for order in orders.values()] == before
    assert (play.free(), play.quota()) == ((8, 0), {})


def test_an_order_ends_at_the_promised_instant(stage: SetUp) -> None:
    play = stage("expire")
    lasting = play.order("vm", 8, duration="PT1H")
    end = play.product.now().replace(microsecond=0).isoformat()
    late = play.product.now().year + 1
    waiting = play.order("vm", 1, expires_at=end.replace(end[:4], str(late)))
    assert play.phases(lasting, waiting) == ["active", "queued"]
    assert play.used(lasting)[1] == 0
    hour = play.pass_by(hours=1)
    assert play.phases(lasting, waiting) == ["closed", "active"]
    assert play.dev.order(lasting)["ended_by"] == "expired"
    assert play.used(lasting) == (8 * hour, 8 * hour)
    play.end(waiting)


def test_a_waiting_order_expires_without_ever_holding_a_card(stage: SetUp) -> None:
    play = stage("lapse")
    first = play.order("vm", 8)
    at = play.product.now().replace(microsecond=0)
    waiting = play.order("vm", 1, expires_at=at.replace(year=at.year + 1).isoformat())
    play.pass_by(days=366)
    assert play.phases(first, waiting) == ["active", "expired"]
    assert play.used(waiting) == (0, 0)
    play.end(first)


def test_a_build_that_fails_costs_nothing_and_gives_its_cards_back(stage: SetUp) -> None:
    play = stage("fail")
    with play.clouds_behave("vm", server=BROKEN):
        order = play.order("vm", 4)
        play.pass_by(minutes=10)
    assert play.phases(order) == ["failed"]
    assert play.reason(order) == "EnvironmentFailed"
    assert play.used(order)[1] == 0
    assert (play.free(), play.quota()) == ((8, 0), {})


def test_a_release_that_fails_isolates_the_cards_and_frees_the_user(stage: SetUp) -> None:
    play = stage("stuck")
    order = play.order("vm", 4)
    hour = play.pass_by(hours=1)
    with play.clouds_behave("vm", undo_volume=BROKEN):
        play.end(order)
        play.pass_by(minutes=10)
    record = play.dev.order(order)
    assert (record["phase"], record["receipt"]["outcome"]) == ("closed", "quarantined")
    assert play.used(order)[1] == 4 * hour
    assert (play.free(), play.quota()) == ((4, 0), {"card_hours_month": 4 * hour})
    isolated = sorted(record["allocation"]["quarantined"])
    assert isolated == sorted(record["allocation"]["cards"])
    for card in isolated:
        play.operator.call("POST", f"/fleet/cards/{card}/clear", {})
    assert play.free() == (8, 0)


def test_one_key_is_one_order(stage: SetUp) -> None:
    play = stage("once")
    body = play.body("vm")
    orders = {play.dev.submit(body, idempotency_key="a")["order"] for _ in range(3)}
    assert len(orders) == 1
    with pytest.raises(ApiError, match="idempotency-key-reused"):
        play.dev.submit(body | {"priority": 1}, idempotency_key="a")
    play.product.settled()
    play.end(*orders)


def test_a_sick_card_is_replaced_within_the_order_which_is_billed_for_what_it_could_use(stage: SetUp) -> None:
    play = stage("again", nodes=2)
    order = play.order("vm", 4)
    first = play.dev.order(order)["allocation"]["cards"]
    with pytest.raises(ApiError, match="nothing-to-replace"):
        play.dev.call("POST", f"/orders/{order}/replace", {})
    used = play.pass_by(minutes=20)
    play.dev.call("POST", f"/orders/{order}/replace", {"card": first[0], "reason": "it is slow"})
    play.product.settled()
    record = play.dev.order(order)
    assert record["phase"] == "active"
    (past,) = record["earlier_allocations"]
    assert (past["cards"], past["cause"], past["quarantined"]) == (first, "replaced", [first[0]])
    assert past["receipt"]["outcome"] == "clean"
    assert first[0] not in record["allocation"]["cards"]
    assert [note["code"] for note in record["queue_history"]] == [
        "Queued",
        "Allocated",
        "Replaced",
        "Queued",
        "Allocated",
    ]
    assert play.dev.call("GET", f"/orders/{order}/credentials")["values"]
    assert play.quota()["cards"] == 4
    used += play.pass_by(minutes=10)
    play.end(order)
    assert play.phases(order) == ["closed"]
    assert play.used(order)[1] == 4 * used
    assert "cards" not in play.quota()


def test_an_order_moves_from_cards_on_which_it_cannot_be_proven(stage: SetUp) -> None:
    play = stage("moves", nodes=2)
    order = play.order("bare_metal", 8)
    broken = play.dev.order(order)["allocation"]["cards"][0]
    play.end(order)
    play.operator.call("PUT", f"/sim/cards/{broken}", {"broken": True})
    order = play.order("bare_metal", 8)
    record = play.dev.order(order)
    (past,) = record["earlier_allocations"]
    assert (past["cause"], past["quarantined"], past["ready_at"]) == ("replaced", [broken], None)
    assert record["phase"] == "active"
    assert broken not in record["allocation"]["cards"]
    play.end(order)
    play.operator.call("PUT", f"/sim/cards/{broken}", {"broken": False})


def test_an_order_whose_card_hours_are_used_up_is_suspended_and_comes_back(stage: SetUp) -> None:
    play = stage("pause", limits={"card_hours_month": 8})
    body = {"limits": {"card_hours_month": 8}, "hours_exhausted": "suspend"}
    play.operator.call("PUT", f"/quotas/{play.name}", body)
    play.product.settled()
    order = play.order("vm", 4, duration=None)
    assert play.phases(order) == ["active"]
    play.pass_by(hours=2, minutes=1)
    record = play.dev.order(order)
    assert (record["phase"], record["reason"]["code"]) == ("held", "QuotaExhausted")
    assert record["reason"]["figures"]["renews_at"]
    assert play.free()[1] == 0
    play.operator.call("PUT", f"/quotas/{play.name}", body | {"limits": {"card_hours_month": 80}})
    play.product.settled()
    assert play.phases(order) == ["active"]
    play.end(order)
    assert play.phases(order) == ["closed"]
