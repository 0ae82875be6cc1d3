"""The three logs under one contract."""

from pathlib import Path

import pytest

from qm_service.log import EventLog
from qm_service.log_kafka import KafkaLog
from qm_service.log_memory import MemoryLog
from qm_service.log_sqlite import SqliteLog
from qm_service.testing.log_contract import LogContract


class TestMemoryLog(LogContract):
    @pytest.fixture(autouse=True)
    def _place(self) -> None:
        self._log = MemoryLog()

    async def new_log(self) -> EventLog:
        return self._log


class TestSqliteLog(LogContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self._path = tmp_path / "new" / "log.db"

    async def new_log(self) -> EventLog:
        return SqliteLog(self._path)


@pytest.mark.integration
class TestKafkaLog(LogContract):
    @pytest.fixture(autouse=True)
    def _place(self, kafka_servers: str) -> None:
        self._servers = kafka_servers

    async def new_log(self) -> EventLog:
        return KafkaLog(self._servers)
