"""Settings come from the environment, secrets from files that it names."""

from pathlib import Path

import pytest

from qm_service.settings import Settings, SettingsInvalid, load


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
    with pytest.raises(SettingsInvalid, match=r"QM_DATABASE_URL_FILE: .*nowhere"):
        load(Settings)


def test_a_value_that_cannot_be_meant_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QM_DATABASE_URL", "sqlite+aiosqlite://")
    monkeypatch.setenv("QM_PORT", "70000")
    with pytest.raises(SettingsInvalid, match=r"QM_PORT: .*65535"):
        load(Settings)


def test_a_service_does_not_make_up_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QM_DATABASE_URL", raising=False)
    with pytest.raises(SettingsInvalid, match="QM_DATABASE_URL"):
        load(Settings)
