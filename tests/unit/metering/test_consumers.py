"""Which orders are brought up to date, and by what."""

from qm_metering.consumers import Behind, settle
from qm_metering.domain import RecordUsage, lines_of
from qm_metering.projections import LEDGER, ORDERS
from qm_service.model import Context
from tests.unit.metering import facts


def folded(*events):
    usage = None
    for event in events:
        usage = ORDERS.folds[type(event.data)].apply(usage, event)
    return usage


def acts(behind):
    return settle(Context(now=facts.at(0), docs=facts.Nothing(), index=behind))


def test_an_order_is_behind_from_the_end_of_a_stretch_until_its_line_is_on_the_topic():
    behind, running = Behind(), folded(facts.allocated(0), facts.ready(10))
    behind.changed(ORDERS.name, "o-1", None, running)
    assert acts(behind) == []
    ended = folded(facts.allocated(0), facts.ready(10), facts.released(20))
    behind.changed(ORDERS.name, "o-1", running, ended)
    (act,) = acts(behind)
    assert (act.stream, act.tenant, act.project, act.correlation) == ("usage/a-1", "acme", "vision", "o-1")
    assert act.command == RecordUsage(lines_of(ended, ended.holdings[0]), "acme")
    recorded = facts.Metering().feed([facts.allocated(0), facts.ready(10), facts.released(20)]).usage
    behind.changed(ORDERS.name, "o-1", ended, recorded)
    assert acts(behind) == []


def test_other_documents_are_of_no_concern():
    behind = Behind()
    behind.changed(LEDGER.name, "r", None, object())
    assert acts(behind) == []


def test_an_order_that_leaves_memory_is_followed_no_more():
    behind, ended = Behind(), folded(facts.allocated(0), facts.returned(20))
    behind.changed(ORDERS.name, "o-1", None, ended)
    behind.changed(ORDERS.name, "o-1", ended, None)
    assert acts(behind) == []


def test_a_submitted_order_is_known_before_it_holds_anything():
    event = facts.submitted()
    usage = folded(event)
    assert (usage.order, usage.tenant, usage.project, usage.holdings) == ("o-1", "acme", "vision", ())
    assert folded(facts.cancelled(5), event) == folded(event, facts.cancelled(5))
