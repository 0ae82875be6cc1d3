"""`deploy/topics.yaml`: the topics as they are told to those who run the brokers."""

from pathlib import Path

import yaml

from qm_events.registry import Topic
from qm_service.kafka_topics import SETTINGS
from qm_service.log import EventLog


def read_topics(file: Path) -> tuple[Topic, ...]:
    """Return the topics of the file. Raises ValueError where its settings are not those that every start checks."""
    content = yaml.safe_load(file.read_text())
    if content["settings"] != SETTINGS:
        raise ValueError(f"{file}: the settings must be {dict(SETTINGS)}")
    return tuple(Topic(name, **properties) for name, properties in content["topics"].items())


async def ensure_topics(log: EventLog, file: Path) -> None:
    """Create what the file names and the log lacks, and check the rest. Raises TopicMisconfigured, LogUnavailable."""
    await log.ensure_topics(read_topics(file))
