"""The record is the same in whatever order the topics are read, and its end is the end."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from qm_catalog.record_conditions import CONDITIONS, conditions
from qm_catalog.record_phase import ENDS as END_PHASES
from qm_catalog.record_phase import Phase, ended_by, phase, reasons, times
from qm_catalog.request_record import Record, finished, holds_cards, promised_end
from qm_events import EventData, scheduler
from qm_events.specs import EndCause, Health
from tests.unit.catalog import walk
from tests.unit.catalog.walk import ENDS, STORIES, Story, at, fold, in_order, tell

ADAPTER = TypeAdapter(Record)


def interleaved(story: Story, seed: int):
    """Return all facts, topics mixed at random, each topic in its own order."""
    queues = [list(told) for told in story.values()]
    mixed, rnd = [], random.Random(seed)
    while queues := [queue for queue in queues if queue]:
        mixed.append(rnd.choice(queues).pop(0))
    return mixed


def status(record: Record, name: str) -> tuple[str, str]:
    return next((c.status, c.reason) for c in conditions(record) if c.type == name)


@settings(derandomize=True, max_examples=300)
@given(st.sampled_from(sorted(STORIES)), st.integers(min_value=0))
def test_any_interleaving_of_the_topics_gives_the_same_record(name: str, seed: int) -> None:
    story = STORIES[name]
    assert ADAPTER.dump_json(fold(interleaved(story, seed))) == ADAPTER.dump_json(fold(in_order(story)))


@settings(derandomize=True, max_examples=200)
@given(st.sampled_from(sorted(STORIES)), st.integers(min_value=0))
def test_an_end_is_never_reached_while_a_card_is_held(name: str, seed: int) -> None:
    record = None
    for event in interleaved(STORIES[name], seed):
        record = fold([event], record)
        assert not (phase(record) in END_PHASES and holds_cards(record))
        assert (phase(record) in END_PHASES) == finished(record)


@settings(derandomize=True, max_examples=200)
@given(st.sampled_from(sorted(STORIES)), st.integers(min_value=0))
def test_facts_that_come_twice_change_nothing(name: str, seed: int) -> None:
    story, rnd = STORIES[name], random.Random(seed)
    twice = [again for event in interleaved(story, seed) for again in [event] * rnd.randint(1, 2)]
    assert fold([*twice, *rnd.sample(twice, len(twice))]) == fold(in_order(story))


@pytest.mark.parametrize("name", STORIES)
def test_every_way_to_an_end_ends_in_its_phase(name: str) -> None:
    assert phase(fold(in_order(STORIES[name]))) == ENDS[name]


@settings(derandomize=True, max_examples=200)
@given(st.sampled_from(sorted(STORIES)), st.data())
def test_a_late_fact_is_an_anomaly_and_changes_nothing_that_a_reader_acts_on(name: str, data: st.DataObject) -> None:
    story = STORIES[name]
    end = fold(in_order(story))
    over = [topic for topic in story if topic != "usage" and not _still_open(topic, end)]
    topic = data.draw(st.sampled_from(over))
    late = data.draw(st.sampled_from([e for s in STORIES.values() for e in s.get(topic, ())]))
    event = late.model_copy(update={"version": len(story[topic]) + 1})
    after = fold([event], end)
    assert (phase(after), times(after), reasons(after)) == (phase(end), times(end), reasons(end))
    assert conditions(after) == conditions(end)
    assert promised_end(after) == promised_end(end)


def _still_open(topic: str, record: Record) -> bool:
    """Tell whether the story left a topic without its last word, as where another topic ended the order."""
    return {
        "orders": record.asked.ended_at is None,
        "admissions": not (record.vetted.refunded_at or record.vetted.rejected_at or record.vetted.withdrawn_at),
        "allocations": not (record.placed.returned_at or record.placed.withdrawn_at),
        "environments": record.built.receipt is None,
    }[topic]


def test_a_late_fact_is_shown_with_its_type_and_time() -> None:
    end = fold(in_order(STORIES["served"]))
    late = STORIES["served"]["allocations"][1].model_copy(update={"version": 9, "time": at(200)})
    anomalies = fold([late], end).placed.anomalies
    assert [(a.type, a.version, a.at) for a in anomalies] == [("allocation.waiting.v1", 9, at(200))]


def test_the_phases_of_a_served_order_come_in_the_order_of_the_design() -> None:
    seen: list[Phase] = []
    record = None
    for event in in_order(STORIES["served"]):
        record = fold([event], record)
        if not seen or seen[-1] != phase(record):
            seen.append(phase(record))
    assert seen == [
        Phase.SUBMITTED,
        Phase.PENDING_APPROVAL,
        Phase.SUBMITTED,
        Phase.HELD,
        Phase.SUBMITTED,
        Phase.QUEUED,
        Phase.SCHEDULED,
        Phase.PROVISIONING,
        Phase.VERIFYING,
        Phase.ACTIVE,
        Phase.RELEASING,
        Phase.RECOVERING,
        Phase.CLOSED,
    ]


def test_conditions_are_always_all_there_and_say_since_when() -> None:
    record = fold(in_order(STORIES["served"]))
    assert [c.type for c in conditions(record)] == list(CONDITIONS)
    assert {c.type: (c.status, c.reason) for c in conditions(record)} == {
        "Approved": ("True", "Granted"),
        "QuotaReserved": ("False", "Refunded"),
        "Scheduled": ("False", "Returned"),
        "Provisioned": ("False", "Released"),
        "Verified": ("True", "AllProbesPassed"),
        "Metering": ("False", "Stopped"),
        "CredentialsRevoked": ("True", "Revoked"),
        "Sanitised": ("True", "Validated"),
    }
    assert all(c.since is not None for c in conditions(record))


def test_metering_stops_at_the_request_not_at_the_release() -> None:
    record = fold(in_order(STORIES["served"]))
    metering = next(c for c in conditions(record) if c.type == "Metering")
    assert metering.since == at(80)
    assert metering.message == "2.166666667 card-hours"


def test_a_quarantined_card_is_not_called_clean() -> None:
    record = fold(in_order(STORIES["quarantined"]))
    assert status(record, "Sanitised") == ("False", "Quarantined")
    assert record.placed.quarantined == ("n1-c0", "n1-c1")


def test_a_held_order_names_every_limit_in_the_way() -> None:
    (reason,) = reasons(fold(in_order(tell(walk.submitted(), (2.5, walk.held())))))
    assert reason.code == "QuotaExhausted"
    assert reason.figures["short_by"] == 2
    assert reason.remedy == "Ask for more."
    assert reason.since == at(2.5)


def test_a_queued_order_says_why_it_waits() -> None:
    record = fold(in_order(tell(walk.submitted(), *walk.admitted(), *walk.allocated()[:2])))
    assert [r.code for r in reasons(record)] == ["CapacityInUse"]
    assert status(record, "Scheduled") == ("False", "CapacityInUse")


def test_a_failed_order_says_which_step_failed() -> None:
    (reason,) = reasons(fold(in_order(STORIES["failed"])))
    assert (reason.code, reason.figures) == ("EnvironmentFailed", {"step": "server", "error": "no host"})
    assert ended_by(fold(in_order(STORIES["failed"]))) is EndCause.FAILED


def test_a_retried_step_counts_its_attempts_and_keeps_its_start() -> None:
    record = fold(in_order(STORIES["served"]))
    server = next(s for s in record.built.steps if s.step == "server")
    assert (server.status, server.attempts, server.started_at, server.ended_at) == ("done", 2, at(10), at(13))


def test_a_duration_counts_from_ready() -> None:
    story = STORIES["served"]
    assert promised_end(fold(story["orders"][:1])) is None
    assert promised_end(fold(in_order(story))) == at(15 + 8 * 60)


def test_the_history_of_the_queue_does_not_grow_without_end() -> None:
    waits = [(5.0, walk.allocated()[1][1])] * 200
    record = fold(in_order(tell(walk.submitted(), *walk.admitted(), walk.allocated()[0], *waits)))
    assert len(record.placed.history) == 50
    assert record.placed.history_dropped == 151


def test_a_record_survives_its_row() -> None:
    for story in STORIES.values():
        record = fold(in_order(story))
        raw = ADAPTER.dump_json(record)
        assert ADAPTER.dump_json(ADAPTER.validate_json(raw)) == raw


def test_a_card_that_falls_sick_under_an_order_is_told_until_it_is_well() -> None:
    def seen(minute: float, card: str, health: Health) -> tuple[float, EventData]:
        fact = scheduler.AllocationImpaired(
            order=walk.ORDER,
            allocation=walk.ALLOCATION,
            node="n1",
            card=card,
            health=health,
            code="XID-79",
            impaired_at=at(minute),
        )
        return minute, fact

    told = [
        walk.submitted(),
        *walk.admitted(),
        *walk.allocated(),
        seen(20, "n1-c0", Health.FAILED),
        seen(21, "n1-c1", Health.SUSPECT),
    ]
    record = fold(in_order(tell(*told)))
    scheduled = next(c for c in conditions(record) if c.type == "Scheduled")
    assert (scheduled.status, scheduled.reason, scheduled.since) == ("True", "Impaired", at(20))
    assert scheduled.message == "n1-c0 failed XID-79, n1-c1 suspect XID-79"
    well = [seen(22, card, Health.HEALTHY) for card in ("n1-c0", "n1-c1")]
    assert status(fold(in_order(tell(*told, *well))), "Scheduled") == ("True", "Allocated")
