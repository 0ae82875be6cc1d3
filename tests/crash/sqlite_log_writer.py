"""Writes to a SQLite log until it is killed; prints `key version` of each fact that the log has promised to keep."""

import asyncio
import sys

from qm_events.registry import Topic
from qm_service.log_sqlite import SqliteLog
from qm_service.testing.log_contract import message

TOPIC = Topic("crash", "test", "order")
WRITERS = 16


async def write(log: SqliteLog, key: str) -> None:
    """Publish version after version of one stream."""
    version = 0
    while True:
        version += 1
        await log.publish([message(TOPIC, key, version)])
        print(key, version, flush=True)


async def main(path: str, name: str) -> None:
    """Write with many at once."""
    log = SqliteLog(path)
    await log.ensure_topics([TOPIC])
    await asyncio.gather(*(write(log, f"{name}-{i}") for i in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
