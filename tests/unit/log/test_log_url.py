"""URLs of logs, and the file of topics."""

from pathlib import Path

import pytest
import yaml

from qm_events.registry import TOPICS
from qm_service.log_kafka import KafkaLog
from qm_service.log_memory import MemoryLog
from qm_service.log_sqlite import SqliteLog
from qm_service.log_url import log_from
from qm_service.topics_file import ensure_topics, read_topics

FILE = Path(__file__).parents[3] / "deploy" / "topics.yaml"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryLog),
        ("sqlite:///data/log.db", SqliteLog),
        ("sqlite:////var/lib/quartermaster/log.db", SqliteLog),
        ("kafka://one:9092,two:9092?replication=3", KafkaLog),
        ("kafka://name:pass%2Fword@one:9093?security_protocol=SASL_SSL&sasl_mechanism=SCRAM-SHA-512", KafkaLog),
    ],
)
async def test_a_url_names_a_log(url: str, kind: type) -> None:
    log = log_from(url)
    assert isinstance(log, kind)
    await log.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "kafka",
        "sqlite://",
        "sqlite:///",
        "redis://x",
        "memory://x",
        "kafka://x?retention=7",
        "kafka://x?replication",
    ],
)
async def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"no log is at|does not take|bad query field"):
        log_from(url)


def test_the_file_of_topics_is_the_registry() -> None:
    assert read_topics(FILE) == tuple(TOPICS.values())


def test_a_file_with_other_settings_is_refused(tmp_path: Path) -> None:
    content = yaml.safe_load(FILE.read_text())
    content["settings"]["retention.ms"] = "604800000"
    (tmp_path / "topics.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match="settings must be"):
        read_topics(tmp_path / "topics.yaml")


async def test_topics_are_made_from_the_file() -> None:
    log = MemoryLog()
    await ensure_topics(log, FILE)
    assert len(await log.ends(TOPICS)) == sum(topic.partitions for topic in TOPICS.values())
