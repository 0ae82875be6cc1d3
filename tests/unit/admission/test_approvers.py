"""Each way to be an approver, each rule of a level, and no way to approve one's own order."""

from typing import Any

import pytest

from qm_admission.bench import holds, present
from qm_admission.delegations import Days
from qm_events.catalog import GroupJoined, GroupLeft, MemberGranted, SubjectManagerSet
from qm_events.specs import Role
from qm_service.model import Rejected
from tests.unit.admission.desk import START, TENANT, Desk, names, request, submit, vote
from tests.unit.admission.panel import asked_of, assembled, away, grant, level, policy, put, revoke

TODAY = START.date()


def opened(*levels: Any, by: str = "dev", **more: Any) -> Desk:
    desk = assembled()
    put(desk, policy(*levels, **more))
    assert names(submit(desk, "o1", request("vision", requester=by, labels={"reviewer": "sam"}))) == [
        "approval.requested"
    ]
    return desk


def code(said: Any) -> str | None:
    return said.code if isinstance(said, Rejected) else None


@pytest.mark.parametrize(
    ("who", "approvers"),
    [
        ({"role": Role.APPROVER}, ("ann", "bob")),
        ({"role": Role.TENANT_ADMIN}, ("tina",)),
        ({"subjects": ("sam", "kim")}, ("kim", "sam")),
        ({"groups": ("board",)}, ("eva", "fay", "gus")),
        ({"manager": True}, ("mia",)),
        ({"field": "labels.reviewer"}, ("sam",)),
        ({"groups": ("board",), "manager": True}, ("eva", "fay", "gus", "mia")),
    ],
)
def test_a_level_asks_whom_it_names(who: dict[str, Any], approvers: tuple[str, ...]) -> None:
    desk = opened(level(**who))
    assert asked_of(desk).approvers == asked_of(desk).awaited == approvers
    assert names(vote(desk, "o1", approvers[0])) == ["approval.granted", "quota.claimed", "order.admitted"]


@pytest.mark.parametrize(
    ("grants", "in_it", "role"),
    [
        ([(TENANT, "vision", "approver")], True, True),
        ([(TENANT, None, "approver")], True, True),
        ([(TENANT, "speech", "approver")], True, False),
        ([("other", None, "approver")], False, False),
        ([("platform", None, "operator")], True, False),
        ([("platform", None, "approver")], False, False),
        ([], False, False),
    ],
)
def test_who_is_there_and_who_has_a_role(grants: list[Any], in_it: bool, role: bool) -> None:
    assert present(TENANT, grants) is in_it
    assert holds(Role.APPROVER, request("vision"), grants) is role


@pytest.mark.parametrize(
    ("rule", "words", "end"),
    [
        (level(), ["eva+"], "granted"),
        (level(), ["eva-"], "denied"),
        (level("all"), ["eva+", "fay+"], None),
        (level("all"), ["eva+", "fay+", "gus+"], "granted"),
        (level("all"), ["eva+", "fay-"], "denied"),
        (level("n_of_m", 2), ["eva+"], None),
        (level("n_of_m", 2), ["eva+", "gus+"], "granted"),
        (level("n_of_m", 2), ["eva-"], None),
        (level("n_of_m", 2), ["eva-", "fay+"], None),
        (level("n_of_m", 2), ["eva-", "fay+", "gus+"], "granted"),
        (level("n_of_m", 2), ["eva-", "fay-"], "denied"),
        (level("n_of_m", 3), ["eva-"], "denied"),
    ],
)
def test_how_the_words_of_a_level_count(rule: Any, words: list[str], end: str | None) -> None:
    desk = opened(rule)
    for word in words:
        said = vote(desk, "o1", word[:3], "approve" if word[3] == "+" else "deny", comment="because")
        assert not isinstance(said, Rejected), said
    assert asked_of(desk).status == (end or "pending")
    assert [(v.voter, v.seat, v.comment) for v in asked_of(desk).votes] == [(w[:3], w[:3], "because") for w in words]
    last = "approval.voted" if end is None else f"approval.{end}"
    assert last in names([fact.data for fact in desk.facts])


def test_levels_are_asked_one_after_the_other_and_each_keeps_its_votes() -> None:
    desk = opened(level("n_of_m", 2), level(manager=True))
    vote(desk, "o1", "eva")
    said = vote(desk, "o1", "fay", comment="fine")
    assert names(said) == ["approval.granted", "approval.requested"]
    assert (said[1].level, said[1].levels, said[1].approvers) == (2, 2, ("mia",))
    first = desk.states["admission/o1"].earlier[0].approval
    assert said[1].approval != first
    late = vote(desk, "o1", "gus", approval=first)
    assert code(late) == "approval-already-decided"
    assert code(vote(desk, "o1", "gus", "deny", approval=first)) == "approval-conflict"
    assert code(vote(desk, "o1", "gus")) == "approval-not-yours"
    assert names(vote(desk, "o1", "mia")) == ["approval.granted", "quota.claimed", "order.admitted"]


@pytest.mark.parametrize(
    ("first", "then", "refused"),
    [
        ("approve", "approve", "approval-already-voted"),
        ("approve", "deny", "approval-conflict"),
        ("deny", "approve", "approval-conflict"),
        ("deny", "deny", "approval-already-voted"),
    ],
)
def test_a_second_word_of_the_same_person_changes_nothing(first: str, then: str, refused: str) -> None:
    desk = opened(level("n_of_m", 2))
    vote(desk, "o1", "eva", first)
    before = len(desk.facts)
    assert code(vote(desk, "o1", "eva", then)) == refused
    assert len(desk.facts) == before


