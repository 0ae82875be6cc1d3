"""Each condition of a policy, alone: which orders it is about."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from qm_admission.conditions import first_asking
from qm_events.approval import ApprovalPolicy, FieldCondition
from qm_events.catalog import CatalogueItemStatusChanged, OfferingPublished
from qm_events.specs import CatalogueStatus, Role, ServiceModel
from tests.unit.admission.desk import START, Desk, names, request, submit
from tests.unit.admission.panel import assembled, level, policy, put, submission

HOUR = 3_600


def offer(desk: Desk, name: str, price: str, *, model: ServiceModel = ServiceModel.VM, currency: str = "EUR") -> None:
    fact = OfferingPublished(
        name=name, specification="spec", service_model=model, price_per_card_hour=Decimal(price), currency=currency
    )
    desk.tell(fact, "tenant/platform")


def priced() -> Desk:
    desk = assembled()
    offer(desk, "cheap", "2.50")
    offer(desk, "dear", "3.00")
    offer(desk, "metal", "9.00", model=ServiceModel.BARE_METAL)
    offer(desk, "dollars", "3.00", currency="USD")
    return desk


def about(desk: Desk, conditions: dict[str, Any], asked: Any, *levels: Any) -> bool:
    one = ApprovalPolicy(name="x", levels=levels, **conditions)
    return first_asking((one,), submission(asked, desk), desk.context()) is not None


ORDER = dict(
    cards=4, count=2, types=("a100", "h100"), image="ubuntu", priority=50, duration_seconds=10 * HOUR,
    labels={"env": "prod"}, parameters={"nodes": {"min": 3}, "spot": True, "owner": "ann"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({}, True),
        ({"projects": ("vision",)}, True),
        ({"projects": ("speech",)}, False),
        ({"service_models": (ServiceModel.VM, ServiceModel.MAAS)}, True),
        ({"service_models": (ServiceModel.MAAS,)}, False),
        ({"accelerators": ("h100", "npu")}, True),
        ({"accelerators": ("npu",)}, False),
        ({"specifications": ("spec",)}, True),
        ({"specifications": ("other",)}, False),
        ({"images": ("ubuntu",)}, True),
        ({"images": ("debian",)}, False),
        ({"requester_roles": (Role.DEVELOPER,)}, True),
        ({"requester_roles": (Role.PROJECT_OWNER,)}, False),
        ({"requester_managers": ("mia",)}, True),
        ({"requester_managers": ("ann",)}, False),
        ({"cards_at_least": 8}, True),
        ({"cards_at_least": 9}, False),
        ({"cards_at_most": 8}, True),
        ({"cards_at_most": 7}, False),
        ({"count_at_least": 2}, True),
        ({"count_at_least": 3}, False),
        ({"count_at_most": 1}, False),
        ({"duration_at_least_seconds": 10 * HOUR}, True),
        ({"duration_at_least_seconds": 10 * HOUR + 1}, False),
        ({"duration_at_most_seconds": 10 * HOUR}, True),
        ({"duration_at_most_seconds": 10 * HOUR - 1}, False),
        ({"priority_at_least": 50}, True),
        ({"priority_at_least": 51}, False),
        ({"priority_at_most": 49}, False),
        ({"cost_at_least": Decimal(240), "currency": "EUR"}, True),
        ({"cost_at_least": Decimal("240.000000001"), "currency": "EUR"}, False),
        ({"cost_at_most": Decimal(240), "currency": "EUR"}, True),
        ({"cost_at_most": Decimal("239.999999999"), "currency": "EUR"}, False),
        ({"projects": ("vision",), "cards_at_least": 9}, False),
    ],
)
def test_a_policy_is_about_an_order_when_all_its_conditions_hold(conditions: dict[str, Any], matches: bool) -> None:
    assert about(priced(), conditions, request("vision", **ORDER), level()) is matches


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({"field": "labels.env"}, True),
        ({"field": "labels.team"}, False),
        ({"field": "labels.env", "any_of": ("prod", "live")}, True),
        ({"field": "labels.env", "any_of": ("test",)}, False),
        ({"field": "parameters.nodes.min", "at_least": 3}, True),
        ({"field": "parameters.nodes.min", "at_least": 4}, False),
        ({"field": "parameters.nodes.max"}, False),
        ({"field": "parameters.owner.name"}, False),
        ({"field": "parameters.spot", "any_of": (True,)}, True),
        ({"field": "parameters.spot", "any_of": (1,)}, False),
        ({"field": "parameters.spot", "at_least": 0}, False),
        ({"field": "parameters.nodes.min", "any_of": ("3",)}, False),
    ],
)
def test_a_field_of_the_form_is_compared_with_its_json_type(condition: dict[str, Any], matches: bool) -> None:
    given = {"fields": (FieldCondition(**condition),)}
    assert about(assembled(), given, request("vision", **ORDER), level()) is matches


@pytest.mark.parametrize(
    ("conditions", "more"),
    [
        ({"requester_roles": (Role.DEVELOPER,)}, {"requester": "of-whom-nothing-was-heard"}),
        ({"cost_at_least": Decimal(1), "currency": "KRW"}, {"duration_seconds": HOUR}),
        ({"cost_at_most": Decimal(1), "currency": "EUR"}, {"duration_seconds": HOUR, "service_model": "maas"}),
    ],
)
def test_what_cannot_be_known_asks_and_never_lets_pass(conditions: dict[str, Any], more: dict[str, Any]) -> None:
    desk = priced()
    assert about(desk, conditions, request("vision", **more), level()) is True
    assert about(desk, conditions, request("vision", **more)) is False, "a policy without levels would let it pass"


def test_an_order_without_an_end_lasts_longest_and_costs_most() -> None:
    desk = priced()
    for conditions, matches in (
        ({"duration_at_least_seconds": 10 * 366 * 86_400}, True),
        ({"duration_at_most_seconds": 10 * 366 * 86_400}, False),
        ({"cost_at_least": Decimal(10**9), "currency": "EUR"}, True),
        ({"cost_at_most": Decimal(10**9), "currency": "EUR"}, False),
    ):
        assert about(desk, conditions, request("vision"), level()) is matches, conditions


def test_an_absolute_end_is_measured_from_the_submission() -> None:
    asked = request("vision", expires_at=START + timedelta(hours=2))
    desk = priced()
    assert about(desk, {"duration_at_most_seconds": 2 * HOUR}, asked, level())
    assert not about(desk, {"duration_at_most_seconds": 2 * HOUR - 1}, asked, level())


def test_a_retired_offering_makes_nothing_dear() -> None:
    desk = priced()
    gone = CatalogueItemStatusChanged(kind="offering", name="dear", status=CatalogueStatus.RETIRED)
    desk.tell(gone, "tenant/platform")
    asked = request("vision", cards=1, duration_seconds=HOUR)
    assert not about(desk, {"cost_at_least": Decimal(3), "currency": "EUR"}, asked, level())
    assert about(desk, {"cost_at_least": Decimal("2.5"), "currency": "EUR"}, asked, level())
    desk.restart()
    assert not about(desk, {"cost_at_least": Decimal(3), "currency": "EUR"}, asked, level())


def test_routine_orders_pass_by_a_policy_without_levels_before_the_one_that_asks() -> None:
    desk = assembled()
    put(desk, policy(name="routine", cards_at_most=4, projects=("vision",)), policy(level(), name="rest"))
    assert names(submit(desk, "o1", request("vision", cards=4))) == ["quota.claimed", "order.admitted"]
    assert names(submit(desk, "o2", request("vision", cards=5))) == ["approval.requested"]
    assert names(submit(desk, "o3", request("speech", cards=1))) == ["approval.requested"]
