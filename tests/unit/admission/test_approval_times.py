"""What time does to an open question: reminders, escalation, the end, absence and delegation by days of a zone."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from qm_admission.delegations import Days, SetAbsences, begin_of, days_of
from qm_events.approval import Absence
from qm_events.catalog import TenantRegistered
from qm_events.specs import Role
from qm_service.model import Rejected
from tests.unit.admission.desk import TENANT, Desk, names, request, submit, vote
from tests.unit.admission.panel import asked_of, assembled, away, grant, level, policy, put, revoke

HOUR = 3_600


def opened(*levels: Any, **more: Any) -> Desk:
    desk = assembled()
    put(desk, policy(*levels, **more))
    submit(desk, "o1", request("vision"))
    return desk


def code(said: Any) -> str | None:
    return said.code if isinstance(said, Rejected) else None


# ---- times of a level


def test_those_awaited_are_reminded_until_the_end() -> None:
    desk = opened(level("n_of_m", 2, remind_every_seconds=HOUR, lapses_after_seconds=7 * HOUR))
    (first,) = desk.advance(hours=1)
    assert (first.number, first.awaited, first.remind_at) == (1, ("eva", "fay", "gus"), desk.now + timedelta(hours=2))
    vote(desk, "o1", "eva")
    (second,) = desk.advance(hours=2)
    assert (second.number, second.awaited) == (2, ("fay", "gus"))
    assert names(desk.advance(hours=4)) == ["approval.lapsed", "order.rejected"]
    assert desk.advance(days=30) == []


def test_a_reminder_that_is_noticed_late_is_one() -> None:
    desk = opened(level(remind_every_seconds=HOUR))
    (late,) = desk.advance(hours=9, minutes=30)
    assert (late.number, late.remind_at) == (1, desk.now + timedelta(hours=2))


@pytest.mark.parametrize(
    ("every", "pauses"),
    [
        (60, [60 * 2**n for n in range(11)] + [86_400] * 3),
        (300, [300 * 2**n for n in range(9)] + [86_400] * 3),
        (86_400, [86_400] * 4),
        (86_399, [86_399, 86_400, 86_400]),
        (7 * 86_400, [7 * 86_400] * 3),
    ],
)
def test_each_pause_before_a_reminder_is_twice_the_last_up_to_a_day(every: int, pauses: list[int]) -> None:
    desk = opened(level(remind_every_seconds=every))
    for number, pause in enumerate(pauses, 1):
        assert asked_of(desk).remind_at == desk.now + timedelta(seconds=pause)
        assert desk.advance(seconds=pause - 1) == []
        (told,) = desk.advance(seconds=1)
        assert told.number == number


def test_a_question_that_nobody_answers_for_nine_weeks_does_not_fill_the_log() -> None:
    desk = opened(level(remind_every_seconds=300))
    for _ in range(9 * 7 * 24):
        desk.advance(hours=1)
    assert asked_of(desk).reminders < 9 * 7 + 10


def test_a_time_out_rejects_at_the_promised_instant() -> None:
    desk = opened(level(lapses_after_seconds=HOUR))
    promised = asked_of(desk).lapses_at
    lapsed, rejected = desk.advance(hours=5)
    assert (lapsed.lapsed_at, rejected.code) == (promised, "approval-lapsed")
    assert code(vote(desk, "o1", "eva")) == "approval-lapsed"


def test_escalation_lets_others_decide_too() -> None:
    desk = opened(level("n_of_m", 2, escalate_after_seconds=HOUR, escalate_to={"subjects": ("sam",)}))
    assert code(vote(desk, "o1", "sam")) == "approval-not-yours"
    vote(desk, "o1", "eva")
    (told,) = desk.advance(hours=1)
    assert (told.to, told.joined, told.awaited) == ("approvers", ("sam",), ("fay", "gus", "sam"))
    assert asked_of(desk).escalates_at is None
    assert names(vote(desk, "o1", "sam"))[0] == "approval.granted"


def test_escalation_of_all_needs_as_many_but_not_the_same() -> None:
    desk = opened(level("all", escalate_after_seconds=HOUR, escalate_to={"subjects": ("sam",)}))
    for person in ("eva", "fay"):
        vote(desk, "o1", person)
    desk.advance(hours=1)
    assert names(vote(desk, "o1", "sam"))[0] == "approval.granted"


def test_escalation_to_the_next_level_asks_it_and_ends_this_one() -> None:
    desk = opened(level(escalate_after_seconds=HOUR), level(role=Role.APPROVER, lapses_after_seconds=HOUR))
    first = asked_of(desk).approval
    gone, asked = desk.advance(hours=3)
    assert (gone.to, gone.escalated_at) == ("next_level", desk.now - timedelta(hours=2))
    assert (asked.level, asked.approvers, asked.lapses_at) == (2, ("ann", "bob"), desk.now + timedelta(hours=1))
    assert code(vote(desk, "o1", "eva", approval=first)) == "approval-void"
    assert names(vote(desk, "o1", "ann"))[0] == "approval.granted"


def test_those_who_join_late_get_the_time_that_was_lost() -> None:
    times = {"escalate_after_seconds": HOUR, "lapses_after_seconds": 2 * HOUR}
    desk = opened(level(escalate_to={"subjects": ("sam",)}, **times))
    (told,) = desk.advance(hours=9)
    assert told.lapses_at == desk.now + timedelta(hours=1)
    assert names(vote(desk, "o1", "sam"))[0] == "approval.granted"


def test_all_times_are_due_after_a_restart_too() -> None:
    times = {"remind_every_seconds": HOUR, "escalate_after_seconds": 2 * HOUR, "lapses_after_seconds": 4 * HOUR}
    desk = opened(level(escalate_to={"subjects": ("sam",)}, **times))
    said = []
    for _ in range(4):
        desk.restart()
        said += names(desk.advance(hours=1))
    assert said == [
        "approval.reminded",
        "approval.escalated",
        "approval.reminded",
        "approval.lapsed",
        "order.rejected",
    ]


# ---- days


@pytest.mark.parametrize(
    ("zone", "first", "last", "starts", "ends"),
    [
        ("UTC", "2026-06-30", "2026-06-30", "2026-06-30T00:00Z", "2026-07-01T00:00Z"),
        ("Asia/Seoul", "2026-06-30", "2026-06-30", "2026-06-29T15:00Z", "2026-06-30T15:00Z"),
        ("America/New_York", "2026-02-28", "2026-02-28", "2026-02-28T05:00Z", "2026-03-01T05:00Z"),
        # a day of 23 and one of 25 hours
        ("Europe/Berlin", "2026-03-29", "2026-03-29", "2026-03-28T23:00Z", "2026-03-29T22:00Z"),
        ("Europe/Berlin", "2026-10-25", "2026-10-25", "2026-10-24T22:00Z", "2026-10-25T23:00Z"),
        ("America/New_York", "2026-10-31", "2026-11-01", "2026-10-31T04:00Z", "2026-11-02T05:00Z"),
        # midnight is skipped: the day begins at one
        ("Africa/Cairo", "2026-04-24", "2026-04-24", "2026-04-23T22:00Z", "2026-04-24T21:00Z"),
        # midnight comes twice: the first one counts
        ("America/Havana", "2026-11-01", "2026-11-01", "2026-11-01T04:00Z", "2026-11-02T05:00Z"),
        ("Pacific/Kiritimati", "2026-12-31", "2026-12-31", "2026-12-30T10:00Z", "2026-12-31T10:00Z"),
        ("Asia/Seoul", "2028-02-29", "2028-02-29", "2028-02-28T15:00Z", "2028-02-29T15:00Z"),
    ],
)
def test_days_become_instants_in_their_zone(zone: str, first: str, last: str, starts: str, ends: str) -> None:
    desk = assembled()
    days = Days(date.fromisoformat(first), date.fromisoformat(last), "ann", zone)
    said = desk.command("delegations/acme", SetAbsences(TENANT, "bob", (days,)))
    assert not isinstance(said, Rejected)
    (absence,) = said[0].absences
    assert (absence.starts_at, absence.ends_at) == (at(starts), at(ends))
    assert days_of(absence) == (days.first_day, days.last_day)
    assert begin_of(days.first_day, zone) == absence.starts_at


def at(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


@pytest.mark.parametrize("zone", ["Asia/Seoul", "Europe/Berlin", "America/New_York"])
def test_a_delegate_speaks_from_the_first_to_the_last_instant_of_the_month_end(zone: str) -> None:
    desk = assembled()
    desk.tell(TenantRegistered(tenant=TENANT, display_name="Acme", timezone=zone), "tenant/acme")
    put(desk, policy(level(manager=True)))
    first, end = begin_of(date(2026, 6, 30), zone), begin_of(date(2026, 7, 1), zone)
    desk.now = first - timedelta(microseconds=1, seconds=1)
    submit(desk, "o1", request("vision"))
    assert away(desk, "mia", Days(date(2026, 6, 30), date(2026, 6, 30), "sam")) == []
    assert code(vote(desk, "o1", "sam")) == "approval-not-yours"
    assert desk.index.questions.next_at() == first
    (told,) = desk.advance(microseconds=1)
    assert (told.approvers, told.awaited, told.joined) == (("mia", "sam"), ("sam",), ("sam",))
    desk.now = end - timedelta(microseconds=1)
    desk.settle()
    assert asked_of(desk).awaited == ("sam",)
    (back,) = desk.advance(microseconds=1)
    assert (back.approvers, back.awaited) == (("mia",), ("mia",))
    assert code(vote(desk, "o1", "sam")) == "approval-not-yours"


def test_the_turns_of_days_are_due_after_a_restart_too() -> None:
    desk = opened(level(manager=True))
    away(desk, "mia", Days(date(2026, 6, 2), date(2026, 6, 3), "sam"))
    desk.restart()
    assert [told.awaited for told in desk.advance(days=1)] == [("sam",)]
    desk.restart()
    assert [told.awaited for told in desk.advance(days=2)] == [("mia",)]


# ---- who speaks for whom


TODAY = date(2026, 6, 1)


def test_a_delegate_speaks_for_the_one_who_is_away_and_the_vote_says_so() -> None:
    desk = opened(level(manager=True))
    (told,) = away(desk, "mia", Days(TODAY, TODAY, "sam"))
    assert told.joined == ("sam",)
    (granted, *_) = vote(desk, "o1", "sam", comment="for mia")
    assert (granted.approver, granted.on_behalf_of, granted.comment) == ("sam", "mia", "for mia")
    assert asked_of(desk).votes[0].seat == "mia"


def test_whoever_is_away_may_still_decide_himself() -> None:
    desk = opened(level(manager=True))
    away(desk, "mia", Days(TODAY, TODAY, "sam"))
    assert names(vote(desk, "o1", "mia"))[0] == "approval.granted"


def test_a_delegate_who_is_an_approver_himself_does_not_speak_twice() -> None:
    desk = opened(level("n_of_m", 2))
    away(desk, "eva", Days(TODAY, TODAY, "fay"))
    assert names(vote(desk, "o1", "fay")) == ["approval.voted"]
    assert code(vote(desk, "o1", "fay", on_behalf_of="eva")) == "approval-already-voted"
    assert names(vote(desk, "o1", "gus"))[0] == "approval.granted"


def test_a_seat_has_one_word_whoever_says_it() -> None:
    desk = opened(level("n_of_m", 2))
    away(desk, "eva", Days(TODAY, TODAY, "sam"))
    vote(desk, "o1", "sam")
    assert code(vote(desk, "o1", "eva")) == "approval-already-voted"
    assert code(vote(desk, "o1", "eva", "deny")) == "approval-conflict"


def test_a_delegate_of_a_delegate_has_no_say() -> None:
    desk = opened(level(manager=True))
    away(desk, "mia", Days(TODAY, TODAY, "sam"))
    away(desk, "sam", Days(TODAY, TODAY, "kim"))
    assert code(vote(desk, "o1", "kim")) == "approval-not-yours"


def test_whoever_is_away_without_a_delegate_is_not_counted_on() -> None:
    desk = opened(level("all"))
    (told,) = away(desk, "eva", Days(TODAY, TODAY))
    assert (told.awaited, told.joined) == (("fay", "gus", "tina"), ("tina",))
    for person in ("fay", "gus", "tina"):
        said = vote(desk, "o1", person)
    assert names(said)[0] == "approval.granted"


def test_a_delegate_who_has_gone_has_no_say_until_he_is_back() -> None:
    desk = opened(level(manager=True))
    away(desk, "mia", Days(TODAY, TODAY, "sam"))
    (told,) = revoke(desk, "sam", Role.VIEWER)
    assert told.awaited == ("tina",)
    assert code(vote(desk, "o1", "sam")) == "approval-not-yours"
    (told,) = grant(desk, "sam", Role.VIEWER)
    assert told.awaited == ("sam",)


@pytest.mark.parametrize(
    ("days", "word"),
    [
        (Days(date(2026, 6, 2), date(2026, 6, 1)), "before"),
        (Days(TODAY, TODAY, "bob"), "himself"),
        (Days(TODAY, TODAY, "stranger"), "stranger"),
        (Days(TODAY, TODAY, None, "Mars/Olympus"), "Mars"),
        (Days(TODAY, TODAY, None, "../etc/passwd"), "zone"),
        (Days(date(9999, 12, 31), date(9999, 12, 31)), "zone or day"),
    ],
)
def test_absences_that_cannot_be_are_refused(days: Days, word: str) -> None:
    refused = assembled().command("delegations/acme", SetAbsences(TENANT, "bob", (days,)))
    assert code(refused) == "delegation-invalid"
    assert isinstance(refused, Rejected)
    assert word in refused.detail


def test_absences_are_replaced_whole_and_the_same_again_is_no_fact() -> None:
    desk = assembled()
    away(desk, "bob", Days(TODAY, TODAY, "ann"))
    assert desk.command("delegations/acme", SetAbsences(TENANT, "bob", (Days(TODAY, TODAY, "ann"),))) == []
    away(desk, "bob")
    assert desk.docs.get("delegations", "acme/bob") is None
    zone = Absence(starts_at=at("2026-06-01T00:00Z"), ends_at=at("2026-06-02T00:00Z"), timezone="UTC")
    assert days_of(zone) == (TODAY, TODAY)
