"""An order at the gates: refused, asked about, held or admitted, and its quota given back once."""

from datetime import timedelta
from typing import Any

import pytest

from qm_admission.book import SetLimits, SetPolicies
from qm_admission.requests import AskQuota, DecideQuota
from qm_events import EventData
from qm_events.approval import ApprovalPolicy
from qm_events.catalog import OrderExpired, OrderReleaseRequested
from qm_events.provisioner import EnvironmentQuarantined, EnvironmentReleased
from qm_events.scheduler import AllocationWithdrawn
from qm_events.specs import EndCause, Role
from qm_service.model import Rejected
from tests.unit.admission.desk import TENANT, Desk, allocate, cancel, furnished, names, request, submit


@pytest.fixture
def desk() -> Desk:
    return furnished()


def limit(desk: Desk, project: str | None = "vision", over_quota: str = "hold", **limits: int) -> list[Any]:
    spelled = {name.replace("__", "/"): value for name, value in limits.items()}
    said = desk.command("quota/acme", SetLimits(TENANT, project, spelled, over_quota))
    assert not isinstance(said, Rejected)
    return said


def used(desk: Desk, scope: str = "acme/vision", dimension: str = "cards") -> int:
    doc = desk.docs.get("scopes", scope)
    return doc.used.get(dimension, 0) if doc else 0


def ends(desk: Desk, order: str) -> list[tuple[EventData, str]]:
    released = EnvironmentReleased(
        order=order,
        allocation="al",
        cause=EndCause.RELEASED,
        outcome="clean",
        lines=(),
        digest="d",
        released_at=desk.now,
    )
    quarantined = EnvironmentQuarantined(
        order=order, allocation="al", cards=("c",), step="wipe", error="e", quarantined_at=desk.now
    )
    withdrawn = AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=desk.now)
    return [
        (released, f"environment/{order}"),
        (quarantined, f"environment/{order}"),
        (withdrawn, f"allocation/{order}"),
    ]


def test_a_routine_order_passes_untouched(desk: Desk) -> None:
    said = submit(desk, "o1", request(cards=2))
    assert names(said) == ["quota.claimed", "order.admitted"]
    assert said[0].scopes == ("acme", "acme/vision")
    assert used(desk) == used(desk, "acme") == 2


def test_what_never_fits_is_rejected_with_every_limit_and_a_remedy(desk: Desk) -> None:
    limit(desk, None, cards=8)
    limit(desk, cards=4, cpu_milli=1_000)
    (rejected,) = submit(desk, "o1", request(cards=9))
    assert rejected.code == "quota-never-fits"
    assert [(it.scope, it.dimension, it.short_by) for it in rejected.violations] == [
        ("acme", "cards", 1),
        ("acme/vision", "cards", 5),
        ("acme/vision", "cpu_milli", 3_000),
    ]
    assert rejected.remedy


def test_what_never_fits_is_rejected_before_anybody_is_asked(desk: Desk) -> None:
    limit(desk, cards=1)
    desk.command("quota/acme", SetPolicies(TENANT, (ApprovalPolicy(name="all", approver_role=Role.APPROVER),)))
    assert names(submit(desk, "o1", request(cards=2))) == ["order.rejected"]


