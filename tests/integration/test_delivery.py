"""What is delivered to run the distributed product: the image recipe, the compose file, the origin."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import qm_admission.settings
import qm_catalog.settings
import qm_metering.settings
import qm_provisioner.settings
import qm_scheduler.settings
from qm_service.access import ACCESS
from qm_service.settings import Settings
from tests.support.parts import NGINX_CONF, ROOT
from tests.support.product import SERVICES
from tests.support.servers import run

SETTINGS: Mapping[str, type[Settings]] = {
    "catalog": qm_catalog.settings.Settings,
    "admission": qm_admission.settings.Settings,
    "scheduler": qm_scheduler.settings.Settings,
    "provisioner": qm_provisioner.settings.Settings,
    "metering": qm_metering.settings.Settings,
}
EMBEDDED_ONLY = {"/v1/sim/clock", "/v1/sim/token"}
COMPOSE = ROOT / "docker-compose.yml"
GIVEN = {
    "QM_ISSUER": "https://issuer.invalid",
    "QM_BOOTSTRAP_OPERATOR": "olga",
    "QM_CREDENTIAL_KEYS": "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "POSTGRES_PASSWORD": "secret",
}
"""What the compose file asks its user for."""


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository, as the image recipe copies them."""
    folder = tmp_path_factory.mktemp("sources")
    ignored = {line.strip("/") for line in (ROOT / ".dockerignore").read_text().split()}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if name.split("/")[0] not in ignored and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.integration
@pytest.mark.parametrize("service", SERVICES)
def test_a_clean_environment_by_the_image_recipe_runs_its_service_and_holds_no_other(
    sources: Path, service: str, tmp_path: Path
) -> None:
    (line,) = re.findall(r"UV_PROJECT_ENVIRONMENT=/opt/qm (uv sync .*)", (ROOT / "Dockerfile").read_text())
    where = {"UV_PROJECT_ENVIRONMENT": str(tmp_path / "env"), "UV_PYTHON": sys.executable, "UV_NO_PROGRESS": "1"}
    command = shlex.split(line.replace("${SERVICE}", service))
    made = subprocess.run(command, cwd=sources, env={**_plain(), **where}, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    program = tmp_path / "env" / "bin" / f"qm-{service}"
    told = subprocess.run([program, "openapi"], cwd=tmp_path, env=_plain(), capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["paths"] == _contract(service)["paths"]
    installed = {path.name for path in (tmp_path / "env").glob("lib/python*/site-packages/*")}
    assert {name for name in installed if name.startswith("qm_") and "." not in name} == {
        "qm_events",
        "qm_service",
        f"qm_{service}",
    }
    assert "pytest" not in installed


def test_the_compose_file_is_one() -> None:
    checker = Path(sys.executable).parent / "check-jsonschema"
    run([checker, "--builtin-schema", "vendor.compose-spec", COMPOSE])


@pytest.mark.parametrize("service", SERVICES)
def test_the_compose_file_gives_each_service_settings_that_it_has(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = _composed()["services"][service]["environment"]
    # Without a value it is the shell's.
    given = {name: value if value is None else _filled(value) for name, value in environment.items()}
    fields = SETTINGS[service].model_fields
    assert {name for name in given if name.removeprefix("QM_").lower() not in fields} == set()
    for name, value in given.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    settings = SETTINGS[service]()
    assert settings.database_url == f"postgresql+asyncpg://postgres:secret@postgres/{service}"
    assert (settings.log_url, settings.host, settings.port) == ("kafka://kafka:9092", "0.0.0.0", 8080)


def test_the_compose_file_makes_the_database_of_each_service() -> None:
    script = (ROOT / "deploy" / "postgres-init.sql").read_text()
    assert re.findall(r"CREATE DATABASE (\w+);", script) == list(SERVICES)


def test_the_origin_leads_every_path_to_its_service() -> None:
    places = re.findall(r"location (~ )?(\S+)\s+\{ proxy_pass http://(\w+); \}", NGINX_CONF.read_text())
    assert ("", "/", "catalog") in places
    owners = {path: service for service in SERVICES for path in _contract(service)["paths"]}
    assert owners.keys() == {path for _, path in ACCESS} - EMBEDDED_ONLY
    for path, owner in owners.items():
        concrete = re.sub(r"\{\w+\}", "x", path)
        led = next(
            service for regex, place, service in places if (regex and re.search(place, concrete)) or place == "/"
        )
        assert led == owner, path


def _composed() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def _filled(value: str) -> str:
    """Return a value with the variables of the compose file filled in, as compose does."""
    return re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda found: GIVEN.get(found[1], found[2] or ""), value)


def _contract(service: str) -> Any:
    return json.loads((ROOT / "contracts" / "openapi" / f"{service}.json").read_text())


def _plain() -> dict[str, str]:
    """Return an environment that knows nothing of ours."""
    kept = ("PATH", "HOME", "SSL_CERT_FILE", "UV_CACHE_DIR", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
    return {name: os.environ[name] for name in kept if name in os.environ}
