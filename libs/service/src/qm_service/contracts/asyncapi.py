"""AsyncAPI 3.0 from the registry: every topic with owner, key and partitioner, and every fact on it."""

from collections.abc import Iterable
from typing import Any

from qm_events import EventData
from qm_events.registry import TOPICS, Topic

PARTITIONER = "murmur2, as Kafka's Java client computes it: (murmur2(key) & 0x7fffffff) % partitions"

HEADERS = {
    "content-type": "`application/cloudevents+json`",
    "ce_id": "`id` of the event",
    "ce_type": "`type` of the event: which schema the value has",
    "ce_time": "`time` of the event, RFC 3339",
    "ce_subject": "`subject` of the event: its stream",
    "ce_version": "`version` of the event: its place in the stream, decimal",
    "traceparent": "W3C trace context; absent where there is none",
}
"""What travels beside the value, so that a reader can choose without parsing."""


def render_asyncapi3(facts: Iterable[type[EventData]], version: str) -> dict[str, Any]:
    """Return the AsyncAPI document of a release; schemas are referred to as `events/<type>.schema.json`."""
    by_topic: dict[str, list[type[EventData]]] = {name: [] for name in sorted(TOPICS)}
    for cls in facts:
        by_topic[cls.topic].append(cls)
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Quartermaster", "version": version, "description": _ABOUT},
        "defaultContentType": "application/json",
        "channels": {name: _channel(TOPICS[name], classes) for name, classes in by_topic.items()},
        "operations": {f"publish_{name}": _operation(TOPICS[name]) for name in by_topic},
        "components": {
            "messages": {cls.wire_type: _message(cls) for classes in by_topic.values() for cls in classes},
        },
    }


_ABOUT = (
    "The facts of Quartermaster. Each topic has one writer and is kept for ever; a record may come twice, with the "
    "same `id`; records of one key come in order. A reader ignores members and types that it does not know."
)


def _channel(topic: Topic, classes: list[type[EventData]]) -> dict[str, Any]:
    return {
        "address": topic.name,
        "description": f"Written by {topic.owner} alone. The key is the {topic.key}.",
        "messages": {cls.wire_type: {"$ref": f"#/components/messages/{cls.wire_type}"} for cls in classes},
        "bindings": {
            "kafka": {
                "bindingVersion": "0.5.0",
                "topic": topic.name,
                "partitions": topic.partitions,
                "topicConfiguration": {"cleanup.policy": ["delete"], "retention.ms": -1, "retention.bytes": -1},
            }
        },
        "x-owner": topic.owner,
        "x-key": topic.key,
        "x-partitioner": PARTITIONER,
        "x-timestamp-type": "LogAppendTime",
    }


def _operation(topic: Topic) -> dict[str, Any]:
    return {
        "action": "send",
        "channel": {"$ref": f"#/channels/{topic.name}"},
        "summary": f"{topic.owner} says what happened",
    }


def _message(cls: type[EventData]) -> dict[str, Any]:
    return {
        "name": cls.wire_type,
        "title": cls.__name__,
        "summary": " ".join((cls.__doc__ or "").split()),
        "contentType": "application/cloudevents+json",
        "headers": {
            "type": "object",
            "properties": {name: {"type": "string", "description": text} for name, text in HEADERS.items()},
            "required": [name for name in HEADERS if name != "traceparent"],
        },
        "payload": {"$ref": f"events/{cls.wire_type}.schema.json"},
        "bindings": {
            "kafka": {
                "bindingVersion": "0.5.0",
                "key": {"type": "string", "description": f"the {TOPICS[cls.topic].key}"},
            }
        },
    }