@pytest.mark.parametrize(
    ("tenant", "project", "asked", "scopes"),
    [
        (None, None, 0, []),
        (None, None, -1_000, []),
        (None, None, 1, ["acme"]),
        (None, 1_000, 1_000, ["acme"]),
        (10, None, 10, []),
        (10, None, 11, ["acme"]),
        (10, 3, 4, ["acme/vision"]),
        (10, 3, 11, ["acme", "acme/vision"]),
        (10, 20, 20, ["acme"]),
        (10, 0, 1, ["acme/vision"]),
        (0, 0, -1, []),
    ],
)
def test_a_priority_above_the_bound_of_a_scope_on_the_path_is_rejected(
    desk: Desk, tenant: int | None, project: int | None, asked: int, scopes: list[str]
) -> None:
    for name, bound in ((None, tenant), ("vision", project)):
        desk.command("quota/acme", SetLimits(TENANT, name, {}, priority_at_most=bound))
    said = submit(desk, "o1", request(priority=asked))
    if not scopes:
        assert names(said)[-1] == "order.admitted"
        return
    (rejected,) = said
    assert rejected.code == "priority-not-allowed"
    assert [(it.scope, it.dimension, it.requested) for it in rejected.violations] == [
        (scope, "priority", asked) for scope in scopes
    ]
    least = min(it.limit for it in rejected.violations)
    assert rejected.remedy.startswith(f"Ask for a priority of at most {least}, or have priority_at_most of ")
    assert names(submit(desk, "o2", request(priority=least)))[-1] == "order.admitted"
    assert used(desk) == 1


def test_a_priority_and_a_limit_in_the_way_are_told_together(desk: Desk) -> None:
    limit(desk, cards=1)
    (rejected,) = submit(desk, "o1", request(cards=1, count=2, priority=5))
    assert [it.dimension for it in rejected.violations] == ["priority", "cards"]
    assert rejected.remedy == (
        "Ask for a priority of at most 0, or have priority_at_most of acme raised. "
        "Order a count of at most 1; or ask for a higher limit of cards in acme/vision."
    )
    assert [it.kind for it in rejected.remedies] == ["ask_for_quota"]


def test_a_held_order_is_rejected_when_its_priority_is_taken_away_and_facts_alone_tell_it_after_a_restart(
    desk: Desk,
) -> None:
    desk.command("quota/acme", SetLimits(TENANT, None, {"cards": 1}, priority_at_most=5))
    submit(desk, "o1", request())
    assert names(submit(desk, "o2", request(priority=5))) == ["order.held"]
    desk.restart()
    assert names(desk.command("quota/acme", SetLimits(TENANT, None, {"cards": 1}, priority_at_most=4))) == [
        "quota_limit.set",
        "order.rejected",
    ]


def test_a_grant_of_quota_leaves_the_bound_of_the_priority(desk: Desk) -> None:
    desk.command("quota/acme", SetLimits(TENANT, "vision", {"cards": 1}, priority_at_most=0))
    desk.command("quota/acme", AskQuota("r", TENANT, "vision", {"cards": 2}, "more", "dev"))
    said = desk.command("quota/acme", DecideQuota("r", "approve", "tina"))
    assert [it.priority_at_most for it in said if it.wire_type == "quota_limit.set.v1"] == [0]


def test_what_does_not_fit_now_is_held_and_admitted_by_the_refund(desk: Desk) -> None:
    limit(desk, cards=4)
    submit(desk, "o1", request(cards=3))
    (held,) = submit(desk, "o2", request(cards=2))
    assert [(it.used, it.requested, it.short_by) for it in held.violations] == [(3, 2, 1)]
    said = desk.tell(*ends(desk, "o1")[2])
    assert names(said) == ["quota.refunded", "quota.claimed", "order.admitted"]
    assert used(desk) == 2


def test_a_project_may_refuse_instead_of_holding(desk: Desk) -> None:
    limit(desk, cards=4, over_quota="refuse")
    submit(desk, "o1", request(cards=3))
    (rejected,) = submit(desk, "o2", request(cards=2, count=2))
    assert rejected.code == "quota-exceeded"
    assert "at most" not in rejected.remedy


def test_the_tenant_limits_the_sum_of_its_projects(desk: Desk) -> None:
    limit(desk, None, cards=3)
    submit(desk, "o1", request("vision", cards=2))
    (held,) = submit(desk, "o2", request("speech", cards=2))
    assert [it.scope for it in held.violations] == ["acme"]


