"""The log that a URL names."""

import ssl
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from qm_service.log import EventLog
from qm_service.log_memory import MemoryLog
from qm_service.log_sqlite import SqliteLog


def log_from(url: str) -> EventLog:
    """Return a log that is not started: `memory://`, `sqlite:///path` or `kafka://[user:password@]host:port,...`.

    Kafka takes `?replication=` (for topics that are created; 1), `security_protocol=` (SSL, SASL_SSL, ...),
    `sasl_mechanism=` and `cafile=`. Raises ValueError.
    """
    scheme = urlsplit(url).scheme
    if scheme == "kafka":
        return _kafka(url)
    if scheme == "sqlite" and (path := url.removeprefix("sqlite:///")) not in {"", url}:
        return SqliteLog(path)
    if url == "memory://":
        return MemoryLog()
    raise ValueError(f"no log is at {scheme}://: use kafka://host:port,..., sqlite:///path or memory://")


def _kafka(url: str) -> EventLog:
    from qm_service.log_kafka import KafkaLog  # the embedded product starts without it

    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    if unknown := options.keys() - {"replication", "security_protocol", "sasl_mechanism", "cafile"}:
        raise ValueError(f"kafka:// does not take {', '.join(sorted(unknown))}")
    replication = int(options.pop("replication", "1"))
    cafile = options.pop("cafile", None)
    if options.get("security_protocol", "").endswith("SSL"):
        options["ssl_context"] = ssl.create_default_context(cafile=cafile)
    user, _, servers = parts.netloc.rpartition("@")
    if user:
        name, _, password = user.partition(":")
        options |= {"sasl_plain_username": unquote(name), "sasl_plain_password": unquote(password)}
    return KafkaLog(servers, replication, options)
