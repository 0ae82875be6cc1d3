"""Facts to bytes and back, over versions."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from qm_events import UndecodableEvent, UnknownEventType, codec, decode, encode, new_event
from qm_events.catalog import OrderCancelRequested
from qm_events.codec import check_upcasters, current, upcaster
from qm_events.envelope import utc_text

GOLDEN = Path(__file__).parents[2] / "contract" / "golden"

AT = datetime(2026, 6, 30, 23, 30, tzinfo=UTC)
CANCEL = new_event("order/o-1", 1, AT, "/quartermaster/catalog", OrderCancelRequested(order="o-1", requested_at=AT))
NOW = CANCEL.type


@pytest.fixture(autouse=True)
def no_upcasters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_UPCASTERS", {})


def written(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(CANCEL)), **changes}).encode()


def unchanged(data):
    return data


def test_a_fact_survives_the_way_to_bytes_and_back():
    assert decode(encode(CANCEL)) == decode(encode(CANCEL), NOW) == CANCEL
    assert encode(decode(encode(CANCEL))) == encode(CANCEL)


def test_what_is_none_is_left_out():
    assert b"null" not in encode(CANCEL)
    assert "tenant" not in json.loads(encode(CANCEL))


def test_what_a_newer_release_added_to_a_fact_is_ignored():
    sample = (GOLDEN / "order.submitted.v1.json").read_bytes()
    newer = json.loads(sample)
    newer["data"]["added"] = newer["data"]["request"]["specification"]["added"] = 1
    assert decode(json.dumps(newer).encode()) == decode(sample)


def test_an_unknown_attribute_of_the_envelope_is_ignored():
    assert decode(written(colour="red")) == CANCEL


def test_a_type_of_a_later_release_is_named_and_not_guessed():
    with pytest.raises(UnknownEventType, match=r"order\.painted\.v1"):
        decode(written(type="order.painted.v1"))


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"{}", b'"x"', b"\xff", written(data={}), written(data=None), written(version=0)],
)
def test_bytes_that_are_no_fact_are_undecodable(raw):
    with pytest.raises(UndecodableEvent):
        decode(raw)


def test_an_old_version_is_brought_up_hop_by_hop_and_keeps_its_type():
    upcaster("order.cancel_requested.v0", NOW)(lambda data: {"order": data["order"], "requested_at": data["at"]})
    upcaster("order.cancelled.v0", "order.cancel_requested.v0")(lambda data: {"order": data["id"], "at": data["at"]})
    check_upcasters()
    old = written(type="order.cancelled.v0", data={"id": "o-1", "at": AT.isoformat()})
    event = decode(old)
    assert (event.data, event.type) == (CANCEL.data, "order.cancelled.v0")
    assert current("order.cancelled.v0") == NOW


def test_two_upcasters_of_one_type_fail_at_import_with_its_name():
    upcaster("order.x.v1", NOW)(unchanged)
    with pytest.raises(ValueError, match=r"order\.x\.v1 has two upcasters"):
        upcaster("order.x.v1", NOW)(unchanged)


@pytest.mark.parametrize("chain", [["a.v1", "a.v1"], ["a.v1", "a.v2", "a.v1"], ["a.v1", "a.v2", "a.v3", "a.v2"]])
def test_upcasters_in_a_circle_fail_at_import_with_the_name(chain):
    def register():
        for old, new in pairwise(chain):
            upcaster(old, new)(unchanged)

    with pytest.raises(ValueError, match=r"the upcasters of a\.v\d run in a circle at a\.v\d"):
        register()


def test_a_gap_in_a_chain_fails_at_import_with_the_names():
    upcaster("a.v1", "a.v2")(unchanged)
    with pytest.raises(ValueError, match=r"the upcasters of a\.v1 end at a\.v2, which is no fact"):
        check_upcasters()


def test_an_upcaster_that_fails_makes_its_fact_undecodable():
    upcaster("a.v1", NOW)(lambda data: data["missing"])
    with pytest.raises(UndecodableEvent, match=r"a\.v1"):
        decode(written(type="a.v1"))


def test_an_instant_in_a_text_is_written_as_on_the_wire() -> None:
    for at in (AT, AT.replace(microsecond=5)):
        event = new_event("order/o-1", 1, at, "/test", OrderCancelRequested(order="o-1", requested_at=at))
        assert json.loads(encode(event))["data"]["requested_at"] == utc_text(at)
