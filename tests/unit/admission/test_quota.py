"""What an order takes, what is in the way, and in what words."""

import pytest

from qm_admission import dimensions, quota, remedies
from qm_admission.quota import Scope
from qm_events.specs import PlacedUnit
from tests.unit.admission.desk import request

PATH = ("acme", "acme/vision")


def nobody_ahead(scope: str, dimension: str) -> bool:
    return False


def test_an_order_takes_every_dimension_in_its_unit() -> None:
    assert quota.amounts_of(request(cards=4, count=2, types=("a100", "h100"))) == {
        "cards": 8,
        "cards/a100": 8,
        "cards/h100": 8,
        "accelerator_memory_mib": 640_000,
        "cpu_milli": 8_000,
        "memory_mib": 32_000,
        "concurrent_orders": 1,
    }


def test_every_scope_and_dimension_in_the_way_is_named() -> None:
    scopes = {
        "acme": Scope(limits={"cards": 8, "memory_mib": 10**9}, used={"cards": 7}),
        "acme/vision": Scope(limits={"cards": 2, "cpu_milli": 4_000}, used={"cpu_milli": 1}),
    }
    found = quota.in_the_way(PATH, scopes, quota.amounts_of(request(cards=2)), nobody_ahead)
    assert [(it.scope, it.dimension, it.limit, it.used, it.requested, it.short_by) for it in found] == [
        ("acme", "cards", 8, 7, 2, 1),
        ("acme/vision", "cpu_milli", 4_000, 1, 4_000, 1),
    ]


def test_an_older_order_in_line_is_in_the_way_though_nothing_is_short() -> None:
    scopes = {"acme": Scope(limits={"cards": 8})}
    found = quota.in_the_way(
        PATH, scopes, {"cards": 1}, lambda scope, dimension: (scope, dimension) == ("acme", "cards")
    )
    assert [(it.scope, it.short_by) for it in found] == [("acme", 0)]


def test_a_dimension_that_an_order_does_not_take_is_never_in_its_way() -> None:
    scopes = {"acme": Scope(limits={"cpu_milli": 0, "cards/h100": 0}, used={"cpu_milli": 5})}
    amounts = quota.amounts_of(request(cpu_milli=0))
    assert quota.in_the_way(PATH, scopes, amounts, nobody_ahead) == ()
    assert quota.never_fits(PATH, scopes, amounts) == ()


def test_what_never_fits_is_measured_against_the_limit_alone() -> None:
    scopes = {"acme": Scope(limits={"cards": 4}, used={"cards": 3}), "acme/vision": Scope(limits={"cards": 2})}
    found = quota.never_fits(PATH, scopes, quota.amounts_of(request(cards=5)))
    assert [(it.scope, it.used, it.short_by) for it in found] == [("acme", 3, 1), ("acme/vision", 0, 3)]


def test_posting_forth_and_back_leaves_the_scope_as_it_was() -> None:
    before = Scope(limits={"cards": 4}, used={"cards": 1})
    amounts = quota.amounts_of(request(cards=3))
    assert quota.post(quota.post(before, amounts, 1), amounts, -1) == before


def test_a_placement_returns_the_types_that_it_did_not_use() -> None:
    claim = quota.amounts_of(request(cards=2, count=2, types=("a100", "h100", "npu")))
    units = [PlacedUnit(node="n", accelerator=kind, cards=("1", "2")) for kind in ("a100", "h100")]
    returned = quota.unused(claim, units)
    assert returned == {"cards/a100": 2, "cards/h100": 2, "cards/npu": 4}
    assert quota.subtract(claim, returned)["cards/a100"] == 2
    assert "cards/npu" not in quota.subtract(claim, returned)


def test_available_is_the_least_on_the_path_and_names_its_scope() -> None:
    scopes = {
        "acme": Scope(limits={"cards": 8}, used={"cards": 7}),
        "acme/vision": Scope(limits={"cards": 4, "memory_mib": 5}, used={"cards": 1, "memory_mib": 9}),
    }
    assert quota.available(PATH, scopes, "cards") == (1, "acme")
    assert quota.available(PATH, scopes, "memory_mib") == (0, "acme/vision")
    assert quota.available(PATH, scopes, "cpu_milli") is None


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"card_hours_month": 10**9 + 1}, "quota-limit-out-of-range"),
        ({"memory_gib": 1}, "quota-dimension-unknown"),
        ({"cards/": 1}, "quota-dimension-unknown"),
        ({"cards/A 100": 1}, "quota-dimension-unknown"),
        ({"cards": -1}, "quota-limit-out-of-range"),
        ({"cards": 10**15 + 1}, "quota-limit-out-of-range"),
    ],
)
def test_limits_that_mean_nothing_are_refused(limits: dict[str, int], code: str) -> None:
    refused = dimensions.refuse_limits({"cards": 1, **limits})
    assert refused is not None
    assert refused.code == code


def test_a_refused_dimension_names_those_that_are_known_with_their_units() -> None:
    refused = dimensions.refuse_limits({"memory_gib": 1})
    assert refused is not None
    assert "memory_gib" in refused.detail
    assert "memory_mib (MiB of main memory)" in refused.remedy


def test_all_known_dimensions_can_be_limited() -> None:
    names = {name.replace("<accelerator>", "a100"): 0 for name in dimensions.DIMENSIONS}
    assert dimensions.refuse_limits(names) is None


def test_the_nearest_scope_says_what_happens_over_quota() -> None:
    assert quota.over_quota_of(PATH, {}) == "hold"
    assert quota.over_quota_of(PATH, {"acme": Scope(over_quota="refuse")}) == "refuse"
    scopes = {"acme": Scope(over_quota="refuse"), "acme/vision": Scope(over_quota="hold")}
    assert quota.over_quota_of(PATH, scopes) == "hold"


def test_a_remedy_names_the_largest_count_that_fits() -> None:
    asked = request(cards=2, count=8)
    scopes = {"acme": Scope(limits={"cards": 9, "cpu_milli": 10**6}, used={"cards": 5})}
    never = quota.never_fits(PATH, scopes, quota.amounts_of(asked))
    assert remedies.fitting_count(asked, never, now=False) == 4
    assert remedies.fitting_count(asked, never, now=True) == 2
    assert "a count of at most 4" in remedies.when_never(asked, never)


def test_a_remedy_for_one_unit_speaks_of_the_type_in_the_way() -> None:
    scopes = {"acme": Scope(limits={"cards/h100": 0})}
    asked = request(types=("a100", "h100"))
    never = quota.never_fits(PATH, scopes, quota.amounts_of(asked))
    assert "one without h100" in remedies.when_never(asked, never)
