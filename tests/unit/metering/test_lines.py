"""What is written on the topic: cut at months, explained by its facts, the same whatever happened on the way there."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm_metering import policy
from qm_metering.domain import RecordUsage, behind, decide, stale, unrecorded
from qm_metering.intervals import Span, clipped_us, micros
from qm_metering.policy import POLICIES, Class, Policy, Rule, anomalies, pieces
from tests.unit.metering import facts
from tests.unit.metering.test_exactness import INSTANT, counted, histories, shuffled

JUNE = micros(datetime(2026, 6, 1, tzinfo=UTC))
JULY = micros(datetime(2026, 7, 1, tzinfo=UTC))
AUGUST = micros(datetime(2026, 8, 1, tzinfo=UTC))
HOUR = 3_600_000_000


def told(service, meter):
    return [
        (it.data.wire_type.split(".")[1], it.data.from_at.month, it.data.period, bool(it.data.goes_on))
        for it in service.topic
        if it.data.meter == meter
    ]


def test_a_line_ends_where_a_month_ends_and_says_that_it_goes_on():
    events = [facts.allocated(JUNE), facts.ready(JUNE + HOUR), facts.released(AUGUST + HOUR)]
    service = facts.Metering().feed(ahead(events))
    assert told(service, "billable") == [
        ("recorded", 6, "2026-06", True),
        ("recorded", 7, "2026-07", True),
        ("recorded", 8, "2026-08", False),
    ]


def ahead(events):
    """The facts, told at the time that they speak of."""
    return [event.model_copy(update={"time": facts.at(AUGUST + 100 * HOUR)}) for event in events]


def test_what_runs_is_recorded_up_to_the_end_of_a_month_that_closes_and_not_again():
    service = facts.Metering().feed(ahead([facts.allocated(JUNE), facts.ready(JUNE + HOUR)]))
    assert service.topic == []
    service.close(JULY).close(JULY)
    assert told(service, "held") == [("recorded", 6, "2026-06", True)]
    assert told(service, "billable") == [("recorded", 6, "2026-06", True)]
    service.feed(ahead([facts.released(JULY + HOUR), facts.returned(JULY + 2 * HOUR)]))
    assert told(service, "billable")[1:] == [("recorded", 7, "2026-07", False)]
    assert told(service, "held")[1:] == [("recorded", 7, "2026-07", False)]


def test_a_stretch_of_a_line_names_the_facts_that_open_and_close_it():
    events = [facts.allocated(0), facts.ready(10), facts.released(30), facts.returned(40)]
    held = facts.Metering().feed(events).topic[-1].data
    known = {event.id: event.data for event in events}
    assert [(it.counts_as, it.payer, it.opened_by, it.closed_by) for it in held.stretches] == [
        ("provisioning", "platform", events[0].id, events[1].id),
        ("billable", "project", events[1].id, events[2].id),
        ("recovering", "platform", events[2].id, events[3].id),
    ]
    assert {it.opened_by for it in held.stretches} <= set(known)


@given(histories(), st.data(), st.lists(INSTANT, max_size=3))
def test_closing_at_any_time_changes_how_time_is_cut_and_no_total(history, data, closings):
    happened, events = history
    service = facts.Metering()
    steps = shuffled(data, events)
    for number, event in enumerate(steps):
        service.feed([event])
        if number < len(closings):
            service.close(max(service.closed_until_us, closings[number]))
    assert not behind(service.usage, service.closed_until_us)
    assert not stale(service.usage)
    window, now = Span(0, 30), 20
    totals = {"held": 0, "billable": 0}
    for line in service.ledger.values():
        totals[line.meter] += line.cards * clipped_us(Span(line.from_us, line.to_us), window, now)
    for _, meter, _, cards, gap in unrecorded(service.usage):
        totals[meter.meter] += cards * clipped_us(gap, window, now)
    wanted = {"held": 0, "billable": 0}
    for holding in service.usage.holdings:
        for name, us in counted(happened, holding.allocation, Span(0, now), now).items():
            wanted[name] += holding.total * us
    assert totals == wanted


@given(histories(), st.data())
def test_the_stretches_of_a_held_line_touch_and_add_up_to_it(history, data):
    service = facts.Metering().feed(shuffled(data, history[1]))
    for line in (event.data for event in service.topic if event.data.meter == "held"):
        ends = [it.to_at for it in line.stretches]
        assert [it.from_at for it in line.stretches] == [line.from_at, *ends[:-1]]
        assert ends[-1] == line.to_at


@pytest.fixture
def stricter(monkeypatch):
    """From the 20th microsecond on, the project pays for cards that are cleaned, for VMs only."""
    rule = Rule("project", "this is a test")
    second = Policy(2, 20, POLICIES[0].rules, {("vm", Class.RECOVERING): rule})
    monkeypatch.setattr(policy, "POLICIES", (POLICIES[0], second))


def test_another_version_of_the_table_holds_from_its_instant_on(stricter):
    service = facts.Metering().feed([facts.allocated(0), facts.ready(5), facts.released(15), facts.returned(40)])
    assert [
        (p.counts_as, p.span.start_us, p.policy.version) for p in pieces(service.usage, service.usage.holdings[0])
    ] == [
        (Class.PROVISIONING, 0, 1),
        (Class.BILLABLE, 5, 1),
        (Class.RECOVERING, 15, 1),
        (Class.RECOVERING, 20, 2),
    ]
    billable = [(micros(e.data.from_at), micros(e.data.to_at)) for e in service.topic if e.data.meter == "billable"]
    assert billable[0] == (5, 15)


def test_what_is_dated_after_its_own_telling_counts_for_nothing_and_is_said():
    late = facts.released(400_000_000)
    service = facts.Metering().feed([facts.allocated(0), facts.ready(10), late])
    assert service.topic == []
    assert [(it.code, it.fact) for it in anomalies(service.usage)] == [("future_stamp", late.id)]
    service.feed([facts.expired(100_000_000)])
    assert [event.data.card_us for event in service.topic] == [8 * (100_000_000 - 10)]


def test_a_line_that_is_said_again_after_it_was_taken_back_counts_again():
    service = facts.Metering().feed([facts.allocated(0), facts.returned(40)])
    holding = service.usage.holdings[0]
    called_for = service.command(holding)
    for _ in range(3):
        for command in (RecordUsage(()), called_for):
            for data in decide(service.streams[holding.allocation], command, facts.CTX):
                service.write(holding.allocation, data)
    lines = [row for row in service.ledger.values() if row.meter == "held"]
    assert len(lines) == 7 * len(holding.cards)
    assert sum(row.cards for row in lines) == holding.total
