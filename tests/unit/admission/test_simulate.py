"""What admission would say is what it says; and the ways out that it names are ways out."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm_admission.book import SetLimits, SetPolicies
from qm_admission.simulate_api import simulated
from qm_events.admission import ApprovalPolicy
from qm_events.catalog import MemberGranted, OrderSubmitted, SpecificationPublished
from qm_events.scheduler import AllocationWithdrawn
from qm_events.specs import OrderRequest, Role
from tests.unit.admission.desk import TENANT, Desk, furnished, names, request, submit
from tests.unit.admission.stage import Stage

OUTCOMES = {
    "order.admitted": "admitted",
    "approval.requested": "pending_approval",
    "order.held": "held",
    "order.rejected": "rejected",
}
LIMITS = [{}, {"cards": 4}, {"cards": 8, "cards/h100": 2}, {"card_hours_month": 50}, {"concurrent_orders": 2}]


def asked(random: Random) -> OrderRequest:
    types = random.choice([("a100",), ("h100",), ("a100", "h100")])
    life = random.choice([{}, {"duration_seconds": 36_000}])
    return request(random.choice(["vision", "speech"]), random.choice([1, 2, 5]), types=types, **life)


def moved(desk: Desk, random: Random, number: int) -> None:
    project = random.choice([None, "vision", "speech"])
    match random.randrange(4):
        case 0:
            limits = random.choice(LIMITS)
            lending = {"borrow": {"cards": 3}, "lend": {"cards": 1}} if "cards" in limits and project else {}
            over = random.choice(["hold", "hold", "refuse"])
            desk.command("quota/acme", SetLimits(TENANT, project, limits, over, **lending))
        case 1:
            policies = (ApprovalPolicy(name="big", cards_at_least=5, approver_role=Role.APPROVER),)
            desk.command("quota/acme", SetPolicies(TENANT, random.choice([(), policies])))
        case 2:
            order = f"o{random.randrange(max(1, number)):02}" if number else "none"
            withdrawn = AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=desk.now)
            desk.tell(withdrawn, f"allocation/{order}")
        case _:
            desk.advance(hours=random.choice([0, 5, 700]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_a_simulation_says_what_the_order_then_gets_and_changes_nothing(seed: int) -> None:
    random, desk = Random(seed), furnished()
    for number in range(25):
        moved(desk, random, number)
        wanted = asked(random)
        facts, docs = len(desk.facts), {name: dict(docs) for name, docs in desk.docs.all.items()}
        said = simulated(wanted, desk.context())
        assert len(desk.facts) == facts
        assert desk.docs.all == docs
        desk.settle()
        (got, *more) = submit_at_once(desk, f"o{number:02}", wanted)
        last = next(it for it in reversed([got, *more]) if names([it])[0] in OUTCOMES)
        assert said.outcome == OUTCOMES[names([last])[0]]
        assert said.violations == list(getattr(last, "violations", said.violations))
        if said.outcome == "admitted":
            taken = {(it.scope, it.dimension): it.requested for it in said.effects}
            assert taken == {
                (scope, name): got.amounts.values[name] for scope in got.scopes for name in got.amounts.values
            }
            assert (said.covered_until, said.quota) == (got.covered_until, "fits")
        elif said.outcome == "pending_approval":
            assert said.approval is not None
            first = said.approval.levels[0]
            assert (said.approval.policy, tuple(first.approvers), first.needed) == (
                last.policy,
                last.approvers,
                last.needed,
            )
        else:
            assert (said.remedies, said.remedy) == (list(last.remedies), last.remedy)
            assert said.code == getattr(last, "code", "")


def submit_at_once(desk: Desk, order: str, wanted: OrderRequest) -> list[Any]:
    return desk.tell(
        OrderSubmitted(order=order, request=wanted, digest="d", submitted_at=desk.now), f"order/{order}", settle=False
    )


class TestWaysOut:
    """Each remedy, followed, helps."""

    @pytest.fixture
    def desk(self) -> Desk:
        desk = furnished()
        desk.tell(MemberGranted(tenant=TENANT, project="speech", subject="dev", role=Role.DEVELOPER), "tenant/acme")
        for cards in (1, 2, 4):
            one = request(cards=cards).specification.model_copy(update={"name": f"a100-{cards}"})
            desk.tell(SpecificationPublished(specification=one), "tenant/platform")
        desk.command("quota/acme", SetLimits(TENANT, "vision", {"cards": 6}))
        submit(desk, "o1", request(cards=3))
        return desk

    def test_all_that_helps_is_named_the_easiest_first(self, desk: Desk) -> None:
        (held,) = submit(desk, "o2", request(cards=4))
        kinds = [it.kind for it in held.remedies]
        assert kinds == ["smaller_specification", "other_project", "ask_for_quota", "wait"]
        assert held.remedies[0].specification == "a100-2"
        assert held.remedies[1].project == "speech"
        assert held.remedies[2].limits.values == {"cards": 7}

    def test_a_smaller_count_is_named_where_it_fits(self, desk: Desk) -> None:
        (held,) = submit(desk, "o2", request(cards=1, count=5))
        assert (held.remedies[0].kind, held.remedies[0].count) == ("order_less", 3)
        assert names(submit(desk, "o3", request("speech", cards=1, count=5)))[-1] == "order.admitted"

    def test_a_project_of_others_is_not_named(self, desk: Desk) -> None:
        (held,) = submit(desk, "o2", request(cards=4, requester="ann"))
        assert "other_project" not in [it.kind for it in held.remedies]

    def test_behind_an_older_order_nothing_is_to_be_asked_for(self, desk: Desk) -> None:
        submit(desk, "o2", request(cards=4))
        (behind,) = submit(desk, "o3", request(cards=2, requester="ann"))
        assert [it.why for it in behind.violations] == ["older_first"]
        assert [it.kind for it in behind.remedies] == ["wait"]
        assert "older order" in behind.remedies[0].text


async def test_the_whole_route_of_an_approval_is_told_with_who_may_decide_at_each_level(stage: Stage) -> None:
    levels = [
        {"approvers": {"role": "approver"}, "rule": "n_of_m", "n": 2, "lapses_after_seconds": 3_600},
        {"approvers": {"role": "tenant_admin"}, "rule": "all"},
        {"approvers": {"groups": ["board"]}},
    ]
    await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": [{"name": "long", "levels": levels}]})
    body = {"request": request().model_dump(mode="json")}
    said = await stage.done("POST", "/quotas/acme/vision:simulate", body, by="dev")
    told = said["approval"]["levels"]
    assert [(it["level"], it["rule"], it["needed"], it["approvers"]) for it in told] == [
        (1, "n_of_m", 2, ["ann", "bob"]),
        (2, "all", 1, ["tina"]),
        (3, "any", 1, ["tina"]),
    ]
    lapses = stage.world.clock.now() + timedelta(hours=1)
    assert [it["lapses_at"] for it in told] == [lapses.isoformat().replace("+00:00", "Z"), None, None]
    await stage.submit("o1", request())
    (asked,) = (await stage.done("GET", "/approvals", by="ann"))["items"]
    assert asked["approvers"] == told[0]["approvers"]


async def test_the_route_answers_for_the_caller_and_writes_nothing(stage: Stage) -> None:
    await stage.done("PUT", "/quotas/acme/vision", {"limits": {"cards": 4}})
    policy = {"name": "big", "cards_at_least": 3, "approver_role": "approver"}
    await stage.done("PUT", "/approval-policies?tenant=acme", {"policies": [policy]})
    before = [len(await stage.world.facts(topic)) for topic in ("admissions", "quotas")]
    body = {"request": request(cards=3).model_dump(mode="json")}
    said = await stage.done("POST", "/quotas/acme/vision:simulate", body, by="dev")
    assert (said["outcome"], said["quota"], said["code"], said["remedy"]) == ("pending_approval", "fits", "", "")
    assert said["approval"]["policy"] == "big"
    (level,) = said["approval"]["levels"]
    assert (level["rule"], level["needed"], level["approvers"], level["lapses_at"]) == ("any", 1, ["ann", "bob"], None)
    (effect,) = (it for it in said["effects"] if (it["scope"], it["dimension"]) == ("acme/vision", "cards"))
    assert (effect["limit"], effect["used"], effect["requested"], effect["left_after"]) == (4, 0, 3, 1)
    assert [len(await stage.world.facts(topic)) for topic in ("admissions", "quotas")] == before
    assert await stage.refused("POST", "/quotas/acme/speech:simulate", body) == (422, "validation-failed")
    assert await stage.refused("POST", "/quotas/acme/vision:simulate", body, by="kim") == (404, "not-found")
    assert await stage.refused("POST", "/quotas/acme/vision:simulate", {"request": {}}) == (422, "validation-failed")
