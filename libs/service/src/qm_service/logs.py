"""From a URL to the log: `memory://`, `sqlite:///path/of/file` or `kafka://host:port,host:port?replication=3`."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from qm_service.log import EventLog
from qm_service.log_kafka import KafkaLog
from qm_service.log_memory import MemoryLog
from qm_service.log_sqlite import SqliteLog


def open_log(url: str) -> EventLog:
    """Return the log that `url` names, not started. Raises ValueError."""
    parts = urlsplit(url)
    match parts.scheme:
        case "memory":
            return MemoryLog()
        case "sqlite" if len(parts.path) > 1:
            return SqliteLog(Path(parts.path.removeprefix("/")))
        case "kafka" if parts.netloc:
            (replication,) = parse_qs(parts.query).get("replication", ["1"])
            return KafkaLog(parts.netloc, int(replication))
    raise ValueError(f"{url!r} names no log: memory://, sqlite:///path or kafka://host:port")