OWN: list[tuple[dict[str, Any], str]] = [
    ({"role": Role.APPROVER}, "ann"),
    ({"subjects": ("sam", "kim")}, "sam"),
    ({"groups": ("board",)}, "eva"),
    ({"field": "labels.reviewer"}, "sam"),
    ({"manager": True}, "max"),
]


@pytest.mark.parametrize(("who", "requester"), OWN)
def test_nobody_decides_on_an_order_of_his_own_by_any_route(who: dict[str, Any], requester: str) -> None:
    desk = opened(level(**who), by=requester)
    assert requester not in asked_of(desk).approvers
    assert code(vote(desk, "o1", requester)) == "approval-own-order"


@pytest.mark.parametrize(("who", "requester"), OWN[:-1])
def test_a_policy_may_allow_it(who: dict[str, Any], requester: str) -> None:
    desk = opened(level(**who), by=requester, self_approval=True)
    assert names(vote(desk, "o1", requester))[0] == "approval.granted"


def test_a_delegate_does_not_decide_on_an_order_of_his_own_nor_for_its_requester() -> None:
    desk = opened(level(manager=True))
    away(desk, "mia", Days(TODAY, TODAY, "dev"))
    assert code(vote(desk, "o1", "dev")) == "approval-own-order"
    assert code(vote(desk, "o1", "dev", on_behalf_of="mia")) == "approval-own-order"
    desk = opened(level(), by="eva")
    away(desk, "eva", Days(TODAY, TODAY, "sam"))
    assert code(vote(desk, "o1", "sam")) == "approval-not-yours", "the requester has no seat to speak for"


def test_whoever_reports_to_himself_has_no_manager() -> None:
    desk = assembled()
    desk.tell(SubjectManagerSet(tenant=TENANT, subject="dev", manager="dev"), "tenant/acme")
    put(desk, policy(level(manager=True)))
    submit(desk, "o1", request("vision"))
    assert asked_of(desk).approvers == ("tina",), "the admins stand in, visibly"
    assert code(vote(desk, "o1", "dev")) == "approval-own-order"


# ---- changes of the directory


def test_a_removed_approver_is_told_and_loses_his_word() -> None:
    desk = opened(level("n_of_m", 2))
    vote(desk, "o1", "eva")
    (told,) = desk.tell(GroupLeft(tenant=TENANT, group="board", subject="eva"), "tenant/acme")
    assert (told.cause, told.approvers, told.awaited) == ("people_changed", ("fay", "gus"), ("fay", "gus"))
    assert names(vote(desk, "o1", "fay")) == ["approval.voted"], "what eva said counts no more"
    assert names(vote(desk, "o1", "gus"))[0] == "approval.granted"


def test_too_few_to_agree_are_joined_by_the_escalation_or_the_admins() -> None:
    for to, helper in (({"subjects": ("sam",)}, "sam"), (None, "tina")):
        desk = opened(level("n_of_m", 3, escalate_to=to))
        (told,) = revoke(desk, "gus", Role.VIEWER)
        assert told.joined == (helper,)
        assert told.awaited == tuple(sorted(("eva", "fay", helper)))
        for person in ("eva", "fay", helper):
            said = vote(desk, "o1", person)
        assert names(said)[0] == "approval.granted"


def test_all_of_them_stays_as_many_as_were_asked_when_some_leave() -> None:
    desk = opened(level("all"))
    for person in ("eva", "fay"):
        vote(desk, "o1", person)
    (told,) = revoke(desk, "gus", Role.VIEWER)
    assert (told.needed, told.awaited) == (3, ("tina",)), "leaving approves nothing"
    assert names(vote(desk, "o1", "tina"))[0] == "approval.granted"


def test_all_of_them_includes_who_joins_later() -> None:
    desk = opened(level("all"))
    desk.tell(GroupJoined(tenant=TENANT, group="board", subject="sam"), "tenant/acme")
    for person in ("eva", "fay", "gus"):
        assert names(vote(desk, "o1", person)) == ["approval.voted"]
    assert names(vote(desk, "o1", "sam"))[0] == "approval.granted"


def test_nobody_at_all_is_visible_and_waits() -> None:
    desk = opened(level(role=Role.PROJECT_OWNER))
    assert asked_of(desk).approvers == ("tina",)
    (told,) = revoke(desk, "tina", Role.TENANT_ADMIN)
    assert (told.approvers, told.awaited) == ((), ())
    assert desk.docs.get("waiting", "o1").status == "pending_approval"
    (back,) = grant(desk, "sam", Role.PROJECT_OWNER, "vision")
    assert back.joined == ("sam",)
    assert names(vote(desk, "o1", "sam"))[0] == "approval.granted"


def test_a_change_that_was_not_looked_at_before_the_end_is_found_after_a_restart() -> None:
    desk = opened(level(role=Role.APPROVER))
    fact = MemberGranted(tenant=TENANT, project="vision", subject="sam", role=Role.APPROVER)
    desk.tell(fact, "tenant/acme", settle=False)
    desk.restart()
    assert [it.joined for it in desk.advance(seconds=0)] == [("sam",)]


def test_a_new_manager_who_gets_a_role_only_later_is_found() -> None:
    desk = opened(level(manager=True))
    desk.tell(SubjectManagerSet(tenant=TENANT, subject="dev", manager="new"), "tenant/acme")
    assert asked_of(desk).approvers == ("tina",)
    grant(desk, "new", Role.VIEWER)
    assert asked_of(desk).approvers == ("new",)
