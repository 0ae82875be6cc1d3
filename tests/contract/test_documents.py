"""The committed contracts are what the code says, and break nothing that was released."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from contracts import generate
from qm_events import all_facts
from qm_events.reasons import REASONS
from qm_events.registry import TOPICS
from qm_events.specs import WaitCode
from qm_service.contracts.asyncapi import HEADERS, render_asyncapi3
from qm_service.kafka_topics import SETTINGS
from qm_service.log import Message
from qm_service.log_rules import headers_of
from qm_service.model import Definition
from qm_service.plan import plan_of
from qm_service.problem import PROBLEMS

ASYNCAPI_SCHEMA = json.loads((Path(__file__).parent / "asyncapi" / "3.0.0.schema.json").read_text())
FACTS = list(all_facts())
DOCUMENT = render_asyncapi3(FACTS, generate.VERSION)


@pytest.mark.parametrize("owner", sorted({topic.owner for topic in TOPICS.values()}))
def test_every_service_has_a_fact_for_its_audit(owner):
    nothing = Definition(name=owner, deciders=(), projections=(), reactions={})
    assert plan_of(nothing).audit is not None


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    return generate.documents()


def test_every_document_is_what_the_code_says(wanted):
    assert generate.drift(wanted) == []


def test_no_released_fact_is_broken():
    assert generate.broken() == []


def test_every_problem_is_listed_once(wanted):
    listed = [line.split("`")[1] for line in wanted["problems.md"].splitlines() if line.startswith("| `")]
    assert listed == sorted(code for code, cls in PROBLEMS.items() if not cls.__module__.startswith("tests."))


def test_every_fact_is_listed_with_its_owner(wanted):
    rows = [[cell.strip() for cell in line.split("|")] for line in wanted["facts.md"].splitlines()]
    listed = {row[1].strip("`"): row[3] for row in rows if len(row) > 4 and row[1].startswith("`")}
    assert listed == {cls.wire_type.rpartition(".v")[0]: TOPICS[cls.topic].owner for cls in FACTS}


def test_every_fact_but_an_audit_is_consumed_by_someone(wanted):
    unheard = [line for line in wanted["facts.md"].splitlines() if "| - |" in line and "access_audited" not in line]
    assert unheard == []


@pytest.mark.parametrize("name", ["embedded", *sorted({topic.owner for topic in TOPICS.values()})])
def test_an_openapi_document_names_no_schema_that_it_lacks(wanted, name):
    text = wanted[f"openapi/{name}.json"]
    document = json.loads(text)
    referred = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert referred <= set(document["components"]["schemas"])


class TestAsyncApi:
    """The document, against the published JSON Schema of AsyncAPI 3.0.0 and against what the logs do."""

    def test_it_is_valid(self):
        jsonschema.Draft7Validator(ASYNCAPI_SCHEMA).validate(DOCUMENT)

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda it: it["channels"]["orders"]["bindings"]["kafka"].update(partitions="twelve"),
            lambda it: it["operations"]["publish_orders"].update(action="shout"),
            lambda it: it["components"]["messages"]["order.submitted.v1"].update(payloads={}),
        ],
    )
    def test_the_schema_sees_faults(self, spoil: Callable[[Any], None]):
        document = json.loads(json.dumps(DOCUMENT))
        spoil(document)
        assert not jsonschema.Draft7Validator(ASYNCAPI_SCHEMA).is_valid(document)

    def test_every_topic_is_there_with_owner_key_partitions_and_partitioner(self):
        told = {
            name: (it["x-owner"], it["x-key"], it["bindings"]["kafka"]["partitions"], it["x-partitioner"][:7])
            for name, it in DOCUMENT["channels"].items()
        }
        assert told == {name: (it.owner, it.key, it.partitions, "murmur2") for name, it in TOPICS.items()}

    def test_every_fact_is_a_message_on_the_channel_of_its_topic(self):
        told = {wire: name for name, channel in DOCUMENT["channels"].items() for wire in channel["messages"]}
        assert told == {cls.wire_type: cls.topic for cls in FACTS}
        assert set(DOCUMENT["components"]["messages"]) == set(told)

    def test_every_payload_is_a_committed_schema(self):
        for message in DOCUMENT["components"]["messages"].values():
            assert (generate.ROOT / message["payload"]["$ref"]).is_file()

    def test_the_headers_are_those_that_the_logs_write(self):
        message = Message("orders", "o", "t", "i", "s", 1, "2026-01-01T00:00:00Z", b"", traceparent="00-1-1-01")
        assert set(headers_of(message)) == set(HEADERS)

    def test_the_settings_are_those_that_a_topic_is_checked_for(self):
        for channel in DOCUMENT["channels"].values():
            told = channel["bindings"]["kafka"]["topicConfiguration"]
            assert {
                "cleanup.policy": ",".join(told["cleanup.policy"]),
                "retention.ms": str(told["retention.ms"]),
                "retention.bytes": str(told["retention.bytes"]),
                "message.timestamp.type": channel["x-timestamp-type"],
            } == dict(SETTINGS)


def test_every_reason_to_wait_has_a_meaning_in_the_order_of_its_rank():
    assert list(REASONS) == list(WaitCode)


def test_a_reason_of_the_scheduler_has_the_figures_that_its_rule_gives():
    import ast

    import qm_scheduler.own
    import qm_scheduler.reasons

    trees = [ast.parse(Path(module.__file__).read_text()) for module in (qm_scheduler.reasons, qm_scheduler.own)]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call) and _code(node)]
    given: dict[WaitCode, set[str | None]] = {}
    for call in calls:
        given.setdefault(WaitCode[_code(call)], set()).update(word.arg for word in call.keywords)
    assert given == {code: set(told.figures) for code, told in REASONS.items() if told.given_by == "scheduler"}


def _code(call: Any) -> str:
    match call.args:
        case [first, *_] if getattr(getattr(first, "value", None), "id", "") == "WaitCode":
            return str(first.attr)
    return ""
