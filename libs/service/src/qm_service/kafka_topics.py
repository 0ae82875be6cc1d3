"""How our topics must be set in Kafka, created so and checked at every start."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

from qm_events.registry import Topic
from qm_service.kafka_clients import LIMIT_SECONDS, bounded
from qm_service.log import LogUnavailable, TopicMisconfigured

SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # With the time of the event instead, an old event would be deleted by a retention that somebody sets later.
    "message.timestamp.type": "LogAppendTime",
}
"""Kept for ever, never compacted: any other value loses facts, most of them silently."""
_PROPAGATION_SECONDS = 0.05


async def ensure(servers: str, connection: Mapping[str, Any], topics: Sequence[Topic], replication: int) -> None:
    """Create what is missing, then check all. Raises TopicMisconfigured, LogUnavailable."""
    names = [topic.name for topic in topics]
    async with _admin(servers, connection) as admin:
        # A topic that was created a moment ago may not be known to the broker that is asked.
        while len(known := await _partitions(admin, names)) < len(names):
            await _create(admin, [topic for topic in topics if topic.name not in known], replication)
            await asyncio.sleep(_PROPAGATION_SECONDS)
        for topic in topics:
            _check(topic.name, "partitions", str(topic.partitions), str(known[topic.name]))
        for name, settings in (await _settings(admin, names)).items():
            for setting, wanted in SETTINGS.items():
                _check(name, setting, wanted, settings.get(setting, ""))


async def partition_counts(servers: str, connection: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
    """Return the number of partitions of those topics that exist. Raises LogUnavailable."""
    async with _admin(servers, connection) as admin:
        return await _partitions(admin, names)


@asynccontextmanager
async def _admin(servers: str, connection: Mapping[str, Any]) -> AsyncIterator[AIOKafkaAdminClient]:
    limit_ms = int(LIMIT_SECONDS * 1000)
    admin = AIOKafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=limit_ms, **connection)
    async with bounded("topics"):
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()


async def _create(admin: AIOKafkaAdminClient, topics: Sequence[Topic], replication: int) -> None:
    # One replica may be away without stopping the writers, where there are enough.
    settings = {**SETTINGS, "min.insync.replicas": str(max(1, replication - 1))}
    wanted = [NewTopic(topic.name, topic.partitions, replication, topic_configs=settings) for topic in topics]
    try:
        response = await admin.create_topics(wanted)
    except AttributeError as error:  # what the client makes of a cluster that has no controller yet
        raise LogUnavailable("the cluster has no controller") from error
    # The client does not raise: the codes are the only sign of a failure.
    for name, code, *message in response.topic_errors:
        failure = for_code(code)
        if code and failure is not TopicAlreadyExistsError:
            raise LogUnavailable(f"topic {name} cannot be created: {failure.__name__} {' '.join(map(str, message))}")


async def _partitions(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, int]:
    topics = await admin.describe_topics(list(names))
    return {topic["topic"]: len(topic["partitions"]) for topic in topics if not topic["error_code"]}


async def _settings(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for response in await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names]):
        for code, _, _, name, entries in response.resources:
            if code:
                raise LogUnavailable(f"the settings of {name} cannot be read: {for_code(code).__name__}")
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found


def _check(topic: str, setting: str, wanted: str, found: str) -> None:
    if found != wanted:
        raise TopicMisconfigured(f"{topic}: {setting} is {found or 'not known'}, must be {wanted}")
