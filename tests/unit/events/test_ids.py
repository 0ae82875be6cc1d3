"""Names and ids are the same on every machine and in every release."""

from qm_events.ids import derived_id, event_id, stream_key, stream_name


def test_the_id_of_a_fact_follows_from_stream_and_version_for_ever():
    assert event_id("order/0190", 1) == "9ef20473-e503-599a-b885-49818b348fa9"
    assert len({event_id(stream, version) for stream in ("a/1", "a/2") for version in (1, 2, 11)}) == 6


def test_a_derived_id_tells_its_parts_apart():
    assert derived_id("a", 1) == derived_id("a", "1") == "ac616e7f-3530-56cd-abb5-58330eda9119"
    assert derived_id("a", 1) != derived_id("a", 2)


def test_a_stream_knows_its_key():
    assert stream_name("order", "0190") == "order/0190"
    assert stream_key("order/0190") == "0190"
    assert stream_key("node/rack-1/n-7") == "rack-1/n-7"
