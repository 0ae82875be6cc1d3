"""The vocabulary of Quartermaster: envelope, ids, units and every fact. Needs pydantic alone; others may install it.

Read `registry` first: the life of an order in prose, and the topics.
"""

from qm_events import admission, admission_approval, admission_quota, catalog, metering, provisioner, scheduler
from qm_events.codec import UndecodableEvent, UnknownEventType, check_upcasters, decode, encode
from qm_events.envelope import Event, EventData, UtcTime, new_event
from qm_events.registry import PARTITIONS, TOPICS, Topic, all_facts, fact, topics_of

check_upcasters()

__all__ = [
    "PARTITIONS",
    "TOPICS",
    "Event",
    "EventData",
    "Topic",
    "UndecodableEvent",
    "UnknownEventType",
    "UtcTime",
    "admission",
    "admission_approval",
    "admission_quota",
    "all_facts",
    "catalog",
    "decode",
    "encode",
    "fact",
    "metering",
    "new_event",
    "provisioner",
    "scheduler",
    "topics_of",
]
