"""Settings of a service process: variables `QM_<NAME>`, or files that `QM_<NAME>_FILE` name, as secrets come."""

import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "QM_"


class Settings(BaseSettings):
    """What all services share; a service subclasses it for its own."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    database_url: str = ""
    """SQLAlchemy URL, `sqlite+aiosqlite:///…` or `postgresql+asyncpg://…`; one database a service. No default: two
    services on one database would be each other's ruin."""
    log_url: str = "kafka://127.0.0.1:9092"
    """Where the topics are, as `qm_service.log_url.log_from` takes it: `kafka://host:port,…`, `sqlite:///path`."""
    clock: str = "wall"
    """As `qm_service.clock.clock_from` takes it."""
    issuer: str = "http://127.0.0.1:8080"
    """The OIDC issuer whose tokens are accepted, exactly as in their `iss`."""
    audience: str = "quartermaster"
    jwks_url: str | None = None
    """Where the issuer's keys are; None = look it up by OIDC discovery."""
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    lease_seconds: float = Field(default=10.0, gt=0)
    """How long the writer may be silent before a stand-by takes over."""
    trace_file: Path | None = None
    """Where spans are appended as JSON lines; None = ids are handed on, spans are not made."""


S = TypeVar("S", bound=Settings)


class SettingsInvalid(Exception):
    """A process cannot run with these settings; names the variable."""


def load(settings: type[S]) -> S:
    """Return the settings of this process. Raises SettingsInvalid."""
    files = {name: f"{PREFIX}{name.upper()}_FILE" for name in settings.model_fields}
    given: dict[str, Any] = {name: _secret(file) for name, file in files.items() if os.environ.get(file)}
    try:
        loaded = settings(**given)
    except ValidationError as error:
        wrong = [f"{PREFIX}{'_'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()]
        raise SettingsInvalid("; ".join(wrong)) from error
    if not loaded.database_url:
        raise SettingsInvalid(f"{PREFIX}DATABASE_URL: the database of this service has to be given")
    return loaded


def _secret(variable: str) -> str:
    try:
        return Path(os.environ[variable]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"{variable}: {error}") from error
