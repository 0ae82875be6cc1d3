"""The log as a file, for backup and for a move to another log: JSON lines with a checksum at the end.

The first line names the topics; each line after it is one record with its topic, partition and offset; the last one has
their number and the SHA-256 of all bytes before it.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from qm_events.ids import stream_key
from qm_events.registry import TOPICS, Topic
from qm_service.log import EventLog, Message, Record
from qm_service.log_rules import headers_of

_FORMAT = "quartermaster-log/1"
_BATCH = 1_000


class SegmentRefused(Exception):
    """The file is damaged, or the log to fill has records already; nothing was written. Says which."""


async def export_log(log: EventLog, file: Path, topics: Iterable[Topic] = TOPICS.values()) -> int:
    """Write what is in the topics now to `file`, partition by partition in order, and return the number of records."""
    wanted = list(topics)
    digest, count = hashlib.sha256(), 0
    with file.open("wb") as out:

        def put(line: Mapping[str, Any]) -> None:
            raw = orjson.dumps(line) + b"\n"
            digest.update(raw)
            out.write(raw)

        put({"format": _FORMAT, "topics": {topic.name: topic.partitions for topic in wanted}})
        for topic in wanted:
            position, ends = await log.starts([topic.name]), await log.ends([topic.name])
            while any(position[at] < end for at, end in ends.items()):
                if not (records := await log.read(position, _BATCH)):
                    break  # what is left is no record
                for record in records:
                    at = (record.topic, record.partition)
                    position[at] = record.offset + 1
                    if record.offset < ends[at]:  # a later one may lack what led to it
                        put(_line(record))
                        count += 1
        out.write(orjson.dumps({"records": count, "sha256": digest.hexdigest()}) + b"\n")
    return count


async def import_log(log: EventLog, file: Path) -> int:
    """Fill an empty log from `file` and return the number of records. Each gets the offset that it had.

    Raises SegmentRefused. A LogUnavailable in the middle leaves a part: begin again with an empty log.
    """
    topics, count = check_segment(file)
    await log.ensure_topics(topics)
    if any((await log.ends([topic.name for topic in topics])).values()):
        raise SegmentRefused("the log is not empty")
    batch: list[Message] = []
    for line in _records(file):
        batch.append(_message(line))
        if len(batch) == _BATCH:
            await log.publish(batch)
            batch = []
    await log.publish(batch)
    return count


def last_time(file: Path) -> datetime | None:
    """Return the time of the latest fact of a file, None where none has one: a clock must not begin before it."""
    times = (line["headers"]["ce_time"] for line in _records(file))
    return max((datetime.fromisoformat(time) for time in times if time), default=None)


def check_segment(file: Path) -> tuple[list[Topic], int]:
    """Return the topics and the number of records of a whole file. Raises SegmentRefused."""
    digest, lines, last = hashlib.sha256(), 0, b""
    with file.open("rb") as source:
        for line in source:
            digest.update(last)
            lines, last = lines + 1, line
    trailer = _parsed(last)
    if trailer.get("sha256") != digest.hexdigest() or trailer.get("records") != lines - 2:
        raise SegmentRefused(f"{file} is damaged or cut off: its checksum does not match")
    with file.open("rb") as source:
        head = _parsed(source.readline())
    if head.get("format") != _FORMAT:
        raise SegmentRefused(f"{file} is of format {head.get('format')}, not {_FORMAT}")
    _check_offsets(file)
    return [TOPICS.get(name) or Topic(name, "", "", count) for name, count in head["topics"].items()], lines - 2


def _check_offsets(file: Path) -> None:
    # Facts name the offsets of their causes; in a log with other offsets a rebuilt service would resume at a wrong one.
    following: dict[tuple[str, int], int] = {}
    for line in _records(file):
        at = (line["topic"], line["partition"])
        if line["offset"] != following.get(at, 0):
            raise SegmentRefused(f"{at[0]}/{at[1]} has a hole before {line['offset']}: its offsets cannot be kept")
        following[at] = line["offset"] + 1


def _records(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as source:
        for line in source:
            if "offset" in (parsed := _parsed(line)):
                yield parsed


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise SegmentRefused(f"a line is no JSON: {error}") from error
    return parsed


def _line(record: Record) -> dict[str, Any]:
    message = _as_message(record)
    line = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    try:
        return line | {"headers": headers_of(message), "value": record.value.decode()}
    except UnicodeDecodeError:
        return line | {"headers": headers_of(message), "base64": base64.b64encode(record.value).decode()}


def _as_message(record: Record) -> Message:
    try:
        envelope = orjson.loads(record.value)
        own = {"id": str(envelope["id"]), "time": str(envelope["time"]), "traceparent": envelope.get("traceparent")}
    except (ValueError, KeyError, TypeError):  # not one of our facts: it is kept as it is
        own = {"id": "", "time": "", "traceparent": None}
    return Message(
        topic=record.topic,
        key=stream_key(record.subject),
        type=record.type,
        subject=record.subject,
        version=record.version,
        value=record.value,
        partition=record.partition,
        **own,
    )


def _message(line: dict[str, Any]) -> Message:
    headers, value = line["headers"], line.get("value")
    return Message(
        topic=line["topic"],
        key=stream_key(headers["ce_subject"]),
        type=headers["ce_type"],
        id=headers["ce_id"],
        subject=headers["ce_subject"],
        version=int(headers["ce_version"]),
        time=headers["ce_time"],
        value=base64.b64decode(line["base64"]) if value is None else value.encode(),
        traceparent=headers.get("traceparent"),
        partition=line["partition"],
    )
