"""Servers that tests share: one of each for a whole run, started by the first test that asks."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.ironic import Ironic
from tests.support.machines import Machines
from tests.support.servers import Kafka, Postgres

_databases = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL of this run."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres: Postgres) -> str:
    """Its URL without a database, for SQLAlchemy."""
    return postgres.url


@pytest.fixture
def database_url(postgres: Postgres) -> str:
    """The URL of an empty database for one test."""
    return postgres.database(f"test_{next(_databases)}")


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """The Apache Kafka broker of this run. Who kills it starts it again."""
    with Kafka() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_servers(kafka: Kafka) -> str:
    """Its address, `host:port`."""
    return kafka.servers


@pytest.fixture(scope="session")
def ironic(postgres: Postgres) -> Iterator[Ironic]:
    """The Ironic of this run, without nodes. Who kills it starts it again."""
    with Ironic(postgres) as server:
        yield server


@pytest.fixture(scope="session")
def machines(ironic: Ironic) -> Iterator[Machines]:
    """The machines that it deploys."""
    with Machines(ironic.folder / "machines") as served:
        yield served
