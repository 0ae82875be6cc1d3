"""Projects of a tenant that borrow from one another, and take back what is their own."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm_admission import claims, quota
from qm_admission.book import SetLimits
from qm_admission.hours import life_of
from qm_admission.lending import Lending
from qm_events.admission import QuotaClaimed
from qm_events.catalog import ProjectRegistered
from qm_events.scheduler import AllocationWithdrawn
from qm_service.model import Rejected
from tests.unit.admission.desk import TENANT, Desk, furnished, names, request, submit

PROJECTS = ("vision", "speech", "audio")


@pytest.fixture
def desk() -> Desk:
    desk = furnished()
    desk.tell(ProjectRegistered(tenant=TENANT, project="audio", display_name="audio"), "tenant/acme")
    return desk


def share(desk: Desk, project: str, cards: int, borrow: int = 0, lend: int = 0, **more: Any) -> list[Any]:
    lending = {name: {"cards": value} for name, value in (("borrow", borrow), ("lend", lend)) if value}
    said = desk.command("quota/acme", SetLimits(TENANT, project, {"cards": cards}, **lending, **more))
    assert not isinstance(said, Rejected), said
    return said


def give_back(desk: Desk, order: str) -> list[Any]:
    withdrawn = AllocationWithdrawn(order=order, cause="cancelled", withdrawn_at=desk.now)
    return desk.tell(withdrawn, f"allocation/{order}")


def test_a_project_borrows_what_another_lends_and_the_claim_says_so(desk: Desk) -> None:
    share(desk, "vision", 4, borrow=4)
    share(desk, "speech", 4, lend=3)
    claimed, admitted = submit(desk, "o1", request(cards=6))
    assert claimed.borrowed.values == admitted.borrowed.values == {"cards": 2}
    (held,) = submit(desk, "o2", request(cards=2))
    assert [(it.why, it.short_by, it.limit) for it in held.violations] == [("lent_out", 1, 8)]
    assert names(submit(desk, "o3", request(cards=1))) == ["order.held"]


def test_more_than_may_be_borrowed_never_fits_and_nothing_is_lent_unasked(desk: Desk) -> None:
    share(desk, "vision", 4, borrow=2)
    share(desk, "speech", 4)
    (rejected,) = submit(desk, "o1", request(cards=7))
    assert (rejected.code, rejected.violations[0].limit) == ("quota-never-fits", 6)
    assert names(submit(desk, "o2", request(cards=5))) == ["order.held"]


def test_what_another_gives_back_lets_the_borrower_in(desk: Desk) -> None:
    share(desk, "vision", 2, borrow=4)
    share(desk, "speech", 4, lend=4)
    submit(desk, "s1", request("speech", cards=4))
    (held,) = submit(desk, "v1", request(cards=4))
    assert [it.why for it in held.violations] == ["lent_out"]
    assert [it.order for it in give_back(desk, "s1")] == ["s1", "v1", "v1"]


def test_who_takes_back_his_own_is_admitted_and_the_claim_names_what_is_to_be_reclaimed(desk: Desk) -> None:
    share(desk, "vision", 2, borrow=4)
    share(desk, "speech", 4, lend=4)
    submit(desk, "v1", request(cards=5))
    claimed, admitted = submit(desk, "s1", request("speech", cards=3))
    assert claimed.reclaims.values == admitted.reclaims.values == {"cards": 2}
    assert claimed.borrowed is None


def test_where_the_tenant_is_full_who_takes_back_his_own_waits_and_says_what_is_his(desk: Desk) -> None:
    desk.command("quota/acme", SetLimits(TENANT, None, {"cards": 6}))
    share(desk, "vision", 2, borrow=4)
    share(desk, "speech", 4, lend=4)
    submit(desk, "v1", request(cards=6))
    (held,) = submit(desk, "s1", request("speech", cards=3))
    assert ([it.scope for it in held.violations], held.reclaims.values) == (["acme"], {"cards": 3})
    assert "order.admitted" in names(give_back(desk, "v1"))


def test_the_oldest_who_would_borrow_is_passed_by_nobody_in_another_project(desk: Desk) -> None:
    share(desk, "vision", 1, borrow=4)
    share(desk, "audio", 1, borrow=4)
    share(desk, "speech", 3, lend=3)
    submit(desk, "s1", request("speech", cards=2))
    assert names(submit(desk, "v1", request(cards=4))) == ["order.held"]
    assert names(submit(desk, "a1", request("audio", cards=2))) == ["order.held"]
    assert names(submit(desk, "s2", request("speech", cards=1))) == ["quota.claimed", "order.admitted"]
    give_back(desk, "s2")
    said = give_back(desk, "s1")
    assert [it.order for it in said if it.wire_type == "order.admitted.v1"] == ["v1"]


@pytest.mark.parametrize(
    ("project", "limits", "borrow", "lend"),
    [
        (None, {"cards": 4}, {"cards": 1}, {}),
        ("vision", {"cards": 4}, {"cpu_milli": 1}, {}),
        ("vision", {"cards": 4}, {}, {"cards": 5}),
        ("vision", {"card_hours_month": 4}, {"card_hours_month": 1}, {}),
    ],
)
def test_what_cannot_be_borrowed_or_lent_is_refused(
    desk: Desk, project: Any, limits: Any, borrow: Any, lend: Any
) -> None:
    said = desk.command("quota/acme", SetLimits(TENANT, project, limits, borrow=borrow, lend=lend))
    assert isinstance(said, Rejected)
    assert said.code == "quota-lending-invalid"


def check(desk: Desk) -> None:
    """The sums are those of a count from scratch, and nobody waits who could be admitted."""
    fresh = Lending()
    for name, scope in desk.docs.resident("scopes").items():
        list(fresh.posted(name, None, scope))
    kept: Any = desk.index.lending
    for pool in {*fresh._borrowed, *fresh._lendable, *kept._borrowed, *kept._lendable}:
        assert (kept._borrowed[pool], kept._lendable[pool]) == (fresh._borrowed[pool], fresh._lendable[pool])
    for stream, state in desk.states.items():
        if getattr(state, "phase", "") == "held":
            asked, place = state.submission.request, (state.submission.submitted_at, stream.partition("/")[2])
            path = quota.path_of(asked.tenant, asked.project)
            answer = claims.weigh(path, quota.amounts_of(asked), life_of(asked), place, 0, desk.context()).answer
            assert answer is quota.Answer.HELD, stream


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_never_is_more_borrowed_than_lent_when_it_is_taken_and_nobody_is_forgotten(seed: int) -> None:
    random, desk, open_orders = Random(seed), furnished(), []
    desk.tell(ProjectRegistered(tenant=TENANT, project="audio", display_name="audio"), "tenant/acme")
    for number in range(60):
        match random.choices(range(4), (6, 4, 2, 1))[0]:
            case 0:
                facts = len(desk.facts)
                submit(desk, f"o{number:02}", request(random.choice(PROJECTS), cards=random.choice([1, 2, 5])))
                open_orders.append(f"o{number:02}")
                check_the_claims(desk, facts)
            case 1 if open_orders:
                give_back(desk, open_orders.pop(random.randrange(len(open_orders))))
            case 2:
                cards = random.randrange(6)
                share(desk, random.choice(PROJECTS), cards, random.choice([0, 3]), random.randrange(cards + 1))
            case _:
                desk.restart()
                desk.settle()
        check(desk)


def check_the_claims(desk: Desk, since: int) -> None:
    scopes, lent, taken = desk.docs.resident("scopes"), Counter[str](), 0
    for name, scope in scopes.items():
        if "/" in name and "cards" in scope.limits:
            free = scope.limits["cards"] - scope.used.get("cards", 0)
            lent["all"] += min(scope.lend.get("cards", 0), max(0, free))
            taken += max(0, -free) if "cards" in scope.borrow else 0
            if any(isinstance(it.data, QuotaClaimed) and name in it.data.scopes for it in desk.facts[since:]):
                assert free >= -scope.borrow.get("cards", 0)
    claimed = [it.data for it in desk.facts[since:] if isinstance(it.data, QuotaClaimed)]
    assert taken <= lent["all"] or not any(it.borrowed for it in claimed)
