"""Each row of the policy: from when to when an order is billed, and what it is told about the rest."""

import pytest

from qm_events.specs import EndCause
from qm_metering.domain import evolve, metered, unrecorded
from qm_metering.policy import POLICIES, Class, Kind, anomalies, pieces
from tests.unit.metering import facts

ENDS = {
    Kind.CANCELLED: (facts.cancelled, Class.RECOVERING),
    Kind.RELEASED: (facts.released, Class.RECOVERING),
    Kind.EXPIRED: (facts.expired, Class.OVERDUE),
    Kind.FAILED: (facts.failed, Class.FAILED),
    Kind.PREEMPTED: (facts.preempted, Class.PREEMPTED),
    Kind.QUARANTINED: (facts.quarantined, Class.QUARANTINED),
}


def cut(*events):
    usage = facts.Metering().feed(events).usage
    return [(p.counts_as, p.span.start_us, p.span.end_us) for h in usage.holdings for p in pieces(usage, h)]


def recorded(*events):
    lines = [event.data for event in facts.Metering().feed(events).topic]
    return [(line.meter, line.accelerator, line.card_us) for line in lines]


@pytest.mark.parametrize("kind", ENDS)
def test_each_end_stops_the_bill_and_names_the_rest(kind):
    make, after = ENDS[kind]
    assert cut(facts.allocated(10), facts.ready(30), make(70), facts.returned(100)) == [
        (Class.PROVISIONING, 10, 30),
        (Class.BILLABLE, 30, 70),
        (after, 70, 100),
    ]


@pytest.mark.parametrize("kind", ENDS)
def test_the_earliest_of_two_ends_counts(kind):
    make, after = ENDS[kind]
    other = facts.expired(80) if kind is not Kind.EXPIRED else facts.released(80)
    assert cut(facts.allocated(10), facts.ready(30), other, make(70))[1:] == [
        (Class.BILLABLE, 30, 70),
        (after, 70, None),
    ]


@pytest.mark.parametrize("kind", ENDS)
def test_an_end_before_ready_bills_nothing(kind):
    make, after = ENDS[kind]
    events = (facts.allocated(10), make(20), facts.ready(30), facts.returned(40))
    assert cut(*events) == [(Class.PROVISIONING, 10, 20), (after, 20, 40)]
    assert recorded(*events) == [("held", "h100", 8 * 30)]


def test_an_end_before_the_cards_were_given_bills_nothing():
    assert cut(facts.cancelled(5), facts.allocated(10), facts.returned(12)) == [(Class.RECOVERING, 10, 12)]


def test_only_the_project_pays_for_what_is_billable():
    for policy in POLICIES:
        assert [name for name, rule in policy.rules.items() if rule.billable] == [Class.BILLABLE]
        assert set(policy.rules) == set(Class)


def test_a_release_that_is_no_preemption_tells_nothing_new():
    started = facts.release_started(60, EndCause.RELEASED)
    assert cut(facts.allocated(10), facts.ready(30), started)[-1] == (Class.BILLABLE, 30, None)


def test_billable_time_is_recorded_when_it_ends_and_held_time_when_the_cards_are_back():
    service = facts.Metering().feed([facts.allocated(0), facts.ready(10), facts.released(30)])
    assert [(e.data.meter, e.data.card_us) for e in service.topic] == [("billable", 160)]
    service.feed([facts.returned(40)])
    assert [(e.data.meter, e.data.card_us) for e in service.topic] == [("billable", 160), ("held", 320)]
    assert not list(unrecorded(service.usage))


def test_each_accelerator_has_its_own_line():
    events = facts.allocated(0, cards={"h100": 3, "h200": 2}), facts.ready(0), facts.released(9), facts.returned(9)
    assert sorted(recorded(*events)) == [
        ("billable", "h100", 27),
        ("billable", "h200", 18),
        ("held", "h100", 27),
        ("held", "h200", 18),
    ]


def test_a_second_allocation_of_the_order_is_metered_by_its_own_facts():
    assert sorted(
        recorded(
            facts.allocated(0),
            facts.ready(10),
            facts.failed(20),
            facts.returned(30),
            facts.allocated(50, "a-2", 3),
            facts.ready(60, "a-2", 10),
            facts.released(70),
            facts.returned(80, "a-2", 4),
        )
    ) == [("billable", "h100", 80), ("billable", "h100", 80), ("held", "h100", 240), ("held", "h100", 240)]


def test_a_late_fact_takes_the_line_back_and_records_the_right_one():
    service = facts.Metering().feed([facts.allocated(0), facts.ready(10), facts.released(30), facts.failed(20)])
    first, reversal, right = (event.data for event in service.topic)
    assert (reversal.wire_type, reversal.reverses, reversal.card_us) == ("usage.corrected.v1", first.record, 160)
    assert (right.wire_type, right.card_us) == ("usage.recorded.v1", 80)
    assert [line.cards for line in service.ledger.values()] == [8, -8, 8]


def test_a_return_without_an_end_waits_for_the_end_and_says_so():
    service = facts.Metering().feed([facts.allocated(0), facts.ready(10), facts.returned(40)])
    assert [event.data.meter for event in service.topic] == ["held"]
    assert [anomaly.code for anomaly in anomalies(service.usage)] == ["end_missing"]
    service.feed([facts.released(30)])
    held, taken_back, held_again, billable = (event.data for event in service.topic)
    # What was held is the same; ten microseconds of it are in another class now.
    assert (held.card_us, taken_back.reverses, held_again.card_us, billable.card_us) == (320, held.record, 320, 160)
    assert [line.counts_as for line in held_again.stretches] == ["provisioning", "billable", "recovering"]
    assert not anomalies(service.usage)


def test_cards_that_came_back_before_they_were_given_hold_nothing_and_are_an_anomaly():
    service = facts.Metering().feed([facts.allocated(50), facts.ready(60), facts.released(70), facts.returned(40)])
    assert [line.cards for line in service.ledger.values()] == [8, -8]
    assert [list(metered(service.usage, h)) for h in service.usage.holdings] == [[]]
    assert [(a.code, a.by_us) for a in anomalies(service.usage)] == [("clock_regression", 10), ("clock_regression", 20)]


def test_ready_before_allocated_bills_from_allocated_on():
    service = facts.Metering().feed([facts.allocated(50), facts.ready(40), facts.released(70)])
    assert [(event.data.meter, event.data.card_us) for event in service.topic] == [("billable", 160)]
    assert [(a.code, a.by_us) for a in anomalies(service.usage)] == [("clock_regression", 10)]


def test_ready_said_twice_counts_from_the_first_and_is_an_anomaly():
    twice = [facts.ready(20), facts.ready(10, version=9)]
    service = facts.Metering().feed([facts.allocated(0), *twice, facts.released(30)])
    assert [event.data.card_us for event in service.topic] == [160]
    assert [a.code for a in anomalies(service.usage)] == ["conflicting_facts"]


def test_an_order_that_never_held_cards_is_nothing():
    service = facts.Metering().feed([facts.cancelled(5)])
    assert (service.topic, list(unrecorded(service.usage)), cut(facts.cancelled(5))) == ([], [], [])


def test_a_foreign_fact_on_a_usage_stream_stops_it():
    with pytest.raises(TypeError, match=r"order\.expired\.v1"):
        evolve({}, facts.expired(1).data)
