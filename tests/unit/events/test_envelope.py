"""The envelope of a fact: CloudEvents, frozen, in UTC."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from qm_events import Event, new_event
from qm_events.catalog import OrderCancelRequested
from qm_events.ids import event_id

AT = datetime(2026, 6, 30, 23, 30, tzinfo=UTC)
CANCEL = OrderCancelRequested(order="o-1", requested_at=AT)


def test_a_fact_is_named_by_its_stream_and_version():
    event = new_event("order/o-1", 3, AT, "/quartermaster/catalog", CANCEL, tenant="acme")
    assert (event.id, event.subject, event.version, event.key) == (event_id("order/o-1", 3), "order/o-1", 3, "o-1")
    assert (event.type, event.specversion, event.tenant) == ("order.cancel_requested.v1", "1.0", "acme")


def test_what_new_event_trusts_is_what_validation_takes():
    event = new_event("order/o-1", 1, AT, "/quartermaster/catalog", CANCEL)
    assert Event[OrderCancelRequested].model_validate(event.model_dump()) == event


def test_an_instant_is_kept_in_utc_to_the_microsecond():
    seoul = AT.astimezone(timezone(timedelta(hours=9))).replace(microsecond=1)
    kept = OrderCancelRequested(order="o-1", requested_at=seoul).requested_at
    assert (kept, kept.utcoffset(), kept.microsecond) == (seoul, timedelta(0), 1)


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValidationError, match="zone"):
        OrderCancelRequested(order="o-1", requested_at=datetime(2026, 6, 30))  # noqa: DTZ001  # the point of the test


def test_a_fact_cannot_be_changed_and_takes_no_unknown_field():
    with pytest.raises(ValidationError, match="frozen"):
        CANCEL.order = "o-2"
    with pytest.raises(ValidationError, match="extra"):
        OrderCancelRequested(order="o-1", requested_at=AT, colour="red")
