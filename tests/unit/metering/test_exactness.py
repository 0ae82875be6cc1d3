"""Any order, any duplicate, any window: the same card-microseconds as counting them one by one."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_events.metering import UsageCorrected
from qm_metering.domain import metered, unrecorded
from qm_metering.intervals import Span, clipped_us, micros
from qm_metering.policy import anomalies, held, pieces
from tests.unit.metering import facts

INSTANT = st.integers(0, 14)
END = {
    "cancelled": facts.cancelled,
    "released": facts.released,
    "expired": facts.expired,
    "failed": facts.failed,
    "preempted": facts.preempted,
    "quarantined": facts.quarantined,
    "ready": facts.ready,
    "returned": facts.returned,
}
CARDS = {"h100": 3, "h200": 2}


@st.composite
def histories(draw):
    """One order with up to two allocations: what happened and when, sane or not."""
    told, allocations = {"a-1": draw(INSTANT)}, ["a-1"]
    events = [facts.allocated(told["a-1"], "a-1", cards=CARDS)]
    if draw(st.booleans()):
        told["a-2"] = draw(INSTANT)
        allocations.append("a-2")
        events.append(facts.allocated(told["a-2"], "a-2", version=3, cards={"h100": 1}))
    for name, make in END.items():
        whole_order = name in ("cancelled", "released", "expired")
        for allocation in ("order",) if whole_order else allocations:
            if draw(st.booleans()):
                us = draw(INSTANT)
                told[name, allocation] = us
                events.append(make(us) if whole_order else make(us, allocation, 100 + len(events)))
    return told, events


def shuffled(draw_from, events):
    return draw_from.draw(st.permutations([*events, *draw_from.draw(st.lists(st.sampled_from(events), max_size=6))]))


def counted(told, allocation, window, now):
    """The brute force: look at every microsecond."""
    ends = [
        us
        for key, us in told.items()
        if isinstance(key, tuple) and key[0] not in ("ready", "returned") and key[1] in ("order", allocation)
    ]
    ready, back = told.get(("ready", allocation)), told.get(("returned", allocation))
    held_us = billable_us = 0
    for us in range(window.start_us, window.end_us):
        if us < told[allocation] or us >= (now if back is None else back):
            continue
        held_us += 1
        billable_us += ready is not None and ready <= us and all(us < end for end in ends)
    return {"held": held_us, "billable": billable_us}


@given(histories(), st.data())
def test_any_order_and_any_duplicate_give_the_same_document_to_the_byte(history, data):
    _, events = history
    straight = facts.Metering().feed(events)
    mixed = facts.Metering().feed(shuffled(data, events))
    assert mixed.usage.model_dump_json() == straight.usage.model_dump_json()


@settings(max_examples=300)
@given(histories(), st.data(), INSTANT, INSTANT, st.integers(15, 20))
def test_the_ledger_and_what_is_open_equal_a_count_of_every_microsecond(history, data, start, end, now):
    told, events = history
    service = facts.Metering().feed(shuffled(data, events))
    window = Span(min(start, end), max(start, end))
    totals = {"held": 0, "billable": 0}
    for line in service.ledger.values():
        totals[line.meter] += line.cards * clipped_us(Span(line.from_us, line.to_us), window, now)
    for _, meter, _, cards, gap in unrecorded(service.usage):
        totals[meter.meter] += cards * clipped_us(gap, window, now)
    wanted = {"held": 0, "billable": 0}
    for holding in service.usage.holdings:
        for name, us in counted(told, holding.allocation, window, now).items():
            wanted[name] += holding.total * us
    assert totals == wanted


@given(histories(), st.integers(15, 20))
def test_the_classes_of_a_holding_touch_and_add_up_to_what_it_held(history, now):
    _, events = history
    usage = facts.Metering().feed(events).usage
    for holding in usage.holdings:
        cut, window = pieces(usage, holding), Span(0, now)
        whole = held(usage, holding)
        assert sum(clipped_us(piece.span, window, now) for piece in cut) == clipped_us(whole, window, now)
        assert [a.span.end_us for a in cut[:-1]] == [b.span.start_us for b in cut[1:]]
        if cut:
            assert (cut[0].span.start_us, cut[-1].span.end_us) == (whole.start_us, whole.end_us)


@given(histories(), st.data(), st.lists(INSTANT, max_size=5), st.integers(15, 20))
def test_any_cuts_of_a_period_sum_to_the_uncut_period(history, data, cuts, now):
    _, events = history
    usage = facts.Metering().feed(shuffled(data, events)).usage
    bounds = [0, *sorted(cuts), 20]
    parts = [Span(a, b) for a, b in pairwise(bounds)]
    for holding in usage.holdings:
        for meter in metered(usage, holding):
            assert sum(clipped_us(meter.span, part, now) for part in parts) == clipped_us(meter.span, Span(0, 20), now)


@given(histories(), st.data())
def test_no_line_is_negative_and_a_line_that_was_taken_back_never_returns(history, data):
    _, events = history
    service = facts.Metering().feed(shuffled(data, events))
    lines = [event.data for event in service.topic]
    assert all(line.card_us == line.cards * (micros(line.to_at) - micros(line.from_at)) > 0 for line in lines)
    assert len({line.record for line in lines}) == len(lines)


@given(histories(), st.data())
def test_a_record_and_its_reversal_are_nothing_in_every_window(history, data):
    _, events = history
    service = facts.Metering().feed(shuffled(data, events))
    for event in service.topic:
        if isinstance(event.data, UsageCorrected):
            told, taken = service.ledger[event.data.reverses], service.ledger[event.data.record]
            changes = {"record": taken.record, "cards": -told.cards, "reverses": told.record}
            assert taken == told.model_copy(update=changes)


@given(histories())
def test_a_clock_that_went_back_is_always_an_anomaly(history):
    told, events = history
    usage = facts.Metering().feed(events).usage
    seen = {(a.allocation, a.code) for a in anomalies(usage)}
    for allocation in ("a-1", "a-2"):
        if allocation not in told:
            continue
        chain = [told[allocation], told.get(("ready", allocation)), told.get(("returned", allocation))]
        known = [us for us in chain if us is not None]
        assert ((allocation, "clock_regression") in seen) == (known != sorted(known))
