"""The rules of an environment."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm_events import EventData
from qm_events import provisioner as facts
from qm_events.specs import EndCause, FaultReport, Probe
from qm_provisioner.commands import Begin, Checked, Disclose, NoteEnd, StepBroke, StepFinished
from qm_provisioner.domain import decide, receipt_digest
from qm_provisioner.environment import NOTHING, Environment, Phase, UnlawfulFact, evolve
from qm_service.model import Context, Rejected
from tests.support.provisioning import ORDER, START, order_of

BEGIN: Begin = replace(order_of("vm"), steps=("devices", "access"))
END = NoteEnd(ORDER, EndCause.RELEASED, START)
PASSED = Checked((Probe(name="reachable", passed=True),))
BLAMED = Checked((Probe(name="accelerator_visible", passed=False, detail="one of two", suspect=("n0-c1",)),))

UNEXPLAINED = Checked((*BLAMED.probes, Probe(name="reachable", passed=False, detail="no route")))


class Case:
    """An environment and all that was said of it."""

    def __init__(self) -> None:
        self.env: Environment = NOTHING
        self.said: list[EventData] = []
        self.now = START

    def when(self, command: Any) -> list[str]:
        """Give a command; return the names of what follows."""
        self.now += timedelta(seconds=1)
        decision = decide(self.env, command, Context(self.now, None))  # type: ignore[arg-type]  # no document is read
        assert not isinstance(decision, Rejected)
        self.env = reduce(evolve, decision, self.env)
        self.said += decision
        return [fact.wire_type.split(".")[1] for fact in decision]

    def done(self, **changes: Any) -> list[str]:
        """Report that what is in flight is done."""
        run = self.env.running
        assert run
        return self.when(replace(StepFinished(run.step, run.direction, run.attempt), **changes))

    def broke(self, *, final: bool = True) -> list[str]:
        """Report that what is in flight failed."""
        run = self.env.running
        assert run
        return self.when(StepBroke(run.step, run.direction, run.attempt, "no", final))

    def ready(self) -> "Case":
        """Go on until ready."""
        for command in (BEGIN, None, None, PASSED):
            self.done() if command is None else self.when(command)
        assert self.env.phase is Phase.READY
        return self


def validated(case: Case) -> facts.EnvironmentValidated:
    (one,) = [fact for fact in case.said if isinstance(fact, facts.EnvironmentValidated)]
    return one


def test_the_walk_there_and_back_one_transaction_a_step() -> None:
    case = Case()
    assert case.when(BEGIN) == ["started", "step_intended"]
    assert case.done() == ["step_done", "step_intended"]
    assert case.done(outputs={"host": "n0"}) == ["step_done"]
    assert case.env.phase is Phase.VERIFYING
    assert case.when(PASSED) == ["verified", "ready"]
    assert case.env.endpoint == {"host": "n0"}
    assert case.when(END) == ["end_noted", "release_started", "step_intended"]
    assert case.done(proof="revoked") == ["step_done", "revoked", "step_intended"]
    assert case.done(proof="wiped") == ["step_done", "wiped", "validated", "released"]
    assert [line.step for line in case.env.lines] == ["access", "devices", "validate"]
    assert case.env.digest == receipt_digest(case.env.lines)
    assert case.when(END) == case.when(BEGIN) == case.when(PASSED) == []


def test_what_was_reported_before_leads_to_nothing() -> None:
    case = Case()
    case.when(BEGIN)
    late = StepFinished("devices", "do", 1)
    case.done()
    assert case.when(late) == []
    assert case.when(replace(late, step="access", direction="undo")) == []
    assert case.when(BEGIN) == []


def test_an_attempt_that_fails_is_followed_by_the_next() -> None:
    case = Case()
    case.when(BEGIN)
    assert case.broke(final=False) == ["step_failed", "step_intended"]
    assert case.env.running
    assert (case.env.running.attempt, case.env.running.external_name) == (2, "qm-o1-devices")
    assert case.broke() == ["step_failed", "failed", "release_started", "step_intended"]
    assert case.done() == ["step_done", "validated", "released"]
    assert case.env.cause is EndCause.FAILED


def test_an_end_in_the_middle_of_a_step_waits_for_its_report() -> None:
    for report in ("done", "broke"):
        case = Case()
        case.when(BEGIN)
        assert case.when(END) == ["end_noted"]
        follows = case.done() if report == "done" else case.broke(final=False)
        assert follows[1:] == ["release_started", "step_intended"], "what failed or was broken off is undone, too"
        assert case.done() == ["step_done", "validated", "released"]
        assert case.env.failed_at is None


def test_an_end_during_the_checks_goes_back_at_once() -> None:
    case = Case()
    for command in (BEGIN, None, None, END):
        case.done() if command is None else case.when(command)
    assert case.env.phase is Phase.RELEASING
    assert case.when(PASSED) == []


def test_an_end_that_overtook_the_beginning_gives_the_cards_straight_back() -> None:
    case = Case()
    assert case.when(END) == ["end_noted"]
    assert case.env.phase is Phase.ABSENT
    assert case.when(BEGIN) == ["release_started", "validated", "released"]
    assert validated(case).clean == ("n0-c0", "n0-c1")
    assert case.env.phase is Phase.RELEASED


@pytest.mark.parametrize(
    ("checked", "cause"), [(BLAMED, EndCause.PREEMPTED), (UNEXPLAINED, EndCause.FAILED), (Checked(()), EndCause.FAILED)]
)
def test_what_is_not_proven_is_not_ready(checked: Checked, cause: EndCause) -> None:
    case = Case()
    for command in (BEGIN, None, None, checked):
        case.done() if command is None else case.when(command)
    assert case.env.ready_at is None
    assert case.env.cause is cause
    while case.env.running:
        case.done()
    assert validated(case).suspect == tuple(card for probe in checked.probes for card in probe.suspect)


BOTH = ("n0-c0", "n0-c1")


@pytest.mark.parametrize(("card", "suspect"), [("n0-c1", ("n0-c1",)), (None, BOTH), ("another-orders", BOTH)])
def test_a_fault_report_isolates_the_card_or_all_when_it_names_none(card: str | None, suspect: Sequence[str]) -> None:
    case = Case().ready()
    case.when(replace(END, fault=FaultReport(card=card, category="memory", summary="xid 48")))
    case.done()
    case.done()
    assert validated(case).suspect == suspect


def test_a_fault_report_that_comes_after_another_end_still_counts() -> None:
    case = Case().ready()
    case.when(replace(END, cause=EndCause.EXPIRED))
    report = replace(END, fault=FaultReport(card="n0-c0", category="memory", summary="xid 48"))
    assert case.when(report) == ["end_noted"]
    assert case.when(report) == []
    case.done()
    case.done()
    assert validated(case).suspect == ("n0-c0",)
    assert case.env.cause is EndCause.EXPIRED


def test_a_card_that_the_validation_finds_sick_is_isolated() -> None:
    case = Case().ready()
    case.when(END)
    case.done()
    case.done(outputs={"suspect": ["n0-c0"]})
    assert (validated(case).clean, validated(case).suspect) == (("n0-c1",), ("n0-c0",))


def test_a_step_back_that_fails_for_good_quarantines_once_and_the_rest_goes_on() -> None:
    case = Case().ready()
    case.when(END)
    assert case.broke(final=False) == ["step_failed", "step_intended"]
    assert case.broke() == ["step_failed", "quarantined", "step_intended"]
    assert case.broke() == ["step_failed", "released"]
    assert [line.confirmed for line in case.env.lines] == [False, False, False]


def test_nothing_is_wiped_where_a_step_back_failed() -> None:
    case = Case().ready()
    case.when(END)
    case.broke()
    assert "wiped" not in case.done(proof="wiped")


def test_a_credential_is_disclosed_only_while_ready() -> None:
    case = Case()
    ctx = Context(START, None)  # type: ignore[arg-type]  # no document is read
    for command in (BEGIN, None, None):
        case.done() if command is None else case.when(command)
        refused = decide(case.env, Disclose(), ctx)
        assert refused.code == "environment-not-ready"  # type: ignore[union-attr]  # a refusal
    case.when(PASSED)
    assert decide(case.env, Disclose(), ctx) == []
    case.when(END)
    assert decide(case.env, Disclose(), ctx).code == "credentials-revoked"  # type: ignore[union-attr]  # a refusal


def test_a_fact_that_cannot_follow_stops_the_stream() -> None:
    case = Case().ready()
    started, intended, done = case.said[0], case.said[1], case.said[2]
    with pytest.raises(UnlawfulFact):
        evolve(case.env, started)
    with pytest.raises(UnlawfulFact):
        evolve(case.env, done)
    with pytest.raises(UnlawfulFact):
        evolve(evolve(case.env, intended), intended.model_copy(update={"step": "access"}))


REPORTS = st.sampled_from(["done", "broke", "again", "begin", "end", "fault", "passed", "blamed", "none"])


@settings(derandomize=True, max_examples=400, deadline=None)
@given(st.lists(REPORTS, max_size=24))
def test_any_story_keeps_the_laws(story: list[str]) -> None:
    case = Case()
    told: dict[str, Any] = {
        "begin": BEGIN,
        "end": END,
        "fault": replace(END, fault=FaultReport(category="memory", summary="xid")),
        "passed": PASSED,
        "blamed": BLAMED,
        "none": Checked(()),
    }
    for word in story:
        if word in told:
            case.when(told[word])
        elif case.env.running:
            case.done() if word == "done" else case.broke(final=word == "broke")
    while case.env.running or case.env.phase is Phase.VERIFYING:
        case.done() if case.env.running else case.when(PASSED)
    names = [fact.wire_type.split(".")[1] for fact in case.said]
    if "started" in names or "release_started" in names:
        case.when(END)
        while case.env.running:
            case.done()
        names = [fact.wire_type.split(".")[1] for fact in case.said]
        assert names.count("released") == 1, names
        assert names.count("validated") + names.count("quarantined") == 1
        assert names[-1] == "released"
    assert names.count("ready") + names.count("failed") <= 1
    assert reduce(evolve, case.said, NOTHING) == case.env