def test_a_claim_counts_on_each_type_until_the_placement_settles_which(desk: Desk) -> None:
    limit(desk, cards__h100=2)
    either = request(cards=2, types=("a100", "h100"))
    submit(desk, "o1", either)
    assert names(submit(desk, "o2", request(cards=2, types=("h100",)))) == ["order.held"]
    said = allocate(desk, "o1", either, "a100")
    assert names(said) == ["quota.committed", "quota.claimed", "order.admitted"]
    assert said[0].returned.values == {"cards/h100": 2}
    assert used(desk, dimension="cards/a100") == used(desk, dimension="cards/h100") == 2
    assert allocate(desk, "o1", either, "a100") == []


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_a_refund_comes_once_whatever_end_is_heard_of_and_how_often(desk: Desk, first: int, committed: bool) -> None:
    asked = request(cards=2, types=("a100", "h100"))
    submit(desk, "o1", asked)
    if committed:
        allocate(desk, "o1", asked)
    heard = ends(desk, "o1")
    assert names(desk.tell(*heard[first])) == ["quota.refunded"]
    for end in (*heard, *heard):
        assert desk.tell(*end) == []
    assert allocate(desk, "o1", asked) == cancel(desk, "o1") == submit(desk, "o1", asked) == []
    assert desk.docs.get("scopes", "acme").used == {}


def test_a_cancel_after_admission_is_not_ours_to_answer(desk: Desk) -> None:
    submit(desk, "o1", request())
    assert cancel(desk, "o1") == []
    assert used(desk) == 1


def test_a_held_order_is_withdrawn_and_the_next_moves_up(desk: Desk) -> None:
    limit(desk, cards=4)
    submit(desk, "o1", request(cards=3))
    submit(desk, "o2", request(cards=2))
    (behind,) = submit(desk, "o3", request(cards=1))
    assert [it.short_by for it in behind.violations] == [0]
    assert "older orders" in behind.remedy
    assert names(cancel(desk, "o2")) == ["order.withdrawn", "quota.claimed", "order.admitted"]
    assert cancel(desk, "o2") == []


def test_a_release_before_admission_is_a_cancel(desk: Desk) -> None:
    limit(desk, cards=1)
    submit(desk, "o1", request())
    submit(desk, "o2", request())
    (withdrawn,) = desk.tell(OrderReleaseRequested(order="o2", requested_at=desk.now), "order/o2")
    assert withdrawn.cause == "cancelled"


def test_an_end_that_overtakes_its_order_is_a_tombstone(desk: Desk) -> None:
    expired = OrderExpired(order="o1", expired_at=desk.now - timedelta(hours=1))
    (withdrawn,) = desk.tell(expired, "order/o1")
    assert withdrawn.cause == "expired"
    assert withdrawn.withdrawn_at == expired.expired_at
    assert submit(desk, "o1", request()) == []
    for end in ends(desk, "o2"):
        desk.tell(*end)
    assert submit(desk, "o2", request()) == []
    assert used(desk) == 0


