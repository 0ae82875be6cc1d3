"""Settings come from the environment, secrets from files that it names."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from qm_service.log_kafka import KafkaLog
from qm_service.log_memory import MemoryLog
from qm_service.log_sqlite import SqliteLog
from qm_service.logs import open_log
from qm_service.settings import Settings, load


def test_a_secret_file_beats_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text("postgresql+asyncpg://u:secret@db/catalog\n")
    monkeypatch.setenv("QM_DATABASE_URL", "sqlite+aiosqlite://")
    monkeypatch.setenv("QM_DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("QM_PORT", "9000")
    settings = load(Settings)
    assert settings.database_url == "postgresql+asyncpg://u:secret@db/catalog"
    assert settings.port == 9_000


def test_a_secret_file_that_is_missing_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QM_DATABASE_URL_FILE", "/nowhere/url")
    with pytest.raises(OSError, match="nowhere"):
        load(Settings)


def test_a_value_that_cannot_be_meant_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QM_PORT", "70000")
    with pytest.raises(ValidationError):
        load(Settings)


async def test_a_url_names_the_log() -> None:
    assert isinstance(open_log("memory://"), MemoryLog)
    assert isinstance(open_log("sqlite:////data/log.sqlite"), SqliteLog)
    assert isinstance(open_log("kafka://a:9092,b:9092?replication=3"), KafkaLog)


@pytest.mark.parametrize("url", ["", "kafka://", "sqlite://", "redis://x", "/data/log"])
def test_a_url_that_names_no_log_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="names no log"):
        open_log(url)
