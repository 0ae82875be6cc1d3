"""Whatever happens to votes, people, groups and delegations: nothing is approved without the people required."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_admission.delegations import Days, SetAbsences
from qm_events.catalog import GroupJoined, GroupLeft
from qm_events.specs import Role
from tests.unit.admission.desk import TENANT, Desk, request, submit, vote
from tests.unit.admission.panel import assembled, grant, level, policy, put, revoke

PEOPLE = ("eva", "fay", "gus", "mia", "sam", "tina", "dev", "ann")
WHO: tuple[dict[str, Any], ...] = (
    {"groups": ("board",)},
    {"groups": ("board",), "manager": True},
    {"subjects": ("sam", "mia", "dev")},
    {"role": Role.APPROVER},
)

person = st.sampled_from(PEOPLE)
step = st.one_of(
    st.tuples(st.just("vote"), person, st.sampled_from(("approve", "approve", "approve", "deny"))),
    st.tuples(st.just("speak"), st.just(""), st.integers(0, 4)),
    st.tuples(st.just("speak"), st.just(""), st.integers(0, 4)),
    st.tuples(st.just("speak"), st.just(""), st.integers(0, 4)),
    st.tuples(st.just("join"), person, st.none()),
    st.tuples(st.just("leave"), person, st.none()),
    st.tuples(st.just("grant"), person, st.sampled_from((Role.VIEWER, Role.APPROVER))),
    st.tuples(st.just("revoke"), person, st.sampled_from((Role.VIEWER, Role.APPROVER))),
    st.tuples(st.just("away"), person, st.one_of(st.none(), person)),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from((10, 3_600))),
    st.tuples(st.just("restart"), st.just(""), st.none()),
)
rule = st.tuples(st.sampled_from(("any", "all", "n_of_m")), st.integers(1, 3), st.sampled_from(WHO), st.booleans())


class Town:
    """The directory as it is told, kept apart from what is tested: who is in the tenant, the group, away."""

    def __init__(self) -> None:
        self.roles = {name: {Role.VIEWER} for name in ("eva", "fay", "gus", "mia", "sam")}
        self.roles |= {"tina": {Role.TENANT_ADMIN}, "ann": {Role.APPROVER}, "bob": {Role.APPROVER}, "dev": set()}
        self.roles["dev"].add(Role.DEVELOPER)
        self.board = {"eva", "fay", "gus"}
        self.away: dict[str, str | None] = {}

    def may(self, name: str) -> bool:
        return bool(self.roles.get(name)) and name != "dev"

    def named(self, who: dict[str, Any]) -> set[str]:
        found = set(who.get("subjects", ())) | (self.board if "groups" in who else set())
        found |= {"mia"} if who.get("manager") else set()
        found |= {name for name, roles in self.roles.items() if who.get("role") in roles}
        return {name for name in found if self.may(name)}


def follow(desk: Desk, town: Town, kind: str, name: str, more: Any) -> Any:
    match kind:
        case "vote":
            return vote(desk, "o1", name, more)
        case "speak":
            able = desk.states["admission/o1"].asked.approvers
            return vote(desk, "o1", able[more % len(able)]) if able else None
        case "join":
            town.board.add(name)
            return desk.tell(GroupJoined(tenant=TENANT, group="board", subject=name), "tenant/acme")
        case "leave":
            town.board.discard(name)
            return desk.tell(GroupLeft(tenant=TENANT, group="board", subject=name), "tenant/acme")
        case "grant":
            town.roles.setdefault(name, set()).add(more)
            return grant(desk, name, more, "vision" if name == "ann" else None)
        case "revoke":
            town.roles.setdefault(name, set()).discard(more)
            return revoke(desk, name, more, "vision" if name == "ann" else None)
        case "away":
            day = desk.now.date()
            said = desk.command("delegations/acme", SetAbsences(TENANT, name, (Days(day, day, more),)))
            if isinstance(said, list) and said:
                town.away[name] = more
            return said
        case "wait":
            desk.now += timedelta(seconds=more)
            return desk.settle()
        case _:
            return desk.restart()


def note(desk: Desk, town: Town, rules: list[Any], least: dict[int, int], before: int) -> None:
    """Note how many a level named when it was asked: so many must agree where all must."""
    for fact in desk.facts[before:]:
        if fact.data.wire_type == "approval.requested.v1":
            least[fact.data.level] = max(1, len(town.named(rules[fact.data.level - 1][2])))


def check(desk: Desk, town: Town, rules: list[Any], least: dict[int, int]) -> None:
    """Look at each level that was granted by the step before: the people behind it, with the directory of now."""
    state = desk.states["admission/o1"]
    for asked in (*state.earlier, state.asked):
        # A word counts on when the absence in which it was said is over.
        for it in (said for said in asked.votes if said.at == desk.now):
            assert it.seat == it.voter or it.voter in town.away.values(), "only a delegate speaks for another"
        if asked.status != "granted" or asked.decided_at != desk.now:
            continue
        kind, n, who, escalates = rules[asked.level - 1]
        yes = [it for it in asked.votes if it.verdict == "approve"]
        assert len({it.voter for it in yes}) == len({it.seat for it in yes}) == len(yes), "one word a person and a seat"
        assert all("dev" not in (it.voter, it.seat) for it in yes), "not his own"
        lawful = town.named(who) | ({"sam"} & set(filter(town.may, town.roles)) if escalates else set())
        lawful |= {name for name, roles in town.roles.items() if Role.TENANT_ADMIN in roles}
        counted = {it.seat for it in yes if it.seat in lawful}
        assert len(counted) >= (n if kind == "n_of_m" else 1), (asked, lawful)
        if kind == "all":
            assert len(counted) >= least[asked.level]
            silent = town.named(who) - {it.seat for it in yes}
            assert asked.escalated_at or all(name in town.away for name in silent), "all means all"


@settings(max_examples=400, deadline=None)
@given(st.lists(rule, min_size=1, max_size=2), st.lists(step, min_size=8, max_size=40))
def test_nothing_is_approved_without_the_distinct_people_required(rules: list[Any], steps: list[Any]) -> None:
    desk, town = assembled(), Town()
    to = {"escalate_after_seconds": 3_000, "escalate_to": {"subjects": ("sam",)}}
    levels = [level(kind, n if kind == "n_of_m" else None, **who, **(to if up else {})) for kind, n, who, up in rules]
    put(desk, policy(*levels)) if _settable(rules) else None
    if not desk.docs.resident("policies"):
        return
    least: dict[int, int] = {}
    submit(desk, "o1", request("vision"))
    note(desk, town, rules, least, 0)
    for kind, name, more in steps:
        before = len(desk.facts)
        desk.now += timedelta(milliseconds=1)
        follow(desk, town, kind, name, more)
        said = [fact.data.wire_type for fact in desk.facts[before:]]
        assert kind in ("vote", "speak") or "approval.granted.v1" not in said, "only a vote approves"
        check(desk, town, rules, least)
        note(desk, town, rules, least, before)
    facts = [fact.data for fact in desk.facts if fact.subject == "admission/o1"]
    if any(fact.wire_type == "order.admitted.v1" for fact in facts):
        granted = [fact.level for fact in facts if fact.wire_type == "approval.granted.v1"]
        assert granted == list(range(1, len(rules) + 1)), "level after level, none left out"


def _settable(rules: list[Any]) -> bool:
    return all(not (kind == "n_of_m" and "subjects" in who and n > len(who["subjects"])) for kind, n, who, _ in rules)