class TestLines:
    """Who passes whom."""

    def test_a_small_order_does_not_pass_a_held_bigger_one(self, desk: Desk) -> None:
        limit(desk, cards=4)
        submit(desk, "o1", request(cards=2))
        submit(desk, "big", request(cards=4))
        assert names(submit(desk, "small", request(cards=1))) == ["order.held"]
        said = desk.tell(*ends(desk, "o1")[2])
        assert [(name, fact.order) for name, fact in zip(names(said), said, strict=True)] == [
            ("quota.refunded", "o1"),
            ("quota.claimed", "big"),
            ("order.admitted", "big"),
        ]

    def test_a_small_order_passes_one_that_waits_for_what_it_does_not_take(self, desk: Desk) -> None:
        limit(desk, cards=8, cards__h100=1)
        submit(desk, "o1", request(types=("h100",)))
        submit(desk, "big", request(types=("h100",)))
        assert names(submit(desk, "small", request())) == ["quota.claimed", "order.admitted"]

    def test_another_project_passes_one_that_waits_for_its_own_project(self, desk: Desk) -> None:
        limit(desk, None, cards=8)
        limit(desk, cards=1)
        submit(desk, "o1", request())
        submit(desk, "o2", request())
        assert names(submit(desk, "o3", request("speech"))) == ["quota.claimed", "order.admitted"]

    def test_an_order_that_moves_to_another_line_keeps_its_age(self, desk: Desk) -> None:
        limit(desk, None, cards=2)
        limit(desk, cards=1)
        submit(desk, "v1", request("vision"))
        submit(desk, "v2", request("vision"))
        submit(desk, "s1", request("speech"))
        submit(desk, "s2", request("speech"))
        said = desk.tell(*ends(desk, "v1")[2])
        assert [fact.order for fact in said] == ["v1", "v2", "v2"]

    def test_a_raised_limit_admits_oldest_first_as_far_as_it_goes(self, desk: Desk) -> None:
        limit(desk, cards=2)
        for order in ("o1", "o2", "o3", "o4"):
            submit(desk, order, request(cards=2))
        said = limit(desk, cards=6)
        admitted = [fact.order for fact in said if fact.wire_type == "order.admitted.v1"]
        assert admitted == ["o2", "o3"]
        assert [it.limit for it in said[-1].violations] == [6]

    def test_a_limit_that_is_taken_away_admits_all(self, desk: Desk) -> None:
        limit(desk, cards=1)
        for order in ("o1", "o2", "o3"):
            submit(desk, order, request())
        assert names(limit(desk)).count("order.admitted") == 2

    def test_a_limit_lowered_below_use_kills_nothing_and_holds_what_is_new(self, desk: Desk) -> None:
        limit(desk, cards=8)
        submit(desk, "o1", request(cards=6))
        assert names(limit(desk, cards=2)) == ["quota_limit.set"]
        assert used(desk) == 6
        assert names(submit(desk, "o2", request(cards=1))) == ["order.held"]
        assert names(desk.tell(*ends(desk, "o1")[0])) == ["quota.refunded", "quota.claimed", "order.admitted"]

    def test_a_held_order_that_a_new_limit_rules_out_is_rejected(self, desk: Desk) -> None:
        limit(desk, None, cards=4)
        submit(desk, "o1", request(cards=4))
        submit(desk, "o2", request(cards=4))
        assert names(limit(desk, "vision", cpu_milli=1)) == ["quota_limit.set", "order.rejected"]

    def test_a_project_that_begins_to_refuse_rejects_what_it_held(self, desk: Desk) -> None:
        limit(desk, cards=1)
        submit(desk, "o1", request())
        submit(desk, "o2", request())
        said = limit(desk, over_quota="refuse", cards=1)
        assert names(said) == ["quota_limit.set", "order.rejected"]
        assert said[1].code == "quota-exceeded"

    def test_a_restart_loses_nobody_and_says_nothing_twice(self, desk: Desk) -> None:
        limit(desk, cards=2)
        for order in ("o1", "o2", "o3"):
            submit(desk, order, request(cards=2))
        before = len(desk.facts)
        desk.restart()
        desk.settle()
        assert len(desk.facts) == before
        assert "order.admitted" in names(desk.tell(*ends(desk, "o1")[2]))


class TestTheBook:
    """Limits and policies of a tenant."""

    def test_a_limit_that_is_so_already_is_no_fact(self, desk: Desk) -> None:
        assert names(limit(desk, cards=2)) == ["quota_limit.set"]
        assert limit(desk, cards=2) == []
        assert names(limit(desk, cards=2, over_quota="refuse")) == ["quota_limit.set"]

    def test_a_refused_limit_changes_nothing(self, desk: Desk) -> None:
        said = desk.command("quota/acme", SetLimits(TENANT, None, {"card_hours": 1}))
        assert isinstance(said, Rejected)
        assert desk.docs.get("scopes", "acme") is None
