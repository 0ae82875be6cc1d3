"""Bringing a database up to this release, with alembic.

The tables that all services share are migrated by `qm_service/migrations/versions`; what a service has beside them by
`qm_<name>/migrations/versions`, a line of its own. Projections never are: a changed one is rebuilt under a new version.
"""

import os
from importlib.resources import files

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from qm_service.database import Database
from qm_service.ddl import exclusively


async def upgrade(database: Database, package: str) -> None:
    """Run what is missing, in one transaction; again and from several processes as well. Raises DatabaseUnavailable."""
    async with database.write() as connection:
        await exclusively(database, connection)
        await connection.run_sync(_upgrade, package)


def _upgrade(connection: Connection, package: str) -> None:
    config = Config()
    config.set_main_option("script_location", "qm_service:migrations")
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", os.pathsep.join(_folders(package)))
    config.attributes["connection"] = connection
    command.upgrade(config, "heads")


def _folders(package: str) -> list[str]:
    folders = (files(name).joinpath("migrations", "versions") for name in ("qm_service", package))
    return [str(folder) for folder in folders if folder.is_dir()]
