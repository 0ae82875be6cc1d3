"""Every fact that was ever released stays readable: one encoded sample of each, never written again."""

import json
from datetime import datetime
from pathlib import Path

import jsonschema
import pytest

from contracts import generate
from qm_events import all_facts, decode, encode, fact
from qm_events.codec import current
from qm_service.contracts.jsonschema import fact_schema
from qm_service.contracts.samples import sample_event

GOLDEN = sorted(generate.GOLDEN.glob("*.json"))
FACTS = {cls.wire_type: cls for cls in all_facts()}


def wire_of(path: Path) -> str:
    return path.name.removesuffix(".json")


def test_every_fact_has_a_sample():
    assert set(FACTS) <= {wire_of(path) for path in GOLDEN}


@pytest.mark.parametrize("path", GOLDEN, ids=wire_of)
def test_a_sample_is_read_as_the_current_class(path):
    event = decode(path.read_bytes())
    assert type(event.data) is fact(current(wire_of(path)))
    assert event.type == wire_of(path)


@pytest.mark.parametrize("path", [it for it in GOLDEN if current(wire_of(it)) == wire_of(it)], ids=wire_of)
def test_a_sample_of_a_current_fact_is_written_again_to_the_same_bytes(path):
    assert encode(decode(path.read_bytes())) == path.read_bytes()


@pytest.mark.parametrize("wire", FACTS)
def test_a_sample_fills_every_field_and_holds_to_the_published_schema(wire):
    raw = encode(sample_event(FACTS[wire]))
    body = json.loads(raw)
    assert set(body["data"]) == set(FACTS[wire].model_fields)
    checker = jsonschema.FormatChecker(formats=())

    @checker.checks("date-time", raises=ValueError)
    def is_time(value: object) -> bool:
        return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None

    jsonschema.Draft202012Validator(fact_schema(FACTS[wire]), format_checker=checker).validate(body)
